"""Merging of the states of a key: its laws, limits and kinds of values."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.device.peers.store import values
from nearsight.device.peers.store.stamps import EPOCH_S, NEVER, LamportClock, Stamp, date_counter
from nearsight.device.peers.store.values import (
    Contribution,
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    canonical,
    check_key,
    digest,
    latest_stamp,
    merged,
    size_bytes,
    unknown_to_writer,
)
from support.peer_states import ENTRIES, KEY, STAMPS, VALUES


def put(value: bytes, counter: int, writer: int = 1, expires_s: float | None = None) -> Entry:
    return Entry(KEY, value=Register(value, Stamp(counter, writer)), expires_s=expires_s)


def append(value: bytes, counter: int, writer: int = 1, *, removed: bool = False) -> Entry:
    return Entry(KEY, value=ItemList.of([ListItem(value, Stamp(counter, writer), removed)]))


def add(contributor: int, began: int, **counts: int) -> Entry:
    return Entry(KEY, value=Counters.of([Contribution(contributor, Stamp(began, contributor), counts)]))


def deleted(counter: int, writer: int = 1, expires_s: float | None = 60.0) -> Entry:
    return Entry(KEY, cleared=Stamp(counter, writer), expires_s=expires_s)


def items_of(entry: Entry) -> tuple[bytes, ...]:
    assert isinstance(entry.value, ItemList)
    return entry.value.values()


def totals_of(entry: Entry) -> dict[str, int]:
    assert isinstance(entry.value, Counters)
    return entry.value.totals()


class TestLaws:
    @given(ENTRIES, ENTRIES)
    def test_merging_is_commutative(self, one: Entry, other: Entry) -> None:
        assert merged(one, other) == merged(other, one)

    @given(ENTRIES, ENTRIES, ENTRIES)
    def test_merging_is_associative(self, one: Entry, two: Entry, three: Entry) -> None:
        assert merged(merged(one, two), three) == merged(one, merged(two, three))

    @given(ENTRIES, ENTRIES)
    def test_merging_is_idempotent(self, one: Entry, other: Entry) -> None:
        both = merged(one, other)
        assert merged(one, one) == one
        assert merged(both, one) == merged(both, other) == merged(both, both) == both

    @given(st.lists(ENTRIES, min_size=1, max_size=7), st.integers(0, 2**32))
    def test_the_merged_state_does_not_depend_on_order_duplication_or_grouping(
        self, states: list[Entry], seed: int
    ) -> None:
        rng = random.Random(seed)
        straight = reduce(merged, states)
        nodes = [[state] for state in states]
        while len(nodes) > 1:
            taken = nodes.pop(rng.randrange(len(nodes)))
            nodes[rng.randrange(len(nodes))] += taken
        delivered = nodes[0] + rng.choices(states, k=rng.randint(0, 5))
        rng.shuffle(delivered)
        half = len(delivered) // 2
        parts = [reduce(merged, part) for part in (delivered[:half], delivered[half:]) if part]
        assert reduce(merged, parts) == straight

    @given(ENTRIES, ENTRIES)
    def test_digests_are_equal_if_and_only_if_states_are(self, one: Entry, other: Entry) -> None:
        same = (one.cleared, one.value) == (other.cleared, other.value)
        assert (digest(one) == digest(other)) == same

    @given(ENTRIES, ENTRIES)
    def test_a_merged_state_has_the_latest_stamp(self, one: Entry, other: Entry) -> None:
        assert latest_stamp(merged(one, other)) == max(latest_stamp(one), latest_stamp(other))

    @given(ENTRIES, VALUES, STAMPS)
    def test_an_entry_older_than_a_deletion_stays_deleted(
        self, held: Entry, late: values.Value, stamp: Stamp
    ) -> None:
        deletion = Entry(KEY, cleared=max(stamp, latest_stamp(held), latest_stamp(Entry(KEY, value=late))))
        assert merged(merged(held, deletion), Entry(KEY, value=late)).value is None

    @given(ENTRIES)
    def test_a_merged_state_is_in_canonical_form(self, entry: Entry) -> None:
        assert canonical(entry) is entry
        assert size_bytes(entry) > len(entry.key)


class TestRegisters:
    def test_the_last_writer_wins(self) -> None:
        assert merged(put(b"old", 3), put(b"new", 4)).value == Register(b"new", Stamp(4, 1))
        assert merged(put(b"one", 3, 1), put(b"two", 3, 2)).value == Register(b"two", Stamp(3, 2))

    def test_a_put_after_a_deletion_is_kept(self) -> None:
        assert merged(deleted(5), put(b"new", 6)).value == Register(b"new", Stamp(6, 1))
        assert merged(deleted(5), put(b"old", 5)).value is None

    def test_the_last_writer_sets_the_expiry(self) -> None:
        assert merged(put(b"a", 3), put(b"b", 4, expires_s=5.0)).expires_s == 5.0
        assert merged(put(b"a", 3, expires_s=5.0), put(b"b", 4)).expires_s is None

    def test_of_copies_of_one_write_the_later_expiry_counts(self) -> None:
        assert merged(put(b"a", 3, expires_s=5.0), put(b"a", 3, expires_s=5.1)).expires_s == 5.1

    def test_a_deletion_has_its_own_expiry(self) -> None:
        assert merged(put(b"a", 3), deleted(4, expires_s=9.0)).expires_s == 9.0


class TestLists:
    def test_lists_of_two_halves_of_a_split_are_merged(self) -> None:
        both = merged(
            merged(append(b"a", 1), append(b"b", 2)), merged(append(b"c", 2, 2), append(b"a", 3, 2))
        )
        assert items_of(both) == (b"b", b"c", b"a")

    def test_a_removed_item_returns_only_if_it_is_added_later(self) -> None:
        without = merged(append(b"a", 1), append(b"a", 2, removed=True))
        assert items_of(without) == ()
        assert items_of(merged(without, append(b"a", 1))) == ()
        assert items_of(merged(without, append(b"a", 3))) == (b"a",)

    def test_a_removal_does_not_change_the_expiry(self) -> None:
        added = replace(append(b"a", 1), expires_s=5.0)
        removal = append(b"b", 2, removed=True)
        assert merged(added, removal).expires_s == merged(removal, added).expires_s == 5.0
        assert merged(merged(added, removal), append(b"c", 3)).expires_s is None

    def test_a_full_list_keeps_its_newest_items(self) -> None:
        states = [append(str(number).encode(), number) for number in range(1, values.MAX_PARTS + 11)]
        random.Random(1).shuffle(states)
        kept = items_of(reduce(merged, states))
        assert len(kept) == values.MAX_PARTS
        assert kept[0] == b"11"

    def test_the_bytes_of_a_list_are_bounded(self) -> None:
        large = values.MAX_PARTS_BYTES // 3 + 1
        three = [append(bytes([number]) * large, number) for number in (1, 2, 3)]
        assert len(items_of(reduce(merged, three))) == 2
        assert len(items_of(canonical(append(bytes(values.MAX_PARTS_BYTES + 1), 1)))) == 1

    def test_a_writer_is_informed_that_its_item_was_too_old_for_a_full_list(self) -> None:
        full = reduce(merged, [append(bytes([n]), n + 10) for n in range(values.MAX_PARTS)])
        late = append(b"late", 3)
        told = unknown_to_writer(late, merged(full, late))
        assert told is not None
        assert told.cleared == Stamp(3, 1)

    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.booleans()), min_size=3, max_size=12),
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=12),
    )
    def test_merging_within_limits_is_associative(
        self, items: list[tuple[int, int, bool]], contributions: list[tuple[int, int]]
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(values, "MAX_PARTS_BYTES", 100)
            patch.setattr(values, "MAX_PARTS", 3)
            appended = [
                append(bytes([n]) * (10 * n + 1), counter, removed=removed) for n, counter, removed in items
            ]
            added = [add(contributor, began, a=1) for contributor, began in contributions]
            for states in (appended, added, [*added, *appended, put(b"", 5)]):
                one, two, three = (reduce(merged, states[start::3]) for start in range(3))
                together = reduce(merged, states)
                assert merged(merged(one, two), three) == merged(one, merged(two, three)) == together


class TestCounters:
    def test_contributions_are_summed(self) -> None:
        both = merged(add(1, 1, a=2, b=1), add(2, 1, a=5))
        assert totals_of(both) == {"a": 7, "b": 1}

    def test_a_repeated_contribution_counts_once(self) -> None:
        once = merged(add(1, 1, a=2), add(1, 1, a=3))
        assert totals_of(merged(once, add(1, 1, a=2))) == {"a": 3}

    def test_the_oldest_contributors_are_dropped_first(self) -> None:
        states = [add(number, number, a=1) for number in range(1, values.MAX_PARTS + 3)]
        full = reduce(merged, states)
        assert totals_of(full) == {"a": values.MAX_PARTS}

    @given(
        st.lists(
            st.tuples(st.integers(1, 9), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3))),
            min_size=3,
            max_size=15,
        )
    )
    def test_the_bytes_of_counters_are_bounded_independently_of_the_order(
        self, additions: list[tuple[int, dict[str, int]]]
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(values, "MAX_PARTS_BYTES", 200)
            states = [add(began, began, **counts) for began, counts in additions]
            one, two, three = (reduce(merged, states[start::3]) for start in range(3))
            assert (
                merged(merged(one, two), three) == merged(one, merged(two, three)) == reduce(merged, states)
            )
            assert size_bytes(reduce(merged, states)) < 200 + 150

    @given(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=30),
        st.integers(0, 2**32),
    )
    def test_sums_are_exact_for_any_order_duplication_and_split(
        self, additions: list[tuple[int, int]], seed: int
    ) -> None:
        """Writes of three contributors reach some of three replicas, some twice; then all are merged."""
        rng = random.Random(seed)
        clocks = [LamportClock(number + 1) for number in range(3)]
        begun = [clock.next() for clock in clocks]
        mine = [0, 0, 0]
        replicas: list[Entry | None] = [None, None, None]
        sent: list[Entry] = []
        for contributor, amount in additions:
            mine[contributor] += amount
            contribution = Contribution(contributor, begun[contributor], {"n": mine[contributor]})
            sent.append(Entry(KEY, value=Counters((contribution,))))
            reached = rng.sample(range(3), rng.randint(1, 3))
            for state in [*rng.choices(sent, k=rng.randint(0, 3)), sent[-1]]:
                for place in reached:
                    held = replicas[place]
                    replicas[place] = merged(held, state) if held is not None else state
        whole = reduce(merged, [held for held in replicas if held is not None])
        assert totals_of(whole) == {"n": sum(amount for _, amount in additions)}

    def test_a_cleared_contribution_starts_again_from_zero(self) -> None:
        cleared = merged(add(1, 1, a=9), deleted(4))
        stale = merged(cleared, add(1, 1, a=10))
        assert stale.value is None
        assert totals_of(merged(stale, add(1, 5, a=1))) == {"a": 1}

    def test_additions_prolong_the_time_to_live_of_counters(self) -> None:
        first = Entry(KEY, value=add(1, 1, a=1).value, expires_s=10.0, renewed=Stamp(2, 1))
        other = Entry(KEY, value=add(2, 5, a=1).value, expires_s=12.0, renewed=Stamp(6, 2))
        more = Entry(KEY, value=add(1, 1, a=2).value, expires_s=20.0, renewed=Stamp(9, 1))
        assert reduce(merged, (first, more, other)).expires_s == 20.0


class TestKindsOfValues:
    def test_the_last_writer_sets_the_kind_of_value(self) -> None:
        both = merged(put(b"a", 3), append(b"item", 4))
        assert items_of(both) == (b"item",)
        assert both.cleared == Stamp(3, 1)

    def test_items_older_than_a_value_of_another_kind_are_dropped(self) -> None:
        items = merged(append(b"early", 2), append(b"late", 4))
        assert items_of(merged(items, put(b"a", 3))) == (b"late",)


class TestUnknownToWriter:
    def test_nothing_if_the_write_is_part_of_the_state(self) -> None:
        assert unknown_to_writer(put(b"a", 3), merged(put(b"a", 3), put(b"b", 2))) is None
        assert unknown_to_writer(append(b"a", 3), merged(append(b"a", 3), append(b"b", 4))) is None
        assert unknown_to_writer(add(1, 3, a=1), merged(add(1, 3, a=1), add(2, 4, a=9))) is None

    def test_the_register_that_won(self) -> None:
        told = unknown_to_writer(put(b"a", 3), merged(put(b"a", 3), put(b"b", 7)))
        assert told is not None
        assert told.value == Register(b"b", Stamp(7, 1))

    def test_a_deletion_without_the_writes_of_others(self) -> None:
        write = add(1, 3, a=1)
        held = reduce(merged, (write, deleted(5), add(2, 6, a=4)))
        told = unknown_to_writer(write, held)
        assert told is not None
        assert (told.cleared, told.value) == (Stamp(5, 1), None)

    def test_the_writer_s_larger_contribution_and_a_later_removal(self) -> None:
        told = unknown_to_writer(add(1, 3, a=1), add(1, 3, a=2))
        assert told is not None
        assert totals_of(told) == {"a": 2}
        told = unknown_to_writer(append(b"a", 3), append(b"a", 4, removed=True))
        assert told is not None
        assert items_of(told) == ()

    @given(ENTRIES, ENTRIES)
    def test_without_a_report_the_whole_write_is_part_of_the_state(
        self, written: Entry, before: Entry
    ) -> None:
        held = merged(before, written)
        told = unknown_to_writer(written, held)
        if told is None and written.value is not None:
            assert digest(merged(held, replace(written, cleared=held.cleared))) == digest(held)
            assert canonical(replace(written, cleared=held.cleared)).value == written.value


class TestKeys:
    def test_the_length_of_a_key_is_limited(self) -> None:
        check_key("é" * (values.MAX_KEY_BYTES // 2))
        for wrong in ("", "é" * (values.MAX_KEY_BYTES // 2 + 1), "\ud800", "a\0b"):
            with pytest.raises(InvalidArgument):
                check_key(wrong)

    def test_states_of_different_keys_do_not_merge(self) -> None:
        with pytest.raises(InvalidArgument, match="different keys"):
            merged(Entry("a"), Entry("b"))


def test_a_lamport_clock_is_ahead_of_all_observed_stamps() -> None:
    clock = LamportClock(7)
    assert clock.next() == Stamp(1, 7) > NEVER
    clock.witness(Stamp(40, 2))
    clock.witness(Stamp(12, 2))
    assert clock.next() == Stamp(41, 7)


def test_a_new_lamport_clock_starts_at_the_date() -> None:
    now_s = EPOCH_S + 10.0
    veteran, newcomer = (LamportClock(writer, lambda: date_counter(now_s)) for writer in (9, 7))
    before = [veteran.next() for _ in range(1000)][-1]
    now_s += 1.0
    assert newcomer.next() > before
    now_s = 0.0  # the wall clock was set back
    assert veteran.next() == Stamp(before.counter + 1, 9)
