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
    """Objects that all parts of the cooperation of one device use."""

    catalogue: str
    """Whose objects."""
    own: NodeId
    """This device."""
    store: StoreCalls
    """Knows who has what, and holds the counters."""
    calls: PeerCalls
    """Reaches one peer."""
    neighbours: Callable[[], Collection[NodeId]]
    """Ids of the peers that are there, this device not among them."""
    background: BackgroundWorker
    """Runs everything but calls from outside."""
    clock: Clock
    """Must run in real time, or as the worker's."""
    rng: random.Random
    """Spreads the load over the holders of a model."""
    digests: ModelDigests = field(default_factory=ModelDigests)
    """Which models are the right ones."""
    account: CooperationAccount = field(default_factory=CooperationAccount)
    """Where models came from."""
