"""Increments of a device are kept until they are acknowledged, and count once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import Overloaded
from nearsight.device.peers.store.pending_increments import PendingIncrements
from nearsight.device.peers.store.stamps import LamportClock, Stamp
from nearsight.device.peers.store.values import Counters, Entry, merged


def make(limit: int = 10) -> tuple[PendingIncrements, LamportClock]:
    clock = LamportClock(7)
    return PendingIncrements(clock, random.Random(1), limit), clock


def totals(entry: Entry | None) -> dict[str, int]:
    assert entry is not None and isinstance(entry.value, Counters)
    return entry.value.totals()


def test_each_entry_contains_all_increments() -> None:
    mine, _ = make()
    first = mine.add("k", {"x": 1, "zero": 0}, None, 0)
    second = mine.add("k", {"x": 2, "y": 1}, None, 0)
    assert totals(first) == {"x": 1}
    assert totals(merged(second, first)) == {"x": 3, "y": 1} == totals(mine.current("k"))


def test_entries_that_are_not_acknowledged_are_listed() -> None:
    mine, _ = make()
    first = mine.add("k", {"x": 1}, None, 0)
    mine.add("k", {"x": 1}, None, 0)
    mine.acknowledged("k", first)
    assert [entry.key for entry in mine.unacknowledged()] == ["k"]
    second = mine.current("k")
    assert second is not None
    mine.acknowledged("k", second)
    mine.acknowledged("k", first)
    assert mine.unacknowledged() == []


def test_contributions_of_others_acknowledge_no_own_increments() -> None:
    mine, _ = make()
    others = PendingIncrements(LamportClock(8), random.Random(2), 10)
    mine.add("k", {"x": 1}, None, 0)
    mine.acknowledged("k", others.add("k", {"x": 5}, None, 0))
    assert [entry.key for entry in mine.unacknowledged()] == ["k"]


def test_after_a_deletion_only_unacknowledged_increments_are_kept() -> None:
    mine, clock = make()
    seen = mine.add("k", {"x": 3, "y": 1}, None, 0)
    mine.acknowledged("k", seen)
    mine.add("k", {"x": 2}, None, 0)
    left = mine.cleared("k", Stamp(50, 1))
    assert totals(left) == {"x": 2}
    assert clock.counter > 50
    deletion = Entry("k", cleared=Stamp(50, 1))
    assert left is not None and totals(merged(merged(seen, deletion), left)) == {"x": 2}
    assert mine.cleared("k", Stamp(50, 1)) == mine.current("k") == left


def test_a_deletion_of_acknowledged_increments_leaves_nothing() -> None:
    mine, _ = make()
    mine.acknowledged("k", mine.add("k", {"x": 3}, None, 0))
    assert mine.cleared("k", Stamp(50, 1)) is None
    assert mine.current("k") is None
    assert totals(mine.add("k", {"x": 1}, None, 0)) == {"x": 1}


def test_an_expired_increment_is_not_added_again() -> None:
    mine, _ = make()
    mine.add("k", {"x": 3}, 10.0, 0)
    assert totals(mine.add("k", {"x": 1}, 20.0, 5)) == {"x": 4}
    assert totals(mine.add("k", {"x": 1}, 30.0, 25)) == {"x": 1}


def test_only_acknowledged_increments_are_dropped_for_others() -> None:
    mine, _ = make(limit=2)
    old = mine.add("a", {"x": 5}, None, 0)
    mine.add("b", {"x": 1}, None, 0)
    with pytest.raises(Overloaded):
        mine.add("c", {"x": 1}, None, 0)
    mine.acknowledged("a", old)
    mine.add("c", {"x": 1}, None, 0)
    assert mine.current("a") is None
    for key in ("b", "c"):
        entry = mine.current(key)
        assert entry is not None
        mine.acknowledged(key, entry)
    assert totals(merged(old, mine.add("a", {"x": 1}, None, 0))) == {"x": 6}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), st.booleans(), st.booleans())), st.randoms()
)
def test_sums_are_exact_for_any_order_and_duplication_of_messages(
    steps: list[tuple[str, int, bool, bool]], rng: random.Random
) -> None:
    mine, _ = make()
    expected: Counter[str] = Counter()
    sent: list[Entry] = []
    for name, count, arrives, acknowledged in steps:
        entry = mine.add("k", {name: count}, None, 0)
        expected[name] += count
        if arrives:
            sent += [entry] * rng.randint(1, 3)
            if acknowledged:
                mine.acknowledged("k", entry)
    last = mine.current("k")
    if last is None:
        return
    rng.shuffle(sent)
    state = last
    for entry in sent:
        state = merged(state, entry)
    assert totals(state) == dict(expected)
