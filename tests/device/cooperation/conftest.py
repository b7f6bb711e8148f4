"""Whole devices near each other."""

from contextlib import ExitStack

import pytest

from support.sharing_devices import Scene


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)
