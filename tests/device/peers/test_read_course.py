"""When a read asks one more node: a scripted network, and a clock that is moved by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.quorum_read import QuorumRead
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.protos.peers_pb2 import ReadResponse

FIRST, SECOND, THIRD = NodeId(1), NodeId(2), NodeId(3)
OWN = NodeId(9)
TIMEOUT_S = 0.02


class Network:
    """Nodes that are asked, and answer when they are told to."""

    def __init__(self) -> None:
        self.asked: dict[NodeId, Future[Reply]] = {}
        self.slow: set[NodeId] = set()
        self.doubted: set[NodeId] = set()

    def is_slow(self, node: NodeId) -> bool:
        return node in self.slow

    def mark_slow(self, node: NodeId, *, doubt: bool) -> None:
        (self.doubted if doubt else self.slow).add(node)

    def call(self, node: NodeId, *_: Any, **__: Any) -> Future[Reply]:
        return self.asked.setdefault(node, Future())

    def misses(self, node: NodeId) -> None:
        """The node answers that its keys are complete, and this one is not among them."""
        self.asked[node].set_result(Reply(ReadResponse(synchronised=True), (), (), 0, 0))


class Timers:
    """Jobs that run as the clock comes to their time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._jobs: list[tuple[float, Callable[[], None]]] = []

    def submit(self, job: Callable[[], None], *, name: str = "", after_s: float = 0.0) -> None:
        self._jobs.append((self._clock.monotonic() + after_s, job))

    def until(self, time_s: float) -> None:
        """Let the time come, and run what is due on the way."""
        while due := [one for one in self._jobs if one[0] <= time_s]:
            job = min(due, key=lambda one: one[0])
            self._jobs.remove(job)
            self._to(job[0])
            job[1]()
        self._to(time_s)

    def _to(self, time_s: float) -> None:
        self._clock.advance(max(0.0, time_s - self._clock.monotonic()))


class Reading:
    """One read of a key that three others are ranked for, the first two as its replicas."""

    def __init__(self) -> None:
        clock = ManualClock()
        self._began_s = clock.monotonic()
        self._timers = Timers(clock)
        self.network = Network()
        scripted: Any = self.network
        timers: Any = self._timers
        route: Any = SimpleNamespace(
            own=OWN,
            cluster=SimpleNamespace(view=SimpleNamespace(digest=0)),
            connections=scripted,
            ranking=lambda *_: (FIRST, SECOND, THIRD),
        )
        settings = PeerSettings(replicas=2, hedge_s=1.0, read_timeout_s=8.0)
        service: Any = SimpleNamespace(shared=SharedStore(settings, OWN, clock))
        calls = ReplicaCalls(route, service, settings, clock, timers, random.Random(1))
        calls.first_timeout.seconds = TIMEOUT_S
        self._course = QuorumRead(calls, "key", claim=False)
        self._course.begin()

    def at(self, after_s: float) -> None:
        """Let so much time pass since the read began."""
        self._timers.until(self._began_s + after_s)

    @property
    def asked(self) -> set[NodeId]:
        return set(self.network.asked)

    @property
    def done(self) -> bool:
        return self._course.future.done()


@pytest.fixture
def reading() -> Reading:
    return Reading()


def test_one_more_is_asked_once_an_answer_takes_longer_than_answers_do(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    assert reading.asked == {FIRST}
    reading.at(1.1 * TIMEOUT_S)
    assert reading.asked == {FIRST, SECOND}
    assert reading.network.slow == {FIRST}


def test_who_was_asked_a_moment_ago_is_not_late_when_the_first_would_be(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    reading.network.misses(FIRST)
    reading.at(1.5 * TIMEOUT_S)
    assert reading.network.slow == set()
    assert reading.asked == {FIRST, SECOND}
    assert not reading.done
    reading.network.misses(SECOND)
    assert reading.done


def test_who_confirms_is_waited_for_as_long_as_answers_take(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    reading.network.misses(FIRST)
    reading.at(2.0 * TIMEOUT_S)
    assert reading.network.slow == {SECOND}
    assert reading.done


def test_only_who_is_silent_for_long_may_be_gone(reading: Reading) -> None:
    reading.at(0.9)
    assert reading.network.doubted == set()
    reading.at(1.1)
    assert reading.network.doubted == {FIRST}
    assert SECOND not in reading.network.doubted
