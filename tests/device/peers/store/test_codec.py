"""Entries survive the wire, and strangers' bytes cannot make an entry that breaks the rules."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.store import values
from nearsight.device.peers.store.codec import (
    MAX_COUNTER,
    MAX_TIME_TO_LIVE_S,
    entry_from_proto,
    entry_to_proto,
)
from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import Entry, Register, canonical, digest, merged, size_bytes
from nearsight.protos.peers_pb2 import EntryMessage, StampMessage
from support.peer_states import ENTRIES, KEY

NOW_S = 100.0
MEANINGFUL = ENTRIES.filter(lambda entry: entry.value is not None or entry.cleared != NEVER)


def message(entry: Entry) -> EntryMessage:
    return entry_to_proto(entry, 0.0)


@given(MEANINGFUL)
def test_an_entry_survives_the_wire(entry: Entry) -> None:
    sent = EntryMessage.FromString(entry_to_proto(entry, 0.0).SerializeToString())
    received = entry_from_proto(sent, 0.0)
    assert received == entry
    assert digest(received) == digest(entry)


@given(MEANINGFUL)
def test_the_size_that_counts_is_near_the_size_on_the_wire(entry: Entry) -> None:
    assert message(entry).ByteSize() <= size_bytes(entry) + 40


def test_the_time_to_live_is_relative_and_never_0() -> None:
    entry = Entry(KEY, value=Register(b"", Stamp(1, 1)), expires_s=50.0)
    assert entry_from_proto(entry_to_proto(entry, 20.0), NOW_S).expires_s == NOW_S + 30
    assert entry_to_proto(entry, 50.0).time_left_ms == 1
    forever = Entry(KEY, value=Register(b"", Stamp(1, 1)))
    assert entry_from_proto(message(forever), NOW_S).expires_s is None


def test_a_message_is_brought_into_the_form_that_merging_leaves() -> None:
    sent = message(Entry(KEY, value=Register(b"a", Stamp(3, 1))))
    sent.cleared.CopyFrom(StampMessage(counter=4))
    assert entry_from_proto(sent, NOW_S) == canonical(Entry(KEY, Stamp(4, 0)))


def register(sent: EntryMessage) -> None:
    sent.register.stamp.counter = 1


def without_key(sent: EntryMessage) -> None:
    register(sent)
    sent.key = ""


def long_key(sent: EntryMessage) -> None:
    register(sent)
    sent.key = "k" * (values.MAX_KEY_BYTES + 1)


def nothing(sent: EntryMessage) -> None:
    sent.ClearField("value")


def no_stamp(sent: EntryMessage) -> None:
    sent.register.value = b"a"


def stamp_from_the_end_of_time(sent: EntryMessage) -> None:
    sent.register.stamp.counter = MAX_COUNTER + 1


def cleared_never(sent: EntryMessage) -> None:
    register(sent)
    sent.cleared.writer = 5


def renewed_at_the_end_of_time(sent: EntryMessage) -> None:
    register(sent)
    sent.renewed.counter = 2**64 - 1


def lives_too_long(sent: EntryMessage) -> None:
    register(sent)
    sent.time_left_ms = int(MAX_TIME_TO_LIVE_S * 1000) + 1


def empty_list(sent: EntryMessage) -> None:
    sent.list.SetInParent()


def too_many_items(sent: EntryMessage) -> None:
    for number in range(values.MAX_ITEMS + 1):
        sent.list.items.add(value=str(number).encode()).stamp.counter = number + 1


def item_twice(sent: EntryMessage) -> None:
    for counter in (1, 2):
        sent.list.items.add(value=b"a").stamp.counter = counter


def item_without_stamp(sent: EntryMessage) -> None:
    sent.list.items.add(value=b"a")


def no_counters(sent: EntryMessage) -> None:
    sent.counters.SetInParent()


def too_many_contributors(sent: EntryMessage) -> None:
    for number in range(values.MAX_CONTRIBUTORS + 1):
        sent.counters.contributions.add(contributor=number).began.counter = 1


def contributor_twice(sent: EntryMessage) -> None:
    for counter in (1, 2):
        sent.counters.contributions.add(contributor=7).began.counter = counter


def contribution_without_beginning(sent: EntryMessage) -> None:
    sent.counters.contributions.add(contributor=7)


def count_too_high(sent: EntryMessage) -> None:
    sent.counters.contributions.add(contributor=7, counts={"a": MAX_COUNTER + 1}).began.counter = 1


def counter_without_name(sent: EntryMessage) -> None:
    sent.counters.contributions.add(contributor=7, counts={"": 1}).began.counter = 1


@pytest.mark.parametrize(
    "spoil",
    [
        without_key,
        long_key,
        nothing,
        no_stamp,
        stamp_from_the_end_of_time,
        cleared_never,
        renewed_at_the_end_of_time,
        lives_too_long,
        empty_list,
        too_many_items,
        item_twice,
        item_without_stamp,
        no_counters,
        too_many_contributors,
        contributor_twice,
        contribution_without_beginning,
        count_too_high,
        counter_without_name,
    ],
)
def test_what_breaks_the_rules_is_refused(spoil: Callable[[EntryMessage], None]) -> None:
    sent = EntryMessage(key=KEY)
    spoil(sent)
    with pytest.raises(InvalidMessage):
        entry_from_proto(sent, NOW_S)


def test_a_list_over_the_bytes_keeps_what_is_newest() -> None:
    sent = EntryMessage(key=KEY)
    for counter in (1, 2, 3):
        sent.list.items.add(value=bytes([counter]) * values.MAX_LIST_BYTES).stamp.counter = counter
    received = entry_from_proto(sent, NOW_S)
    assert received.cleared == Stamp(2, 0)
    assert size_bytes(received) < 2 * values.MAX_LIST_BYTES


@given(MEANINGFUL, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=8), ENTRIES)
def test_damaged_bytes_make_a_valid_entry_or_are_refused(
    entry: Entry, damages: list[tuple[int, int]], held: Entry
) -> None:
    data = bytearray(message(entry).SerializeToString())
    for place, byte in damages:
        data[place % len(data)] = byte
    check_that_it_is_refused_or_valid(bytes(data), held)


@given(st.binary(max_size=200), ENTRIES)
def test_any_bytes_make_a_valid_entry_or_are_refused(data: bytes, held: Entry) -> None:
    check_that_it_is_refused_or_valid(data, held)


def test_pieces_of_messages_in_any_mixture_make_a_valid_entry_or_are_refused() -> None:
    rng = random.Random(3)
    spoils = [
        register,
        long_key,
        item_twice,
        item_without_stamp,
        contributor_twice,
        count_too_high,
        lives_too_long,
    ]
    for _ in range(300):
        data = b""
        for spoil in rng.choices(spoils, k=3):
            sent = EntryMessage(key=KEY)
            spoil(sent)
            whole = sent.SerializeToString()
            data += whole[: rng.randrange(len(whole) + 1)]
        check_that_it_is_refused_or_valid(data, Entry(KEY, Stamp(1, 1)))


def check_that_it_is_refused_or_valid(data: bytes, held: Entry) -> None:
    try:
        sent = EntryMessage.FromString(data)
    except DecodeError:
        return
    try:
        received = entry_from_proto(sent, NOW_S)
    except InvalidMessage:
        return
    assert canonical(received) is received
    assert entry_from_proto(entry_to_proto(received, NOW_S), NOW_S) == received
    if received.key == held.key:
        assert digest(merged(received, held)) == digest(merged(held, received))
