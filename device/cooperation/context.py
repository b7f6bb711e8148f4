"""Objects that all parts of the cooperation of one device use."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nearsight.common.background.futures import when_done
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.protocol import PeerCalls, StoreCalls
from nearsight.device.cooperation.trust import ModelDigests
from nearsight.device.peers.presence.identity import NodeId

A = TypeVar("A")
Steps = Generator[tuple[Future[Any] | None, float], Any, A]
"""A procedure in the background thread. It yields each future that it waits for, and the maximum time [s]. It
receives the result or a `NearsightError`. Without a future it only waits for this time."""


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

    def run(self, steps: Steps[None], outcome: object = None) -> None:
        """Run a procedure up to its next wait; the rest follows. Call it in the background thread."""
        try:
            awaited, limit_s = steps.send(outcome)
        except StopIteration:
            return
        waiting = [steps]

        def go_on(outcome: object) -> None:
            if waiting:
                self.run(waiting.pop(), outcome)

        if awaited is not None:
            when_done(awaited, self.background, go_on)
        if limit_s < math.inf:
            late = DeadlineExceeded(f"no answer within {limit_s} s")
            self.background.submit(lambda: go_on(late), after_s=limit_s)
