"""Entries held by one device: merging, expiry, tombstones, eviction and limits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nearsight.device.peers.store.local_store import LocalStore, Place, Refusal, StoreLimits
from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import (
    Contribution,
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    Value,
    canonical,
    digest,
    merged,
    size_bytes,
    unknown_to_writer,
)
from support.peer_states import KEY, VALUES

TOMBSTONE_S = 60.0
WIDE = StoreLimits(memory_bytes=10**6, max_keys=1000, entry_bytes=10**5, tombstone_s=TOMBSTONE_S)


def everywhere_first(key: str) -> Place:
    return Place.FIRST


def by_first_letter(key: str) -> Place:
    return {"f": Place.FIRST, "r": Place.REPLICA}.get(key[0], Place.SPARE)


def put(
    key: str, counter: int = 1, value: bytes = b"value", expires_s: float | None = None, writer: int = 1
) -> Entry:
    return Entry(key, value=Register(value, Stamp(counter, writer)), expires_s=expires_s)


def deleted(key: str, counter: int, expires_s: float | None = None) -> Entry:
    return Entry(key, cleared=Stamp(counter, 1), expires_s=expires_s)


def small_store(max_keys: int = 4, memory_bytes: int = 10**6) -> LocalStore:
    return LocalStore(StoreLimits(memory_bytes, max_keys, 10**5, TOMBSTONE_S), by_first_letter)


def taken(outcome: tuple[Entry | None, Refusal | None]) -> bool:
    return outcome[0] is not None and outcome[1] is None


def value_in(store: LocalStore, key: str, now_s: float = 0.0) -> bytes | None:
    entry = store.get(key, now_s)
    return entry.value.value if entry is not None and isinstance(entry.value, Register) else None


class TestMerging:
    def test_the_same_state_again_changes_nothing(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        there = store.merge(put("a", 2), 0.0)
        assert store.merge(put("a", 2), 0.0) == there == store.merge(put("a", 1, b"older"), 0.0)
        assert value_in(store, "a") == b"value"

    def test_a_value_above_the_limit_is_refused_and_the_former_one_kept(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        there, _ = store.merge(put("a"), 0.0)
        assert store.merge(put("a", 2, bytes(WIDE.entry_bytes + 1)), 0.0) == (there, Refusal.TOO_LARGE)
        assert value_in(store, "a") == b"value"
        assert store.counts.refused == 1

    def test_dropping_leaves_no_trace(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(put("a"), 0.0)
        assert store.drop("a")
        assert not store.drop("a")
        assert (len(store), store.size_bytes) == (0, 0)
        assert taken(store.merge(put("a"), 0.0))


class TestExpiry:
    def test_a_value_is_held_until_it_expires(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(put("a", expires_s=5.0), 0.0)
        assert value_in(store, "a", 4.9) == b"value"
        assert store.get("a", 5.0) is None
        store.expire(5.0)
        assert (len(store), store.counts.expired) == (0, 1)

    def test_an_expired_entry_is_not_accepted_from_another_device(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(put("a", 2, expires_s=5.0), 0.0)
        slow_copy, older = put("a", 2, expires_s=5.2), put("a", 1, b"older")
        for late in (slow_copy, older):
            assert store.merge(late, 5.1)[1] is Refusal.EXPIRED
            assert len(store) == 0
        assert taken(store.merge(put("a", 3), 5.1))

    def test_a_writer_whose_counter_is_behind_gets_the_stamp_of_the_expired_entry(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(put("a", 500, expires_s=5.0), 0.0)
        store.expire(5.0)
        late = put("a", 4, b"new", writer=2)
        held, _ = store.merge(late, 6.0)
        assert held is not None
        expired_state = unknown_to_writer(late, held)
        assert expired_state is not None
        assert expired_state.cleared == Stamp(500, 1)
        assert taken(store.merge(put("a", 501, b"new", writer=2), 6.0))

    def test_expired_counters_are_renewed_by_the_next_addition(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        counted = Counters((Contribution(1, Stamp(1, 1), {"n": 3}),))
        store.merge(Entry("a", value=counted, expires_s=5.0), 0.0)
        store.expire(5.0)
        assert store.merge(Entry("a", value=counted, expires_s=9.0), 6.0)[1] is Refusal.EXPIRED
        more = Entry("a", value=counted, expires_s=9.0, renewed=Stamp(4, 1))
        assert taken(store.merge(more, 6.0))

    @given(st.lists(st.tuples(VALUES, st.floats(0, 59.9)), max_size=8), st.integers(7, 9))
    def test_a_deleted_entry_stays_deleted_until_its_tombstone_expires(
        self, late: list[tuple[Value, float]], counter: int
    ) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(deleted(KEY, counter), 0.0)
        for value, now_s in sorted(late, key=lambda each: each[1]):
            store.merge(Entry(KEY, value=value), now_s)
            held = store.get(KEY, now_s)
            assert held is not None
            assert held.value is None
        assert store.get(KEY, TOMBSTONE_S) is None

    def test_a_tombstone_outlives_a_later_value_that_expires_first(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(deleted("a", 5), 0.0)
        store.merge(put("a", 6, expires_s=2.0), 1.0)
        store.expire(2.0)
        store.merge(put("a", 4, b"old"), 3.0)
        held = store.get("a", 3.0)
        assert held is not None
        assert held.value is None

    def test_a_deletion_after_the_expiry_is_stored(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(put("a", 6, expires_s=2.0), 1.0)
        store.expire(2.0)
        assert taken(store.merge(deleted("a", 5), 3.0))

    @pytest.mark.parametrize("expires_s", [None, 1e9])
    def test_the_lifetime_of_a_tombstone_is_bounded(self, expires_s: float | None) -> None:
        store = LocalStore(WIDE, everywhere_first)
        store.merge(deleted("a", 5, expires_s), 0.0)
        store.expire(TOMBSTONE_S)
        assert len(store) == 0

    def test_an_emptied_list_expires_like_a_tombstone(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        added, removed = (ItemList.of([ListItem(b"x", Stamp(n, 1), removed=n == 2)]) for n in (1, 2))
        store.merge(Entry("a", value=added), 0.0)
        store.merge(Entry("a", value=removed), 1.0)
        store.expire(1.0 + TOMBSTONE_S)
        assert len(store) == 0
        assert store.merge(Entry("a", value=added), 2.0 + TOMBSTONE_S)[1] is Refusal.EXPIRED

    def test_former_expiries_of_renewed_entries_are_bounded(self) -> None:
        store = LocalStore(WIDE, everywhere_first)
        for number in range(1000):
            store.merge(put("a", number + 1, expires_s=number + 2.0), float(number))
        assert len(store._expiries) <= 2 * len(store) + 65


class TestEviction:
    def test_surplus_copies_are_evicted_first_then_second_replicas_then_first_replicas(self) -> None:
        store = small_store(4)
        for key in ("f1", "r1", "s1", "s2"):
            store.merge(put(key), 0.0)
        for number, gone in enumerate(("s1", "s2", "r1", "f1")):
            assert gone in store
            assert taken(store.merge(put(f"f new {number}"), 0.0))
            assert gone not in store
        assert store.counts.evicted == 4

    def test_the_least_recently_used_entry_is_evicted_first(self) -> None:
        store = small_store(3)
        for key in ("r1", "r2", "r3"):
            store.merge(put(key), 0.0)
        store.get("r1", 0.0)
        store.peek("r2", 0.0)
        store.merge(put("r3", 2), 0.0)
        store.merge(put("r4"), 0.0)
        assert set(store.keys()) == {"r1", "r3", "r4"}

    def test_reads_of_plain_values_count_as_uses(self) -> None:
        store = small_store(3)
        for key in ("r1", "r2", "r3"):
            store.merge(put(key), 0.0)
        store.used.extend(["r1", "r9"])
        store.merge(put("r4"), 0.0)
        assert set(store.keys()) == {"r1", "r3", "r4"}

    def test_an_entry_of_lower_priority_than_all_held_ones_is_refused(self) -> None:
        store = small_store(2)
        for key in ("f1", "r1"):
            store.merge(put(key), 0.0)
        assert store.merge(put("s1"), 0.0)[1] is Refusal.FULL
        assert set(store.keys()) == {"f1", "r1"}
        assert store.counts.evicted == 0

    def test_memory_is_limited(self) -> None:
        each = size_bytes(put("r1", value=bytes(1000)))
        store = small_store(100, memory_bytes=3 * each)
        for number in range(5):
            store.merge(put(f"r{number}", value=bytes(1000)), 0.0)
        assert set(store.keys()) == {"r2", "r3", "r4"}
        assert store.size_bytes == 3 * each

    def test_an_entry_that_grows_evicts_others_or_is_refused(self) -> None:
        each = size_bytes(put("f1", value=bytes(100)))
        store = small_store(100, memory_bytes=2 * each)
        store.merge(put("f1", value=bytes(100)), 0.0)
        store.merge(put("r1", value=bytes(100)), 0.0)
        assert store.merge(put("r1", 2, bytes(120)), 0.0)[1] is Refusal.FULL
        assert value_in(store, "r1") == bytes(100)
        assert taken(store.merge(put("f1", 2, bytes(120)), 0.0))
        assert store.keys() == ("f1",)

    def test_priorities_follow_changes_of_the_membership(self) -> None:
        store = small_store(2)
        store.merge(put("f1"), 0.0)
        store.merge(put("s1"), 0.0)
        store.place_by(lambda key: Place.SPARE if key == "f1" else Place.FIRST)
        store.merge(put("s2"), 0.0)
        assert set(store.keys()) == {"s1", "s2"}

    def test_a_store_without_room_refuses_all_entries(self) -> None:
        store = small_store(0)
        assert store.merge(put("f1"), 0.0)[1] is Refusal.FULL
        assert store.merge(deleted("f1", 1), 0.0)[1] is Refusal.FULL

    def test_tombstones_occupy_at_most_a_quarter_of_the_keys(self) -> None:
        store = small_store(40)
        for number in range(40):
            store.merge(put(f"f{number}"), 0.0)
        for number in range(100):
            store.merge(deleted(f"f deleted {number}", 1), 0.0)
        assert len(store) == 40
        assert sum(key.startswith("f deleted") for key in store.keys()) == 10  # noqa: SIM118
        assert "f deleted 99" in store

    def test_deletions_that_outlive_expired_values_leave_room_for_new_entries(self) -> None:
        store = small_store(40)
        for number in range(40):
            store.merge(deleted(f"f{number}", 1), 0.0)
            store.merge(put(f"f{number}", 2, expires_s=2.0), 1.0)
        store.expire(2.0)
        assert len(store) == 10
        assert taken(store.merge(put("r new"), 3.0))


class StoreMachine(RuleBasedStateMachine):
    """Limits and counters hold after any events, and no entry is evicted for one of lower priority."""

    KEYS = tuple(f"{letter}{number}" for letter in "frs" for number in range(4))
    LIMITS = StoreLimits(memory_bytes=1200, max_keys=7, entry_bytes=400, tombstone_s=20.0)

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.places = by_first_letter
        self.store = LocalStore(self.LIMITS, by_first_letter)
        self.expired: dict[str, tuple[Stamp, float]] = {}

    @rule(
        key=st.sampled_from(KEYS),
        value=VALUES,
        size=st.integers(0, 500),
        left_s=st.none() | st.integers(1, 30),
        cleared=st.integers(0, 4),
    )
    def write(self, key: str, value: Value, size: int, left_s: int | None, cleared: int) -> None:
        if isinstance(value, Register):
            value = Register(value.value * size, value.stamp)
        expires_s = None if left_s is None else self.now_s + left_s
        self.merge(canonical(Entry(key, Stamp(cleared, 0), value, expires_s)))

    @rule(key=st.sampled_from(KEYS), counter=st.integers(1, 6))
    def delete(self, key: str, counter: int) -> None:
        self.merge(canonical(deleted(key, counter)))

    def merge(self, entry: Entry) -> None:
        key, before = entry.key, self.entries()
        held, refusal = self.store.merge(entry, self.now_s)
        gone = before.keys() - self.entries().keys()
        if refusal is not Refusal.EXPIRED:
            assert held == self.store.peek(key, self.now_s)
        if refusal is not None:
            assert not gone
            assert self.entries() == before
            return
        if key in self.expired and entry.renewed <= self.expired[key][0]:
            entry = replace(entry, value=None)
        expected = merged(before[key], entry) if key in before else entry
        assert held is not None
        assert digest(held) == digest(expected)
        for other in gone:
            assert before[other].value is None or self.places(other) <= self.places(key)
        if held.value is not None:
            self.expired.pop(key, None)

    def entries(self) -> dict[str, Entry]:
        held = ((key, self.store.peek(key, -1.0)) for key in self.store.keys())  # noqa: SIM118
        return {key: entry for key, entry in held if entry is not None}

    @rule(key=st.sampled_from(KEYS))
    def get(self, key: str) -> None:
        self.store.get(key, self.now_s)

    @rule(key=st.sampled_from(KEYS))
    def use(self, key: str) -> None:
        self.store.used.append(key)

    @invariant()
    def plain_values_are_those_held(self) -> None:
        assert self.store.plain == {
            key: entry.value.value
            for key, entry in self.entries().items()
            if isinstance(entry.value, Register) and entry.expires_s is None
        }

    @precondition(lambda self: len(self.store))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.store.drop(data.draw(st.sampled_from(self.store.keys())))

    @rule(seconds=st.integers(1, 25))
    def wait(self, seconds: int) -> None:
        before = self.entries()
        self.now_s += seconds
        self.store.expire(self.now_s)
        self.expired = {key: end for key, end in self.expired.items() if end[1] > self.now_s}
        for key, entry in before.items():
            over = entry.expires_s is not None and entry.expires_s <= self.now_s
            after = self.store.peek(key, self.now_s)
            if over and entry.value is not None:
                self.expired[key] = (entry.renewed, self.now_s + self.LIMITS.tombstone_s)
                assert after is None or (after.value is None and entry.cleared != NEVER)
            elif over:
                assert after is None
            elif entry.value is None:
                assert after is None or after is entry
            else:
                assert after is entry

    @rule(seed=st.integers(0, 5))
    def nodes_change(self, seed: int) -> None:
        rng = random.Random(seed)
        places = {key: rng.choice(list(Place)) for key in self.KEYS}
        self.places = places.__getitem__
        self.store.place_by(self.places)

    @invariant()
    def the_limits_hold(self) -> None:
        sizes = [size_bytes(entry) for entry in self.entries().values()]
        assert len(sizes) == len(self.store) <= self.LIMITS.max_keys
        assert sum(sizes) == self.store.size_bytes <= self.LIMITS.memory_bytes
        assert max(sizes, default=0) <= self.LIMITS.entry_bytes
        assert sum(entry.value is None for entry in self.entries().values()) <= 1

    @invariant()
    def digests_are_those_of_what_is_held(self) -> None:
        expected = {key: digest(entry) for key, entry in self.entries().items()}
        assert self.store.digests(self.KEYS) == expected


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
