"""Whom a read asks, and when it knows enough."""

from __future__ import annotations

import pytest

from nearsight.common.errors import DeadlineExceeded, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.quorum_read import ReadPlan
from nearsight.device.peers.store.service import NodeAnswer
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Entry, ItemList, ListItem

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


def test_what_the_first_node_holds_is_all_there_is_if_it_is_settled() -> None:
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


def test_an_unsettled_node_is_completed_by_the_next() -> None:
    read = ReadPlan((A, B, C), replicas=2)
    read.ask_next()
    assert read.answered(A, NodeAnswer(items(b"new"), synchronised=False)) == (B,)
    assert not read.done
    assert read.answered(B, NodeAnswer(items(b"new", b"old"), synchronised=True)) == ()
    assert held(read) == {b"new", b"old"}


def test_while_nobody_is_settled_one_more_than_the_replicas_is_asked() -> None:
    read = ReadPlan((A, B, C, D), replicas=2)
    assert read.ask_next() == (A,)
    assert read.answered(A, NodeAnswer(None, synchronised=False)) == (B,)
    assert read.answered(B, NodeAnswer(None, synchronised=False)) == (C,)
    assert read.answered(C, NodeAnswer(items(b"x"), synchronised=False)) == ()
    assert held(read) == {b"x"}


def test_of_many_replicas_that_are_not_settled_three_are_enough() -> None:
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


def test_after_the_first_failed_a_settled_miss_of_the_next_is_final() -> None:
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
