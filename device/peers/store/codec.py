"""Conversion of the key-value store's entries to and from messages.

Messages come from other devices, so `entry_from_proto` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nearsight.common.errors import InvalidArgument, InvalidMessage
from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import (
    MAX_PARTS,
    Contribution,
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    canonical,
    check_key,
)
from nearsight.protos.peers_pb2 import (
    ContributionMessage,
    CountersMessage,
    EntryMessage,
    ListMessage,
    RegisterMessage,
    StampMessage,
)

MAX_COUNTER: Final = 2**62
"""Highest counter of a stamp, and highest count, so that sums and successors do not overflow 64 bits."""
MAX_TIME_TO_LIVE_S: Final = 366 * 86_400.0
"""Longest time to live of an entry that expires."""


def entry_to_proto(entry: Entry, now_s: float) -> EntryMessage:
    """The message of an entry. Its remaining time is at least 1 ms, as 0 means that it does not expire."""
    message = EntryMessage(key=entry.key)
    if entry.cleared != NEVER:
        message.cleared.CopyFrom(_stamp_to_proto(entry.cleared))
    if entry.renewed != NEVER:
        message.renewed.CopyFrom(_stamp_to_proto(entry.renewed))
    if entry.expires_s is not None:
        left_s = min(entry.expires_s - now_s, MAX_TIME_TO_LIVE_S)
        message.time_left_ms = max(1, round(left_s * 1000))
    match entry.value:
        case Register(value, stamp):
            message.register.CopyFrom(RegisterMessage(value=value, stamp=_stamp_to_proto(stamp)))
        case ItemList(items):
            for item in items:
                written = _stamp_to_proto(item.stamp)
                message.list.items.add(value=item.value, stamp=written, removed=item.removed)
        case Counters(contributions):
            for each in contributions:
                began = _stamp_to_proto(each.stamp)
                message.counters.contributions.add(
                    contributor=each.contributor, began=began, counts=each.counts
                )
        case None:
            pass
    return message


def entry_from_proto(message: EntryMessage, now_s: float) -> Entry:
    """The entry of a message, without the parts that the message itself marks as deleted.

    Raises
    ------
    InvalidMessage
        If the key is not valid, a stamp is missing or out of range, or a value exceeds the limits of its
        kind.
    """
    key = _checked_name(message.key, "key")
    left_ms = message.time_left_ms
    if left_ms > MAX_TIME_TO_LIVE_S * 1000:
        raise InvalidMessage(f"a time to live of {left_ms} ms is above the limit")
    entry = Entry(
        key,
        cleared=_stamp_from_proto(message.cleared) if message.HasField("cleared") else NEVER,
        value=_value_from_proto(message),
        expires_s=now_s + left_ms / 1000 if left_ms else None,
        renewed=_stamp_from_proto(message.renewed) if message.HasField("renewed") else NEVER,
    )
    if entry.value is None and entry.cleared == NEVER:
        raise InvalidMessage(f"the entry of {key!r} has neither a value nor a deletion")
    return canonical(entry)


def _value_from_proto(message: EntryMessage) -> Register | ItemList | Counters | None:
    match message.WhichOneof("value"):
        case "register":
            return Register(message.register.value, _stamp_from_proto(message.register.stamp))
        case "list":
            return _list_from_proto(message.list)
        case "counters":
            return _counters_from_proto(message.counters)
        case _:
            return None


def _list_from_proto(message: ListMessage) -> ItemList:
    _check_parts([item.value for item in message.items], "list items")
    return ItemList.of(
        ListItem(item.value, _stamp_from_proto(item.stamp), item.removed) for item in message.items
    )


def _counters_from_proto(message: CountersMessage) -> Counters:
    _check_parts([each.contributor for each in message.contributions], "contributors")
    return Counters.of(map(_contribution_from_proto, message.contributions))


def _contribution_from_proto(message: ContributionMessage) -> Contribution:
    counts = {_checked_name(name, "counter"): count for name, count in message.counts.items()}
    if max(counts.values(), default=0) > MAX_COUNTER:
        raise InvalidMessage(f"a count is above {MAX_COUNTER}")
    return Contribution(message.contributor, _stamp_from_proto(message.began), counts)


def _stamp_to_proto(stamp: Stamp) -> StampMessage:
    return StampMessage(counter=stamp.counter, writer=stamp.writer)


def _stamp_from_proto(message: StampMessage) -> Stamp:
    if not 0 < message.counter <= MAX_COUNTER:
        raise InvalidMessage(f"{message.counter} is not a valid counter of a stamp")
    return Stamp(message.counter, message.writer)


def _checked_name(name: str, what: str) -> str:
    try:
        check_key(name, what)
    except InvalidArgument as error:
        raise InvalidMessage(error.message) from error
    return name


def _check_parts(names: Sequence[object], what: str) -> None:
    if not 0 < len(names) <= MAX_PARTS:
        raise InvalidMessage(f"{len(names)} {what}, the limit is 1 to {MAX_PARTS}")
    if len(set(names)) < len(names):
        raise InvalidMessage(f"duplicate {what}")
