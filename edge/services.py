"""Objects that the caches of all catalogues share, and the tier behind them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.common.request.next_tiers import AskRules, NextTiers
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.load import LoadControl
from nearsight.edge.metrics import EdgeMetrics
from nearsight.edge.state_store import StateStore

CLOUD = "cloud"
_COMPUTING_MS = MappingProxyType({FEATURES: 20.0, IMAGE: 40.0})
"""Assumed compute time of a photo at the cloud, before its first answer [ms]."""

_SHARE, _MOST_S = 0.7, 2.0
"""Limits of the cloud's time if a standby can answer: share of the time left, and maximum [s]."""


def next_tiers(query_features: int) -> NextTiers:
    """The tiers behind an edge: only the cloud."""
    return NextTiers((CLOUD,), AskRules(_SHARE, max_s=_MOST_S), _COMPUTING_MS, query_features)


@dataclass(frozen=True, slots=True)
class EdgeServices:
    """Objects of the daemon that exist once."""

    cloud: CloudClient
    background: BackgroundWorker
    metrics: EdgeMetrics
    clock: Clock
    profile: CacheProfile | None
    """Profile from the settings; None if they name no file."""
    load: LoadControl
    next_tiers: NextTiers
    """Choice of tier and form for a miss."""
    store: StateStore | None = None
    """Store for the learnt state; None if it is not stored."""
