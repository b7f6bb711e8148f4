"""Encoding of entries: round trips, and refusal of invalid messages."""

from __future__ import annotations

import random
from typing import Any

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
from nearsight.device.peers.store.values import (
    Contribution,
    Counters,
    Entry,
    Register,
    canonical,
    digest,
    merged,
    size_bytes,
)
from nearsight.protos.peers_pb2 import (
    ContributionMessage,
    CountersMessage,
    EntryMessage,
    ListItemMessage,
    ListMessage,
    RegisterMessage,
    StampMessage,
)
from support.peer_states import ENTRIES, KEY

NOW_S = 100.0
MEANINGFUL = ENTRIES.filter(lambda entry: entry.value is not None or entry.cleared != NEVER)


def message(entry: Entry) -> EntryMessage:
    return entry_to_proto(entry, 0.0)


@given(MEANINGFUL)
def test_an_entry_is_equal_after_encoding_and_decoding(entry: Entry) -> None:
    sent = EntryMessage.FromString(entry_to_proto(entry, 0.0).SerializeToString())
    received = entry_from_proto(sent, 0.0)
    assert received == entry
    assert digest(received) == digest(entry)


@given(MEANINGFUL)
def test_the_accounted_size_is_close_to_the_encoded_size(entry: Entry) -> None:
    assert message(entry).ByteSize() <= size_bytes(entry) + 40


def test_the_size_of_names_is_counted_in_bytes() -> None:
    counters = Counters((Contribution(7, Stamp(1, 1), {"é" * 200: 1}),))
    for entry in (Entry("é" * 200, cleared=Stamp(1, 1)), Entry("k", value=counters)):
        assert message(entry).ByteSize() <= size_bytes(entry) + 40


def test_the_time_to_live_is_encoded_as_a_duration_above_0() -> None:
    entry = Entry(KEY, value=Register(b"", Stamp(1, 1)), expires_s=50.0)
    assert entry_from_proto(entry_to_proto(entry, 20.0), NOW_S).expires_s == NOW_S + 30
    assert entry_to_proto(entry, 50.0).time_left_ms == 1
    forever = Entry(KEY, value=Register(b"", Stamp(1, 1)))
    assert entry_from_proto(message(forever), NOW_S).expires_s is None


def test_a_decoded_entry_is_in_canonical_form() -> None:
    sent = message(Entry(KEY, value=Register(b"a", Stamp(3, 1))))
    sent.cleared.CopyFrom(StampMessage(counter=4))
    assert entry_from_proto(sent, NOW_S) == canonical(Entry(KEY, Stamp(4, 0)))


FIRST = StampMessage(counter=1)
REGISTER = RegisterMessage(stamp=FIRST)


def listed(*items: ListItemMessage) -> ListMessage:
    return ListMessage(items=items)


def counted(*contributions: ContributionMessage) -> CountersMessage:
    return CountersMessage(contributions=contributions)


def counts(name: str, count: int) -> ContributionMessage:
    return ContributionMessage(contributor=7, began=FIRST, counts={name: count})


WRONG: dict[str, dict[str, Any]] = {
    "no key": {"key": "", "register": REGISTER},
    "a long key": {"key": "k" * (values.MAX_KEY_BYTES + 1), "register": REGISTER},
    "nothing": {},
    "no stamp": {"register": RegisterMessage(value=b"a")},
    "a stamp above the maximum": {"register": RegisterMessage(stamp=StampMessage(counter=MAX_COUNTER + 1))},
    "cleared without a counter": {"register": REGISTER, "cleared": StampMessage(writer=5)},
    "renewed above the maximum": {"register": REGISTER, "renewed": StampMessage(counter=2**64 - 1)},
    "a time to live above the maximum": {
        "register": REGISTER,
        "time_left_ms": int(MAX_TIME_TO_LIVE_S * 1000) + 1,
    },
    "an empty list": {"list": listed()},
    "too many items": {
        "list": listed(
            *(ListItemMessage(value=b"%d" % number, stamp=FIRST) for number in range(values.MAX_PARTS + 1))
        )
    },
    "an item twice": {"list": listed(*[ListItemMessage(value=b"a", stamp=FIRST)] * 2)},
    "an item without stamp": {"list": listed(ListItemMessage(value=b"a"))},
    "no counters": {"counters": counted()},
    "too many contributors": {
        "counters": counted(
            *(ContributionMessage(contributor=number, began=FIRST) for number in range(values.MAX_PARTS + 1))
        )
    },
    "a contributor twice": {"counters": counted(*[ContributionMessage(contributor=7, began=FIRST)] * 2)},
    "a contribution without beginning": {"counters": counted(ContributionMessage(contributor=7))},
    "a count too high": {"counters": counted(counts("a", MAX_COUNTER + 1))},
    "a counter without name": {"counters": counted(counts("", 1))},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_an_invalid_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        entry_from_proto(EntryMessage(**{"key": KEY, **wrong}), NOW_S)


def test_a_list_above_the_size_limit_keeps_its_newest_items() -> None:
    sent = EntryMessage(key=KEY)
    for counter in (1, 2, 3):
        sent.list.items.add(value=bytes([counter]) * values.MAX_PARTS_BYTES).stamp.counter = counter
    received = entry_from_proto(sent, NOW_S)
    assert received.cleared == Stamp(2, 0)
    assert size_bytes(received) < 2 * values.MAX_PARTS_BYTES


@given(MEANINGFUL, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=8), ENTRIES)
def test_damaged_bytes_are_a_valid_entry_or_refused(
    entry: Entry, damages: list[tuple[int, int]], held: Entry
) -> None:
    data = bytearray(message(entry).SerializeToString())
    for place, byte in damages:
        data[place % len(data)] = byte
    check_that_it_is_refused_or_valid(bytes(data), held)


@given(st.binary(max_size=200), ENTRIES)
def test_arbitrary_bytes_are_a_valid_entry_or_refused(data: bytes, held: Entry) -> None:
    check_that_it_is_refused_or_valid(data, held)


def test_mixed_fragments_of_messages_are_a_valid_entry_or_refused() -> None:
    rng = random.Random(3)
    for _ in range(300):
        data = b""
        for wrong in rng.choices(list(WRONG.values()), k=3):
            whole = EntryMessage(**{"key": KEY, **wrong}).SerializeToString()
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
