"""Writes: which nodes receive them, and when they are complete."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from nearsight.common.background.futures import failed
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument, Overloaded, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.quorum_write import QuorumWrite, WritePlan
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.values import Entry, Register
from support.manual_background import ManualBackground

A, B, C, D = (NodeId(number) for number in range(1, 5))
GONE = Unavailable("gone")
REFUSED = InvalidArgument("too large")


def test_a_write_is_done_when_all_replicas_accepted_it() -> None:
    write = WritePlan((A, B, C), replicas=2)
    assert write.begin() == (A, B)
    assert write.ended(B) == ()
    assert not write.done and write.outstanding == {A}
    assert write.ended(A) == ()
    assert write.done and write.lacking((A, B, C)) == ()
    write.check((A, B, C))


def test_a_node_that_fails_is_replaced_by_the_next() -> None:
    write = WritePlan((A, B, C, D), replicas=2)
    write.begin()
    assert write.ended(A, GONE) == (C,)
    assert write.ended(C, GONE) == (D,)
    write.ended(B)
    write.ended(D)
    assert write.done
    write.check((B, D))


def test_a_write_needs_at_least_one_replica() -> None:
    write = WritePlan((A,), replicas=3)
    assert write.begin() == (A,)
    write.ended(A)
    assert write.done
    write.check((A,))
    write = WritePlan((A, B), replicas=2)
    write.begin()
    write.ended(A, GONE)
    write.ended(B, GONE)
    assert write.done
    with pytest.raises(Unavailable):
        write.check((A, B))


def test_a_refusal_is_an_error_only_if_no_replica_accepted() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    assert write.ended(A, REFUSED, refused=True) == ()
    assert write.ended(B) == ()
    assert write.done and write.lacking((A, B, C)) == ()
    write.check((A, B, C))
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    write.ended(A, REFUSED, refused=True)
    assert write.ended(B, GONE) == (C,)
    write.ended(C, GONE)
    with pytest.raises(InvalidArgument):
        write.check((A, B, C))


def test_a_replica_that_failed_and_is_still_a_member_gets_the_write_again() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    assert write.ended(A, GONE) == (C,)
    write.ended(B)
    write.ended(C)
    assert write.done and write.lacking((A, B, C)) == (A,)
    assert write.lacking((B, C)) == ()  # A left
    write.repeat((A,))
    assert not write.done
    assert write.ended(A) == ()
    assert write.done and write.lacking((A, B, C)) == ()


def test_a_write_accepted_only_by_other_nodes_fails() -> None:
    write = WritePlan((A, B, C), replicas=2)
    write.begin()
    write.ended(A, GONE)
    write.ended(B, GONE)
    write.ended(C)
    assert write.done
    with pytest.raises(Unavailable):
        write.check((A, B, C))
    write.check((B, C))  # A left


def test_an_overloaded_replica_is_asked_at_growing_intervals() -> None:
    clock, asked = ManualClock(), list[NodeId]()

    def call(node: NodeId, *_: object, **__: object) -> object:
        asked.append(node)
        return failed(Overloaded("busy"))

    links: Any = SimpleNamespace(call=call, is_slow=lambda _: False, mark_slow=lambda _: None)
    cluster: Any = SimpleNamespace(view=SimpleNamespace(digest=1, ranking=lambda _: (A,)))
    route: Any = SimpleNamespace(own=D, cluster=cluster, connections=links)
    settings, timers = PeerSettings(replicas=1, read_timeout_s=8.0), ManualBackground(clock)
    shared = SharedStore(settings, 9, clock)
    calls = ReplicaCalls(
        route,
        SimpleNamespace(shared=shared),
        settings,
        clock,
        timers,
        random.Random(1),  # type: ignore[arg-type]
    )
    write = QuorumWrite(calls, Entry("k", value=Register(b"v", shared.stamp())))
    write.begin()
    timers.advance(30.0)
    assert isinstance(write.future.exception(0), Overloaded)
    assert 10 <= len(asked) <= 40  # at constant intervals of 0.1 s they would be 160
