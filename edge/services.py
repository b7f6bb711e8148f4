"""What the caches of all catalogues share."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.load import LoadControl
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.state_store import StateStore


@dataclass(frozen=True, slots=True)
class EdgeServices:
    """Parts of the daemon that exist once."""

    cloud: CloudClient
    background: BackgroundWorker
    metrics: EdgeMetrics
    clock: Clock
    profile: CacheProfile | None
    """The one that the settings name."""
    load: LoadControl
    store: StateStore | None = None
    """Keeps what is learnt."""
