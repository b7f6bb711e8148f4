"""Whole devices near each other."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.sharing_devices import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)
