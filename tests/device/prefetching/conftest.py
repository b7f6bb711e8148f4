"""Devices that recognise by themselves, before an edge with five exhibits."""

from contextlib import ExitStack

import pytest

from support.prefetching_devices import Scene


@pytest.fixture
def scene(stack: ExitStack) -> Scene:
    return Scene(stack)
