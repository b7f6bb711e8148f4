"""The entries that one device holds for the group, within limits.

When there is no room, what others are to hold goes first, then copies of what another device is first replica
of, and only then what this device is first replica of; each time the least recently used. A new entry never
displaces what is more needed than itself: then it is refused.

An entry that came to its end leaves its stamp behind for a while: a copy that another device still holds, or
a state that is older still, does not come back.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import Entry, Register, canonical, digest, merged, size_bytes

_TOMBSTONES = 0.25
_REMEMBERED_USES = 1024


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much a device holds for the group."""

    memory_bytes: int
    """Of all entries together, as `values.size_bytes` counts them."""
    max_keys: int
    """Entries; at most a quarter of them tell of deletions."""
    entry_bytes: int
    """Of one entry."""
    tombstone_s: float = 600.0
    """How long a deletion, or the end of an entry, is remembered."""


class Place(IntEnum):
    """How much this device is needed for a key; what is needed less goes first."""

    SPARE = 0
    """Others are to hold it."""
    REPLICA = 1
    """This device is one of its replicas."""
    FIRST = 2
    """This device is its first replica."""


class Refusal(StrEnum):
    """Why an entry was not taken."""

    TOO_LARGE = "too large"
    FULL = "full"
    EXPIRED = "expired"


@dataclass(slots=True)
class StoreCounts:
    """Entries that went or were refused, so far."""

    evicted: int = 0
    expired: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Held:
    entry: Entry
    size_bytes: int
    place: Place
    digest: int | None = None


class LocalStore:
    """Entries by key. Not thread-safe.

    Parameters
    ----------
    limits : StoreLimits
        How much to hold.
    place : Callable[[str], Place]
        How much this device is needed for a key.
    """

    def __init__(self, limits: StoreLimits, place: Callable[[str], Place]) -> None:
        self._limits = limits
        self.place = place
        self._outdated = False
        self._held: dict[str, _Held] = {}
        self._by_use: dict[Place, OrderedDict[str, None]] = {place: OrderedDict() for place in Place}
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._ended: OrderedDict[str, tuple[Stamp, float]] = OrderedDict()
        self._ends: list[tuple[float, str]] = []
        self.size_bytes = 0
        """Of all entries together."""
        self.plain: dict[str, bytes] = {}
        """Values of the keys that hold a single value and never end; read only."""
        self.used: deque[str] = deque(maxlen=_REMEMBERED_USES)
        """Keys that were answered from `plain`, which counts as use once something has to go."""
        self.counts = StoreCounts()
        """Entries that went or were refused, so far."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def keys(self) -> tuple[str, ...]:
        """All keys, those that were deleted included."""
        return tuple(self._held)

    def get(self, key: str, now_s: float) -> Entry | None:
        """The entry of a key, which counts as use; without a value if it was deleted."""
        entry = self.peek(key, now_s)
        if entry is not None and entry.value is not None:
            self._by_use[self._held[key].place].move_to_end(key)
        return entry

    def peek(self, key: str, now_s: float) -> Entry | None:
        """The entry of a key, to hand it on; that is no use of it."""
        held = self._held.get(key)
        if held is None or _is_over(held.entry, now_s):
            return None
        return held.entry

    def merge(
        self, entry: Entry, now_s: float, *, displace: bool = True
    ) -> tuple[Entry | None, Refusal | None]:
        """Take in what another state says of its key.

        Parameters
        ----------
        entry : Entry
            The state.
        now_s : float
            The time.
        displace : bool
            Whether other entries may go for it. False for what is only kept alike from time to time: full
            devices would send each other for ever what the other has just let go of.

        Returns
        -------
        held : Entry or None
            What is held now; None if nothing is. For what has expired, a state that says up to which stamp:
            a writer whose clock was behind has to write again above it.
        refusal : Refusal or None
            Why the entry was not taken.
        """
        self.expire(now_s)
        known = self._held.get(entry.key)
        before = known.entry if known is not None else None
        entry = canonical(entry)
        if size_bytes(entry) > self._limits.entry_bytes:  # before any work is put into it
            return self._refused(before, Refusal.TOO_LARGE)
        ended = self._ended.get(entry.key)
        if ended is not None and entry.renewed <= ended[0]:
            if entry.cleared == NEVER:
                self.counts.refused += 1
                told = Entry(
                    entry.key, cleared=max(ended[0], before.cleared if before is not None else NEVER)
                )
                return canonical(told), Refusal.EXPIRED
            entry = replace(entry, value=None)  # what ended stays so; that it was deleted is news
        after = self._bounded(merged(before, entry) if before is not None else entry, now_s)
        if after == before:
            self._use(entry.key)
            return before, None
        size = size_bytes(after)
        if size > self._limits.entry_bytes:
            return self._refused(before, Refusal.TOO_LARGE)
        place = known.place if known is not None and not self._outdated else self.place(entry.key)
        victims = self._room_for(entry.key, place, size, is_tombstone=after.value is None)
        if victims is None or (victims and not displace):
            return self._refused(before, Refusal.FULL)
        for victim in victims:
            self._forget(victim)
        self.counts.evicted += len(victims)
        self._hold(_Held(after, size, place))
        return after, None

    def drop(self, key: str) -> bool:
        """Forget an entry, without a trace: others hold it. Whether it was there."""
        if key not in self._held:
            return False
        self._forget(key)
        return True

    def expire(self, now_s: float) -> int:
        """Forget entries whose time to live is over; returns how many."""
        expired = 0
        while self._ends and self._ends[0][0] <= now_s:
            _, key = heapq.heappop(self._ends)
            held = self._held.get(key)
            if held is not None and _is_over(held.entry, now_s):
                self._end(held.entry, now_s)
                expired += 1
        while self._ended and next(iter(self._ended.values()))[1] <= now_s:
            self._ended.popitem(last=False)
        self.counts.expired += expired
        return expired

    def digests(self, keys: Iterable[str]) -> dict[str, int]:
        """The digests of those of the keys that are here."""
        found: dict[str, int] = {}
        for key in keys:
            held = self._held.get(key)
            if held is not None:
                if held.digest is None:
                    held.digest = digest(held.entry)
                found[key] = held.digest
        return found

    def place_by(self, place: Callable[[str], Place]) -> None:
        """Other nodes are there now, so that other keys are needed here."""
        self.place = place
        self._outdated = True

    def _bounded(self, entry: Entry, now_s: float) -> Entry:
        """Deletions and removals are remembered for a while, however long a stranger wants them to be."""
        if not entry.empty:
            return entry
        latest_s = now_s + self._limits.tombstone_s
        if entry.expires_s is not None and entry.expires_s <= latest_s:
            return entry
        return replace(entry, expires_s=latest_s)

    def _refused(self, before: Entry | None, why: Refusal) -> tuple[Entry | None, Refusal]:
        self.counts.refused += 1
        return before, why

    def _room_for(self, key: str, place: Place, size: int, *, is_tombstone: bool) -> list[str] | None:
        """Which entries have to go for this one; None if those that may go are not enough."""
        known = self._held.get(key)
        keys = len(self._held) + (known is None) - self._limits.max_keys
        room = self.size_bytes - (known.size_bytes if known is not None else 0) + size
        excess = room - self._limits.memory_bytes
        victims: list[str] = []
        if is_tombstone and key not in self._tombstones:
            quota = max(1, int(self._limits.max_keys * _TOMBSTONES))
            victims = list(self._tombstones)[: max(0, len(self._tombstones) + 1 - quota)]
            keys -= len(victims)
            excess -= sum(self._held[victim].size_bytes for victim in victims)
        if keys <= 0 and excess <= 0:
            return victims
        self._note_uses()
        self._sort_by_place()
        for needed in Place:
            if needed > place:
                break
            for candidate in self._by_use[needed]:
                if candidate == key:
                    continue
                victims.append(candidate)
                keys -= 1
                excess -= self._held[candidate].size_bytes
                if keys <= 0 and excess <= 0:
                    return victims
        return None

    def _sort_by_place(self) -> None:
        """Only when something has to go does it matter that places have changed."""
        if not self._outdated:
            return
        self._outdated = False
        in_order = [key for by_use in self._by_use.values() for key in by_use]
        self._by_use = {place: OrderedDict() for place in Place}
        for key in in_order:
            held = self._held[key]
            held.place = self.place(key)
            self._by_use[held.place][key] = None

    def _note_uses(self) -> None:
        for _ in range(len(self.used)):
            key = self.used.popleft()
            if key in self._held:
                self._use(key)

    def _use(self, key: str) -> None:
        held = self._held[key]
        if held.entry.value is not None:
            self._by_use[held.place].move_to_end(key)

    def _hold(self, held: _Held) -> None:
        key = held.entry.key
        if key in self._held:
            self._forget(key)
        self._held[key] = held
        self.size_bytes += held.size_bytes
        if held.entry.value is None:
            self._tombstones[key] = None
        else:
            self._by_use[held.place][key] = None
            self._ended.pop(key, None)
            if isinstance(held.entry.value, Register) and held.entry.expires_s is None:
                self.plain[key] = held.entry.value.value
        if held.entry.expires_s is not None:
            self._remember_end(held.entry.expires_s, key)

    def _remember_end(self, end_s: float, key: str) -> None:
        heapq.heappush(self._ends, (end_s, key))
        if len(self._ends) > 2 * len(self._held) + 64:  # most are of states that were replaced
            self._ends = [
                (held.entry.expires_s, key)
                for key, held in self._held.items()
                if held.entry.expires_s is not None
            ]
            heapq.heapify(self._ends)

    def _forget(self, key: str) -> None:
        held = self._held.pop(key)
        self.plain.pop(key, None)
        self.size_bytes -= held.size_bytes
        if held.entry.value is None:
            del self._tombstones[key]
        else:
            del self._by_use[held.place][key]

    def _end(self, entry: Entry, now_s: float) -> None:
        self._forget(entry.key)
        if entry.value is None:
            return
        end_s = now_s + self._limits.tombstone_s
        self._ended[entry.key] = (entry.renewed, end_s)
        self._ended.move_to_end(entry.key)
        if len(self._ended) > self._limits.max_keys:
            self._ended.popitem(last=False)
        if entry.cleared != NEVER:
            tombstone = replace(entry, value=None, expires_s=end_s)
            self._hold(_Held(tombstone, size_bytes(tombstone), self.place(entry.key)))


def _is_over(entry: Entry, now_s: float) -> bool:
    return entry.expires_s is not None and entry.expires_s <= now_s
