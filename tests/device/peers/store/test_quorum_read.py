"""Reads: which nodes are asked, when the read is complete, and when another node is asked."""

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


def test_the_answer_of_a_synchronised_first_replica_is_complete() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    assert read.ask_next() == (A,)
    assert read.ended(A, NodeAnswer(items(b"x"), synchronised=True)) == ()
    assert read.done and held(read) == {b"x"}


@pytest.mark.parametrize("entry", [None, items(b"x")])
def test_a_missing_entry_is_confirmed_by_another_replica(entry: Entry | None) -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.ended(A, MISSING) == (B,)
    assert not read.done
    assert read.ended(B, NodeAnswer(entry, synchronised=True)) == ()
    assert read.done and read.outcome().entry == entry


def test_a_late_confirmation_is_not_waited_for() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    read.ended(A, MISSING)
    assert read.late(B) == ()
    assert read.done and read.outcome().entry is None


def test_if_one_replica_cannot_confirm_the_next_is_asked() -> None:
    read = ReadPlan((A, B, C, D), replicas=3)
    read.ask_next()
    read.ended(A, MISSING)
    assert read.ended(B, GONE) == (C,)
    assert not read.done
    assert read.ended(C, GONE) == ()
    assert read.done and read.outcome().entry is None


@pytest.mark.parametrize(("replicas", "own"), [(1, None), (2, A)])
def test_no_confirmation_is_needed_with_one_replica_or_from_the_reader_s_own(
    replicas: int, own: NodeId | None
) -> None:
    read = ReadPlan((A, B, C), replicas, own=own)
    read.ask_next()
    assert read.ended(A, MISSING) == ()
    assert read.done and read.outcome().entry is None


@pytest.mark.parametrize(("claim", "asked"), [(True, ()), (False, (B,))])
def test_a_claimant_that_must_wait_asks_no_other_node(claim: bool, asked: tuple[NodeId, ...]) -> None:
    read = ReadPlan((A, B, C), replicas=2, claim=claim)
    read.ask_next()
    assert read.ended(A, NodeAnswer(None, synchronised=True, wait_ms=500)) == asked


def test_after_an_unsynchronised_answer_the_next_node_is_asked() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.ended(A, NodeAnswer(items(b"new"), synchronised=False)) == (B,)
    assert not read.done
    assert read.ended(B, NodeAnswer(items(b"new", b"old"), synchronised=True)) == ()
    assert held(read) == {b"new", b"old"}


def test_while_no_node_is_synchronised_one_node_more_than_the_replicas_is_asked() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    assert read.ask_next() == (A,)
    assert read.ended(A, NodeAnswer(None, synchronised=False)) == (B,)
    assert read.ended(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.ended(C, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert held(read) == {b"x"}


def test_three_answers_of_unsynchronised_replicas_are_enough() -> None:
    nodes = [NodeId(number) for number in range(1, 21)]
    read = ReadPlan(nodes, replicas=20)
    (asked,) = read.ask_next()
    for number in range(3):
        assert asked == nodes[number]
        following = read.ended(asked, NodeAnswer(items(b"x", b"%d" % number), synchronised=False))
        asked = following[0] if following else None
    assert read.done and held(read) == {b"x", b"0", b"1", b"2"}


def test_a_miss_among_unsynchronised_nodes_is_checked_at_six_nodes() -> None:
    nodes = tuple(NodeId(number) for number in range(1, 11))
    read = ReadPlan(nodes, replicas=2)
    asked = list(read.ask_next())
    while not read.done:
        asked += read.ended(asked[-1], NodeAnswer(None, synchronised=False))
    assert asked == list(nodes[:6]) and read.outcome().entry is None


def test_failed_nodes_are_skipped_until_none_is_left() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next()
    assert read.ended(A, GONE) == (B,)
    assert not read.done
    assert read.ended(B, DeadlineExceeded("late")) == ()
    assert read.done
    with pytest.raises(DeadlineExceeded):
        read.outcome()


def test_the_read_fails_if_no_replica_answers() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.ended(A, GONE) == (B,)
    assert read.ended(B, DeadlineExceeded("late")) == (C,)
    assert read.ended(C, MISSING) == ()
    assert read.done
    with pytest.raises(DeadlineExceeded):
        read.outcome()


def test_after_a_failure_a_synchronised_miss_of_the_next_replica_is_final() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.ended(A, GONE) == (B,)
    assert read.ended(B, NodeAnswer(None, synchronised=True)) == ()
    assert read.done and read.outcome().entry is None


def test_a_late_replica_is_not_waited_for_once_another_answered() -> None:
    for entry in (items(b"x"), None):
        read = ReadPlan((A, B, C), replicas=2)
        read.ask_next()
        assert read.late(A) == ()
        assert not read.done
        assert read.ask_next() == (B,)
        assert read.ended(B, NodeAnswer(entry, synchronised=True)) == ()
        assert read.done and read.outcome().entry == entry


def test_without_another_replica_a_late_one_is_waited_for() -> None:
    read = ReadPlan((A, B), replicas=1)
    read.ask_next()
    read.late(A)
    assert read.ask_next() == (B,)
    assert read.ended(B, NodeAnswer(None, synchronised=True)) == ()
    assert not read.done
    assert read.ended(A, NodeAnswer(items(b"x"), synchronised=True)) == ()
    assert held(read) == {b"x"}


def test_the_read_ends_when_a_replica_becomes_late_after_another_answered() -> None:
    read = ReadPlan((A, B), replicas=2)
    assert read.ask_next(2) == (A, B)
    assert read.ended(B, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert not read.done
    assert read.late(A) == ()
    assert read.done


def test_a_miss_is_not_final_while_a_late_replica_may_have_the_entry() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    read.ask_next()
    read.late(A)
    assert read.ask_next() == (B,)
    assert read.ended(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.ended(C, NodeAnswer(None, synchronised=False)) == (D,)
    assert read.ended(D, NodeAnswer(None, synchronised=False)) == ()
    assert not read.done
    assert read.ended(A, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert read.done and held(read) == {b"x"}


def test_the_failure_of_a_late_replica_ends_the_read() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next(2)
    read.late(A)
    assert read.ended(B, NodeAnswer(None, synchronised=False)) == ()
    assert not read.done
    assert read.ended(A, GONE) == ()
    assert read.done and read.outcome().entry is None


def test_a_miss_of_a_node_that_is_no_replica_is_not_final() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    read.ask_next()
    assert read.ended(A, GONE) == (B,)
    assert read.ended(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.ended(C, NodeAnswer(None, synchronised=True)) == (D,)
    assert read.ended(D, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert read.done and held(read) == {b"x"}


def test_an_earlier_state_of_a_node_that_is_no_replica_does_not_replace_that_of_late_replicas() -> None:
    read = ReadPlan((A, B, C), replicas=2, own=C)
    read.ask_next(2)
    read.late(A)
    read.late(B)
    read.ask_next()
    assert read.ended(C, NodeAnswer(items(b"x"), synchronised=True)) == () and not read.done
    read.ended(B, NodeAnswer(items(b"x", b"y"), synchronised=True))
    assert read.done and held(read) == {b"x", b"y"}


def test_answers_after_the_end_of_a_read_are_ignored() -> None:
    read = ReadPlan((A, B), replicas=2)
    read.ask_next(2)
    read.ended(A, NodeAnswer(items(b"x"), synchronised=True))
    assert read.ended(B, NodeAnswer(items(b"y"), synchronised=True)) == ()
    assert read.ended(B, GONE) == () == read.late(B)
    assert read.ask_next() == ()
    assert held(read) == {b"x"}


FIRST, SECOND, THIRD = NodeId(1), NodeId(2), NodeId(3)
OWN = NodeId(9)
TIMEOUT_S = 0.02


class Network:
    """Nodes that answer when the test completes their calls."""

    def __init__(self) -> None:
        self.asked: dict[NodeId, Future[Reply]] = {}
        self.calls = 0
        self.slow: set[NodeId] = set()
        self.doubted: set[NodeId] = set()

    def is_slow(self, node: NodeId) -> bool:
        return node in self.slow

    def mark_slow(self, node: NodeId, *, doubt: bool) -> None:
        (self.doubted if doubt else self.slow).add(node)

    def call(self, node: NodeId, *_: Any, **__: Any) -> Future[Reply]:
        self.calls += 1
        if node not in self.asked or self.asked[node].done():
            self.asked[node] = Future()
        return self.asked[node]

    def misses(self, node: NodeId, *, synchronised: bool = True) -> None:
        """The node answers that it does not hold the key."""
        self.asked[node].set_result(Reply(ReadResponse(synchronised=synchronised), (), (), 0, 0))


class Timers:
    """Jobs that run when the clock reaches their time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._jobs: list[tuple[float, Callable[[], None]]] = []

    def submit(self, job: Callable[[], None], *, name: str = "", after_s: float = 0.0) -> None:
        self._jobs.append((self._clock.monotonic() + after_s, job))

    def until(self, time_s: float) -> None:
        """Advance the clock to this time, and run the jobs that become due."""
        while due := [one for one in self._jobs if one[0] <= time_s]:
            job = min(due, key=lambda one: one[0])
            self._jobs.remove(job)
            self._to(job[0])
            job[1]()
        self._to(time_s)

    def _to(self, time_s: float) -> None:
        self._clock.advance(max(0.0, time_s - self._clock.monotonic()))


class Reading:
    """One read of a key with three ranked nodes, of which the first two are replicas."""

    def __init__(self) -> None:
        clock = ManualClock()
        self._began_s = clock.monotonic()
        self._timers = Timers(clock)
        self.agrees = True
        """Whether all nodes have the reader's view of the members."""
        self.network = Network()
        scripted: Any = self.network
        timers: Any = self._timers
        route: Any = SimpleNamespace(
            own=OWN,
            cluster=SimpleNamespace(
                view=SimpleNamespace(digest=0, ranking=lambda _: (FIRST, SECOND, THIRD)),
                synchronised=lambda _: self.agrees,
            ),
            connections=scripted,
        )
        settings = PeerSettings(replicas=2, hedge_s=1.0, read_timeout_s=8.0)
        service: Any = SimpleNamespace(shared=SharedStore(settings, OWN, clock))
        calls = ReplicaCalls(route, service, settings, clock, timers, random.Random(1))
        calls.first_timeout.seconds = TIMEOUT_S
        self._read = QuorumRead(calls, "key", claim=False)
        self.outcome = self._read.future
        self._read.begin()

    def at(self, after_s: float) -> None:
        """Advance to this time after the start of the read."""
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


def test_the_next_replica_is_asked_after_the_adaptive_timeout(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    assert reading.asked == {FIRST}
    reading.at(1.1 * TIMEOUT_S)
    assert reading.asked == {FIRST, SECOND}
    assert reading.network.slow == {FIRST}


def test_the_timeout_of_the_second_replica_starts_with_its_request(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    reading.network.misses(FIRST)
    reading.at(1.5 * TIMEOUT_S)
    assert reading.network.slow == set()
    assert reading.asked == {FIRST, SECOND}
    assert not reading.done
    reading.network.misses(SECOND)
    assert reading.done


def test_a_confirmation_is_waited_for_until_the_adaptive_timeout(reading: Reading) -> None:
    reading.at(0.9 * TIMEOUT_S)
    reading.network.misses(FIRST)
    reading.at(2.0 * TIMEOUT_S)
    assert reading.network.slow == {SECOND}
    assert reading.done


def test_only_a_replica_that_is_silent_for_the_hedge_time_is_suspected(reading: Reading) -> None:
    reading.at(0.9)
    assert reading.network.doubted == set()
    reading.at(1.1)
    assert reading.network.doubted == {FIRST}
    assert SECOND not in reading.network.doubted


def miss_everywhere(reading: Reading) -> None:
    for node in (FIRST, SECOND, THIRD):
        reading.network.misses(node, synchronised=False)


@pytest.mark.parametrize("agrees", [True, False])
def test_a_miss_counts_only_if_the_nodes_agree_on_the_members(reading: Reading, agrees: bool) -> None:
    reading.agrees = agrees
    miss_everywhere(reading)
    assert reading.done == agrees
    if not agrees:
        reading.agrees = True
        reading.at(0.5)
        miss_everywhere(reading)
    assert reading.outcome.result(0).entry is None


def test_a_read_fails_if_the_nodes_do_not_agree_in_its_time(reading: Reading) -> None:
    reading.agrees = False
    for hundredths in range(900):
        reading.at(hundredths / 100)
        for node in (FIRST, SECOND, THIRD):
            if node in reading.network.asked and not reading.network.asked[node].done():
                reading.network.misses(node, synchronised=False)
        assert reading.done or hundredths < 810
    assert isinstance(reading.outcome.exception(0), Unavailable)
    attempts = reading.network.calls / 3
    assert 6 <= attempts <= 16  # with constant pauses of 0.1 s they would be 80
