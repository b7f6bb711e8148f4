"""The values of keys, as states that can be merged: tolerates partitions, retries and duplicates (5.4.3).

There are three kinds of values. A *register* is one byte string: the last writer wins. A *list* is a set of
byte strings, each with the stamp of its addition or removal. *Counters* hold, per contributor, the total that
it has added: of two totals the larger one is used, so that nothing counts twice. Deleting a key removes
everything that was written up to a stamp. Two states of a key merge into one. The result does not depend on
the order, the number of copies, or the devices over which the states arrive (Shapiro et al., Conflict-free
Replicated Data Types, 2011).

Each write in a state has its stamp, and everything that is dropped is dropped by stamp: writes up to
`cleared`, the oldest items of a full list, and writes before a later write of *another* kind of value.
Therefore the result does not depend on when a state is trimmed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import xxhash

from nearsight.common.errors import InvalidArgument
from nearsight.device.peers.store.stamps import NEVER, Stamp

MAX_KEY_BYTES: Final = 512
"""Longest key, and longest name of a counter, in UTF-8."""
MAX_PARTS: Final = 256
"""Maximum number of items of a list, including removed ones, and of contributors to counters. The oldest are
dropped. Equal on all devices."""
MAX_PARTS_BYTES: Final = 512 * 1024
"""Maximum total bytes of the items of a list, and of the counters of a key. The oldest items and contributors
are dropped, but never the newest."""

_STAMP_BYTES = 18  # a counter and a writer, as on the wire
_ENTRY_BYTES = 64  # stamps, time to live and field headers of one entry
_COUNT_BYTES = 12


@dataclass(frozen=True, slots=True)
class Register:
    """A byte string; the last writer wins."""

    value: bytes
    stamp: Stamp

    @property
    def parts(self) -> tuple[Register]:
        """The register itself is its only part."""
        return (self,)

    @classmethod
    def of(cls, registers: Iterable[Register]) -> Register:
        """The last write."""
        return max(registers, key=lambda register: (register.stamp, register.value))


@dataclass(frozen=True, slots=True)
class ListItem:
    """A byte string that was added to a list, or removed from it."""

    value: bytes
    stamp: Stamp
    removed: bool = False


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list without duplicates, oldest first; use `of` to make one."""

    parts: tuple[ListItem, ...]

    @classmethod
    def of(cls, items: Iterable[ListItem]) -> ItemList:
        """A list of these items; of equal items the latest is kept."""
        latest: dict[bytes, ListItem] = {}
        for item in items:
            known = latest.get(item.value)
            # If both have the same stamp (an error of the writer), the removal wins on all devices.
            if known is None or (item.stamp, item.removed) > (known.stamp, known.removed):
                latest[item.value] = item
        return cls(tuple(sorted(latest.values(), key=lambda item: (item.stamp, item.value))))

    def values(self) -> tuple[bytes, ...]:
        """The items of the list without removed ones, oldest first."""
        return tuple(item.value for item in self.parts if not item.removed)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The sums of one contributor."""

    contributor: int
    """Random id, 64 bits. A contributor that starts again uses a new one."""
    stamp: Stamp
    """Stamp of its first addition."""
    counts: Mapping[str, int]
    """Its sums since then; none is 0."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over contributors, ordered by their first additions; use `of` to make one."""

    parts: tuple[Contribution, ...]

    @classmethod
    def of(cls, contributions: Iterable[Contribution]) -> Counters:
        """Counters of these contributions: per contributor its latest start, and each highest sum since."""
        latest: dict[int, Contribution] = {}
        for one in contributions:
            known = latest.get(one.contributor)
            if known is None or known.stamp < one.stamp:
                counted = all(one.counts.values())
                latest[one.contributor] = one if counted else replace(one, counts=dict(+Counter(one.counts)))
            elif known.stamp == one.stamp:
                counts = dict(known.counts)
                counts.update((name, n) for name, n in one.counts.items() if n > counts.get(name, 0))
                latest[one.contributor] = replace(known, counts=counts)
        return cls(tuple(sorted(latest.values(), key=lambda each: (each.stamp, each.contributor))))

    def totals(self) -> dict[str, int]:
        """The sum of each counter."""
        totals: Counter[str] = Counter()
        for contribution in self.parts:
            totals.update(contribution.counts)
        return dict(totals)


_OVERHEAD_BYTES = {Register: _STAMP_BYTES, ListItem: _STAMP_BYTES + 4, Contribution: 0}
Value = Register | ItemList | Counters
"""Values consist of parts, oldest first, each with the stamp of its write."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The complete state of a key at one time."""

    key: str
    """The key."""
    cleared: Stamp = NEVER
    """Everything written up to this stamp is deleted; `NEVER` if nothing is."""
    value: Value | None = None
    """None: the key is deleted, and this entry carries the deletion to other devices (a tombstone)."""
    expires_s: float | None = None
    """Time at which the entry expires, on the clock of this device [s]; None: it does not."""
    renewed: Stamp = NEVER
    """Stamp of the write that set ``expires_s``: the last write that was not a removal. Pass it only for
    counters, whose additions have no stamps of their own."""

    @property
    def empty(self) -> bool:
        """Whether a read finds nothing: the key was deleted, or all items of its list were removed."""
        return self.value is None or (isinstance(self.value, ItemList) and not self.value.values())


def check_key(key: str, what: str = "key") -> None:
    """Check that a text is valid as a key or as the name of a counter.

    Raises
    ------
    InvalidArgument
        If it is empty, not valid Unicode, longer than `MAX_KEY_BYTES` in UTF-8, or contains a NUL.
    """
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a {what} must be valid Unicode") from error
    if "\0" in key:
        raise InvalidArgument(f"a {what} must not contain a NUL character")
    if not 0 < length <= MAX_KEY_BYTES:
        raise InvalidArgument(f"a {what} must have 1 to {MAX_KEY_BYTES} bytes, got {length}")


def canonical(entry: Entry) -> Entry:
    """The entry without its deleted parts and within the limits: the form that merging produces."""
    cleared = max(entry.cleared, _overflow(entry.value))
    value = _written_after(entry.value, cleared)
    renewed = max(entry.renewed, cleared, _renewal(value))
    if value is entry.value and renewed == entry.renewed:
        return entry
    return replace(entry, cleared=cleared, value=value, renewed=renewed)


def last_write(value: Value | None) -> Stamp:
    """The stamp of the latest write in a value; of counters, the latest start of a contribution."""
    return value.parts[-1].stamp if value is not None else NEVER


def latest_stamp(entry: Entry) -> Stamp:
    """The latest write in the entry. A clock must be past it before it stamps a write of this key."""
    return max(entry.renewed, entry.cleared, last_write(entry.value))


def merged(one: Entry, other: Entry) -> Entry:
    """The state that contains both entries: commutative, associative and idempotent.

    Raises
    ------
    InvalidArgument
        If the entries have different keys.
    """
    if one.key != other.key:
        raise InvalidArgument("entries of different keys cannot be merged")
    one, other = canonical(one), canonical(other)
    cleared = max(one.cleared, other.cleared)
    mine, theirs = _written_after(one.value, cleared), _written_after(other.value, cleared)
    value: Value | None
    if mine is None or theirs is None:
        value = mine if theirs is None else theirs
    elif type(mine) is type(theirs):
        value = mine if mine == theirs else _of(mine, (*mine.parts, *theirs.parts))
        cleared = max(cleared, _overflow(value))
        value = _written_after(value, cleared)
    else:  # the last writer decides the kind of the value; all earlier writes count as deleted
        older, newer = sorted((mine, theirs), key=last_write)
        cleared = max(cleared, last_write(older))
        value = _written_after(newer, cleared)
    renewed = max(one.renewed, other.renewed)
    ends = [each.expires_s for each in (one, other) if each.renewed == renewed]
    expires_s = max((end for end in ends if end is not None), default=None) if None not in ends else None
    return Entry(one.key, cleared, value, expires_s, max(renewed, cleared))


def unknown_to_writer(written: Entry, held: Entry) -> Entry | None:
    """The part of the held state that the writer of a state lacks: what overrides its write.

    Returns
    -------
    Entry or None
        Deletions that cover the write; the register that won; the same items and contributions in the state
        held here. None if the write already contains all of it.
    """
    held = canonical(held)
    value = _about_the_same(written.value, held.value)
    survives = written.value is None or _written_after(written.value, held.cleared) == written.value
    if value is None and survives:
        return None
    return replace(held, value=value)


def digest(entry: Entry) -> int:
    """A hash of 64 bits that differs if the states differ. Excludes the time to live, as clocks differ."""
    hashed = xxhash.xxh3_64(_pack(entry.cleared, 0))
    for part in entry.value.parts if entry.value is not None else ():
        match part:
            case Register(value, stamp):
                hashed.update(_pack(stamp, 1) + value)
            case ListItem(value, stamp, removed):
                hashed.update(_pack(stamp, 3 if removed else 2, len(value)) + value)
            case Contribution(contributor, began, counts):
                names = sorted(counts)
                hashed.update(_pack(began, 4, contributor))
                hashed.update(struct.pack(f">{len(names) + 1}Q", len(names), *map(counts.get, names)))
                hashed.update("\0".join(names).encode())
    return hashed.intdigest()


def size_bytes(entry: Entry) -> int:
    """Approximate size of the entry as a message; limits on bytes refer to this size."""
    size = _ENTRY_BYTES + len(entry.key.encode())
    for part in entry.value.parts if entry.value is not None else ():
        size += part_bytes(part) + _OVERHEAD_BYTES[type(part)]
    return size


def part_bytes(part: Register | ListItem | Contribution) -> int:
    """Size of a value, of an item, or of the sums of one contributor; these limits are `MAX_PARTS_BYTES`."""
    if isinstance(part, Contribution):
        names_bytes = sum(len(name.encode()) for name in part.counts)
        return _STAMP_BYTES + 10 + names_bytes + len(part.counts) * _COUNT_BYTES
    return len(part.value)


def _pack(stamp: Stamp, kind: int, number: int = 0) -> bytes:
    return struct.pack(">BQQQ", kind, stamp.counter, stamp.writer, number)


def _renewal(value: Value | None) -> Stamp:
    """The last write that sets the time to live; removals from a list do not."""
    if isinstance(value, ItemList):
        return next((item.stamp for item in reversed(value.parts) if not item.removed), NEVER)
    return last_write(value)


def _overflow(value: Value | None) -> Stamp:
    """The stamp up to which a value must drop its oldest parts to be within the limits; else `NEVER`.

    Dropped parts count as deleted. Otherwise an older part that arrives later could take the place of a newer
    one. This requires that parts never shrink; therefore a contributor that starts again uses a new id.
    """
    parts = value.parts if value is not None else ()
    overflow, excess = NEVER, len(parts) - MAX_PARTS
    size = sum(map(part_bytes, parts))
    for part in parts[:-1]:
        if excess <= 0 and size <= MAX_PARTS_BYTES:
            break
        overflow, excess, size = part.stamp, excess - 1, size - part_bytes(part)
    return overflow


def _written_after(value: Value | None, cleared: Stamp) -> Value | None:
    """The part of the value that was written after the stamp; the same object if that is all of it."""
    if value is None or value.parts[0].stamp > cleared:
        return value
    kept = [part for part in value.parts if part.stamp > cleared]
    return _of(value, kept) if kept else None


def _about_the_same(written: Value | None, held: Value | None) -> Value | None:
    """The part of the held value that concerns the written items or contributors, if it differs."""
    if written is None or held is None or type(written) is not type(held):
        return None
    mine = {_name(part): part for part in written.parts}
    differing = [part for part in held.parts if part != mine.get(_name(part), part)]
    return _of(held, differing) if differing else None


def _of(value: Value, parts: Iterable[Any]) -> Value:
    """A value of the same kind with these parts."""
    return type(value).of(parts)


def _name(part: Register | ListItem | Contribution) -> object:
    """Parts with the same name replace each other."""
    match part:
        case Register():
            return None
        case ListItem(value):
            return value
        case Contribution(contributor):
            return contributor
