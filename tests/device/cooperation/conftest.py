"""Complete devices that are peers."""

from contextlib import ExitStack

import pytest

from nearsight.device.cooperation import model_source
from nearsight.device.peers.store import shared_store
from nearsight.device.peers.store.replica_calls import AdaptiveTimeout
from support.prefetching_devices import make_misses_costly
from support.sharing_devices import Scene
from support.waiting import LONG_S


@pytest.fixture
def scene(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Its devices wait for each other, and hold what is predicted, on slow machines too."""
    make_misses_costly(monkeypatch)
    for limit in ("MODEL_TIMEOUT_S", "READ_TIMEOUT_S"):
        monkeypatch.setattr(model_source, limit, LONG_S)
    monkeypatch.setattr(AdaptiveTimeout, "LEAST_S", LONG_S)
    monkeypatch.setattr(shared_store, "CLAIM_LEASE_S", LONG_S)
    return Scene(stack)
