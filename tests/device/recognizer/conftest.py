"""Recognizers before real servers that say what the test wants."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.recognizers import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)
