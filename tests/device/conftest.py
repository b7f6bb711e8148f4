"""Shared fixtures: recognizers before real servers with scripted answers."""

from contextlib import ExitStack

import pytest

from support.recognizers import Scene


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)
