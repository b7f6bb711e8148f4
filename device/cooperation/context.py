"""Objects that all parts of the cooperation of one device use."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.protocol import PeerCalls, StoreCalls
from nearsight.device.cooperation.trust import ModelDigests
from nearsight.device.peers.presence.identity import NodeId


@dataclass(frozen=True, slots=True, eq=False)
class CooperationContext:
    """The store, the peers, the background thread and the state that these parts share."""

    catalogue: str
    """The catalogue of the objects."""
    own: NodeId
    """Node id of this device."""
    store: StoreCalls
    """The key-value store, with the holders of models and the counters."""
    calls: PeerCalls
    """Calls to single peers."""
    neighbours: Callable[[], Collection[NodeId]]
    """Returns the ids of the live peers, without this device."""
    background: BackgroundWorker
    """Runs everything except calls from outside."""
    clock: Clock
    """Runs in real time, or as the clock of ``background``."""
    rng: random.Random
    """Draws holders at random, which spreads the load over them."""
    digests: ModelDigests = field(default_factory=ModelDigests)
    """The digests that a tier listed, used to verify models of peers."""
    account: CooperationAccount = field(default_factory=CooperationAccount)
    """Counters of models by origin."""
