"""Devices that recognise by themselves, before an edge with five exhibits."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.prefetching_devices import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)
