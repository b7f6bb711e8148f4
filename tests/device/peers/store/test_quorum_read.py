"""Which nodes a read asks, when it knows enough, and when it asks one more."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.quorum_read import QuorumRead, ReadPlan
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.service import NodeAnswer
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Entry, ItemList, ListItem
from nearsight.protos.peers_pb2 import ReadResponse

A, B, C, D = (NodeId(number) for number in range(1, 5))
GONE = Unavailable("gone")


def items(*values: bytes) -> Entry:
    return Entry(
        "k", value=ItemList(tuple(ListItem(v, Stamp(n + 1, 1)) for n, v in enumerate(sorted(values))))
    )


def held(read: ReadPlan) -> set[bytes]:
    entry = read.outcome().entry
    assert entry is not None and isinstance(entry.value, ItemList)
    return set(entry.value.values())


MISSING = NodeAnswer(None, synchronised=True)


def test_what_the_first_node_holds_is_all_there_is_if_it_is_synchronised() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    assert read.ask_next() == (A,)
    assert read.answered(A, NodeAnswer(items(b"x"), synchronised=True)) == ()
    assert read.done and held(read) == {b"x"}


@pytest.mark.parametrize("entry", [None, items(b"x")])
def test_that_there_is_nothing_another_replica_is_asked_to_confirm(entry: Entry | None) -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.answered(A, MISSING) == (B,)
    assert not read.done
    assert read.answered(B, NodeAnswer(entry, synchronised=True)) == ()
    assert read.done and read.outcome().entry == entry


def test_who_owes_a_confirmation_for_longer_than_answers_take_is_not_waited_for() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    read.answered(A, MISSING)
    assert read.late(B) == ()
    assert read.done and read.outcome().entry is None


def test_if_one_replica_cannot_confirm_the_next_is_asked_until_none_is_left() -> None:
    read = ReadPlan((A, B, C, D), replicas=3)
    read.ask_next()
    read.answered(A, MISSING)
    assert read.failed(B, GONE) == (C,)
    assert not read.done
    assert read.failed(C, GONE) == ()
    assert read.done and read.outcome().entry is None


@pytest.mark.parametrize(("replicas", "own"), [(1, None), (2, A)])
def test_nobody_confirms_what_only_one_holds_or_what_the_reader_knows_itself(
    replicas: int, own: NodeId | None
) -> None:
    read = ReadPlan((A, B, C), replicas, own=own)
    read.ask_next()
    assert read.answered(A, MISSING) == ()
    assert read.done and read.outcome().entry is None


@pytest.mark.parametrize(("claim", "asked"), [(True, ()), (False, (B,))])
def test_who_claims_and_is_told_to_wait_asks_nobody_else(claim: bool, asked: tuple[NodeId, ...]) -> None:
    read = ReadPlan((A, B, C), replicas=2, claim=claim)
    read.ask_next()
    assert read.answered(A, NodeAnswer(None, synchronised=True, wait_ms=500)) == asked


def test_a_node_that_is_not_synchronised_is_completed_by_the_next() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.answered(A, NodeAnswer(items(b"new"), synchronised=False)) == (B,)
    assert not read.done
    assert read.answered(B, NodeAnswer(items(b"new", b"old"), synchronised=True)) == ()
    assert held(read) == {b"new", b"old"}


def test_while_no_node_is_synchronised_one_more_than_the_replicas_is_asked() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    assert read.ask_next() == (A,)
    assert read.answered(A, NodeAnswer(None, synchronised=False)) == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.answered(C, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert held(read) == {b"x"}


def test_of_many_replicas_that_are_not_synchronised_three_are_enough() -> None:
    nodes = [NodeId(number) for number in range(1, 21)]
    read = ReadPlan(nodes, replicas=20)
    (asked,) = read.ask_next()
    for number in range(3):
        assert asked == nodes[number]
        following = read.answered(asked, NodeAnswer(items(b"x", b"%d" % number), synchronised=False))
        asked = following[0] if following else None
    assert read.done and held(read) == {b"x", b"0", b"1", b"2"}


def test_several_may_have_come_at_once_so_a_miss_is_looked_into() -> None:
    nodes = tuple(NodeId(number) for number in range(1, 11))
    read = ReadPlan(nodes, replicas=2)
    asked = list(read.ask_next())
    while not read.done:
        asked += read.answered(asked[-1], NodeAnswer(None, synchronised=False))
    assert asked == list(nodes[:6]) and read.outcome().entry is None


def test_nodes_that_fail_are_passed_over_until_none_is_left() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next()
    assert read.failed(A, GONE) == (B,)
    assert not read.done
    assert read.failed(B, DeadlineExceeded("late")) == ()
    assert read.done
    with pytest.raises(DeadlineExceeded):
        read.outcome()


def test_if_no_replica_answers_the_read_fails_although_others_have_nothing() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.failed(A, GONE) == (B,)
    assert read.failed(B, DeadlineExceeded("late")) == (C,)
    assert read.answered(C, MISSING) == ()
    assert read.done
    with pytest.raises(DeadlineExceeded):
        read.outcome()


def test_after_the_first_failed_a_synchronised_miss_of_the_next_is_final() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.failed(A, GONE) == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=True)) == ()
    assert read.done and read.outcome().entry is None


def test_a_late_node_does_not_hold_up_the_read_once_another_replica_answered() -> None:
    for entry in (items(b"x"), None):
        read = ReadPlan((A, B, C), replicas=2)
        read.ask_next()
        assert read.late(A) == ()
        assert not read.done
        assert read.ask_next() == (B,)
        assert read.answered(B, NodeAnswer(entry, synchronised=True)) == ()
        assert read.done and read.outcome().entry == entry


def test_without_another_replica_a_late_node_is_waited_for() -> None:
    read = ReadPlan((A, B), replicas=1)
    read.ask_next()
    read.late(A)
    assert read.ask_next() == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=True)) == ()
    assert not read.done
    assert read.answered(A, NodeAnswer(items(b"x"), synchronised=True)) == ()
    assert held(read) == {b"x"}


def test_a_node_that_becomes_late_after_the_next_answered_ends_the_read() -> None:
    read = ReadPlan((A, B), replicas=2)
    assert read.ask_next(2) == (A, B)
    assert read.answered(B, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert not read.done
    assert read.late(A) == ()
    assert read.done


def test_a_miss_is_not_believed_while_a_late_replica_may_still_have_it() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    read.ask_next()
    read.late(A)
    assert read.ask_next() == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.answered(C, NodeAnswer(None, synchronised=False)) == (D,)
    assert read.answered(D, NodeAnswer(None, synchronised=False)) == ()
    assert not read.done
    assert read.answered(A, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert read.done and held(read) == {b"x"}


def test_a_late_replica_that_fails_in_the_end_ends_the_read() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next(2)
    read.late(A)
    assert read.answered(B, NodeAnswer(None, synchronised=False)) == ()
    assert not read.done
    assert read.failed(A, GONE) == ()
    assert read.done and read.outcome().entry is None


def test_who_is_no_replica_is_not_believed_that_there_is_nothing() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    read.ask_next()
    assert read.failed(A, GONE) == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.answered(C, NodeAnswer(None, synchronised=True)) == (D,)
    assert read.answered(D, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert read.done and held(read) == {b"x"}


def test_what_comes_after_the_end_changes_nothing() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next(2)
    read.answered(A, NodeAnswer(items(b"x"), synchronised=True))
    assert read.answered(B, NodeAnswer(items(b"y"), synchronised=True)) == ()
    assert read.failed(B, GONE) == () == read.late(B)
    assert read.ask_next() == ()
    assert held(read) == {b"x"}


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
        self._read = QuorumRead(calls, "key", claim=False)
        self._read.begin()

    def at(self, after_s: float) -> None:
        """Let so much time pass since the read began."""
        self._timers.until(self._began_s + after_s)

    @property
    def asked(self) -> set[NodeId]:
        return set(self.network.asked)

    @property
    def done(self) -> bool:
        return self._read.future.done()


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
