"""What the caches of all catalogues share, and the tier behind them."""

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
"""What the cloud is assumed to compute on a photo, until it answers."""

_SHARE, _MOST_S = 0.7, 2.0
"""Where a standby answers if the cloud does not: the cloud's part of the time that is left, and its most."""


def next_tiers(query_features: int) -> NextTiers:
    """The cloud, which is the only tier that an edge asks."""
    return NextTiers((CLOUD,), AskRules(_SHARE, most_s=_MOST_S), _COMPUTING_MS, query_features)


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
    next_tiers: NextTiers
    """Who is asked on a miss, and in which form."""
    store: StateStore | None = None
    """Keeps what is learnt."""
