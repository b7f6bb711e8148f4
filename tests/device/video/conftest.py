"""Recognizers before real servers that say what the test wants."""

from contextlib import ExitStack

import pytest

from support.recognizers import Scene


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)
