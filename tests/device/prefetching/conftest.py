"""Devices that hold models, before an edge with five exhibits."""

from contextlib import ExitStack

import pytest

from nearsight.common.catalogue import catalogue_sync
from support.prefetching_devices import Scene, make_misses_costly


@pytest.fixture
def scene(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Devices list a changed catalogue without the minimum interval, which `test_catalogue_sync.py` tests."""
    make_misses_costly(monkeypatch)
    monkeypatch.setattr(catalogue_sync, "_AT_MOST_EVERY_S", 0.01)
    return Scene(stack)
