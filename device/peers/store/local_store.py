"""The entries that one device holds for the group, within limits.

When space is needed, entries are evicted in this order: entries that other devices should hold, entries of
which this device is a replica but not the first, and entries of which it is the first replica. Among these,
the least recently used entry is evicted first. A new entry never evicts entries of higher priority; it is
refused instead.

The stamp of an expired entry is kept for a while. Otherwise a copy on another device, or an even older state,
could restore the entry.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from itertools import islice

from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import Entry, Register, canonical, digest, merged, size_bytes

_TOMBSTONES = 0.25
_REMEMBERED_USES = 1024


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits on the entries that a device holds for the group."""

    memory_bytes: int
    """Total size of all entries, as `values.size_bytes` counts it."""
    max_keys: int
    """Number of entries; at most a quarter of them may be tombstones."""
    entry_bytes: int
    """Size of one entry."""
    tombstone_s: float = 600.0
    """How long a deletion, or the expiry of an entry, is kept [s]."""


class Place(IntEnum):
    """Priority of a key on this device; lower values are evicted first."""

    SPARE = 0
    """Only other devices should hold it."""
    REPLICA = 1
    """This device is one of its replicas."""
    FIRST = 2
    """This device is its first replica."""


class Refusal(StrEnum):
    """Why an entry was refused."""

    TOO_LARGE = "too large"
    FULL = "full"
    EXPIRED = "expired"


@dataclass(slots=True)
class StoreCounts:
    """Counters of entries that were evicted, expired or refused."""

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
        Maximum sizes and numbers.
    place : Callable[[str], Place]
        Returns the priority of a key on this device.
    """

    def __init__(self, limits: StoreLimits, place: Callable[[str], Place]) -> None:
        self._limits = limits
        self.place = place
        self._outdated = False
        self._held: dict[str, _Held] = {}
        self._by_use: dict[Place, OrderedDict[str, None]] = {place: OrderedDict() for place in Place}
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._expired: OrderedDict[str, tuple[Stamp, float]] = OrderedDict()
        self._expiries: list[tuple[float, str]] = []
        self.size_bytes = 0
        """Total size of all entries."""
        self.plain: dict[str, bytes] = {}
        """Values of the keys that hold a register and never expire; read only."""
        self.used: deque[str] = deque(maxlen=_REMEMBERED_USES)
        """Keys that were answered from `plain`. They are recorded as used when space is needed."""
        self.counts = StoreCounts()
        """Counters since the start."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def keys(self) -> tuple[str, ...]:
        """All keys, including deleted ones."""
        return tuple(self._held)

    def get(self, key: str, now_s: float) -> Entry | None:
        """The entry of a key, marked as used; without a value if the key was deleted."""
        entry = self.peek(key, now_s)
        if entry is not None:
            self._use(key)
        return entry

    def peek(self, key: str, now_s: float) -> Entry | None:
        """The entry of a key, for handing it over; does not count as a use."""
        held = self._held.get(key)
        if held is None or _is_over(held.entry, now_s):
            return None
        return held.entry

    def merge(
        self, entry: Entry, now_s: float, *, displace: bool = True
    ) -> tuple[Entry | None, Refusal | None]:
        """Merge another state of a key into the entry held here.

        Parameters
        ----------
        entry : Entry
            The state.
        now_s : float
            The time.
        displace : bool
            Whether other entries may be evicted for it. False for the periodic comparison of replicas:
            otherwise full devices would forever send each other the entries that the other one has just
            evicted.

        Returns
        -------
        held : Entry or None
            The state held now; None if there is none. For an expired entry, a state with the stamp up to
            which it expired: a writer whose clock was behind must write again above that stamp.
        refusal : Refusal or None
            Why the entry was refused.
        """
        self.expire(now_s)
        known = self._held.get(entry.key)
        before = known.entry if known is not None else None
        entry = canonical(entry)
        if size_bytes(entry) > self._limits.entry_bytes:  # checked first, before any work on the entry
            return self._refused(before, Refusal.TOO_LARGE)
        expired_stamp = self._expired.get(entry.key)
        if expired_stamp is not None and entry.renewed <= expired_stamp[0]:
            if entry.cleared == NEVER:
                self.counts.refused += 1
                expired_state = Entry(
                    entry.key, cleared=max(expired_stamp[0], before.cleared if before is not None else NEVER)
                )
                return canonical(expired_state), Refusal.EXPIRED
            entry = replace(entry, value=None)  # the value remains expired, but the deletion is new
        after = self._bounded(merged(before, entry) if before is not None else entry, now_s)
        if after == before:
            self._use(entry.key)
            return before, None
        size = size_bytes(after)
        if size > self._limits.entry_bytes:
            return self._refused(before, Refusal.TOO_LARGE)
        place = known.place if known is not None and not self._outdated else self.place(entry.key)
        victims = self._victims_for(entry.key, place, size, is_tombstone=after.value is None)
        if victims is None or (victims and not displace):
            return self._refused(before, Refusal.FULL)
        for victim in victims:
            self._remove(victim)
        self.counts.evicted += len(victims)
        self._hold(_Held(after, size, place))
        return after, None

    def drop(self, key: str) -> bool:
        """Remove an entry without a tombstone, as other devices hold it. Returns whether it existed."""
        if key not in self._held:
            return False
        self._remove(key)
        return True

    def expire(self, now_s: float) -> None:
        """Remove entries whose time to live has passed."""
        while self._expiries and self._expiries[0][0] <= now_s:
            _, key = heapq.heappop(self._expiries)
            held = self._held.get(key)
            if held is not None and _is_over(held.entry, now_s):
                self._end(held.entry, now_s)
                self.counts.expired += 1
        while self._expired and next(iter(self._expired.values()))[1] <= now_s:
            self._expired.popitem(last=False)

    def digests(self, keys: Iterable[str]) -> dict[str, int]:
        """The digests of those of these keys that are held here."""
        found: dict[str, int] = {}
        for key in keys:
            held = self._held.get(key)
            if held is not None:
                if held.digest is None:
                    held.digest = digest(held.entry)
                found[key] = held.digest
        return found

    def place_by(self, place: Callable[[str], Place]) -> None:
        """Set a new priority function, after the nodes have changed."""
        self.place = place
        self._outdated = True

    def _bounded(self, entry: Entry, now_s: float) -> Entry:
        """Limit the time to live of deletions and removals, whatever a peer requested."""
        if not entry.empty:
            return entry
        latest_s = now_s + self._limits.tombstone_s
        if entry.expires_s is not None and entry.expires_s <= latest_s:
            return entry
        return replace(entry, expires_s=latest_s)

    def _refused(self, before: Entry | None, why: Refusal) -> tuple[Entry | None, Refusal]:
        self.counts.refused += 1
        return before, why

    def _victims_for(self, key: str, place: Place, size: int, *, is_tombstone: bool) -> list[str] | None:
        """The entries to evict for this one; None if evicting all candidates is not enough."""
        known = self._held.get(key)
        keys = len(self._held) + (known is None) - self._limits.max_keys
        room = self.size_bytes - (known.size_bytes if known is not None else 0) + size
        excess = room - self._limits.memory_bytes
        victims: list[str] = []
        if is_tombstone and key not in self._tombstones:
            victims = self._surplus_tombstones()
            keys -= len(victims)
            excess -= sum(self._held[victim].size_bytes for victim in victims)
        if keys <= 0 and excess <= 0:
            return victims
        self._record_uses()
        self._update_places()
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

    def _surplus_tombstones(self) -> list[str]:
        """The oldest tombstones, as many as must be dropped before another one is added."""
        quota = max(1, int(self._limits.max_keys * _TOMBSTONES))
        return [*islice(self._tombstones, max(0, len(self._tombstones) + 1 - quota))]

    def _update_places(self) -> None:
        """Compute the priorities again after the nodes changed. Only done when space is needed."""
        if not self._outdated:
            return
        self._outdated = False
        in_order = [key for by_use in self._by_use.values() for key in by_use]
        self._by_use = {place: OrderedDict() for place in Place}
        for key in in_order:
            held = self._held[key]
            held.place = self.place(key)
            self._by_use[held.place][key] = None

    def _record_uses(self) -> None:
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
            self._remove(key)
        self._held[key] = held
        self.size_bytes += held.size_bytes
        if held.entry.value is None:
            self._tombstones[key] = None
        else:
            self._by_use[held.place][key] = None
            self._expired.pop(key, None)
            if isinstance(held.entry.value, Register) and held.entry.expires_s is None:
                self.plain[key] = held.entry.value.value
        if held.entry.expires_s is not None:
            self._add_expiry(held.entry.expires_s, key)

    def _add_expiry(self, end_s: float, key: str) -> None:
        heapq.heappush(self._expiries, (end_s, key))
        if len(self._expiries) > 2 * len(self._held) + 64:  # most belong to states that were replaced
            self._expiries = [
                (held.entry.expires_s, key)
                for key, held in self._held.items()
                if held.entry.expires_s is not None
            ]
            heapq.heapify(self._expiries)

    def _remove(self, key: str) -> None:
        held = self._held.pop(key)
        self.plain.pop(key, None)
        self.size_bytes -= held.size_bytes
        if held.entry.value is None:
            del self._tombstones[key]
        else:
            del self._by_use[held.place][key]

    def _end(self, entry: Entry, now_s: float) -> None:
        self._remove(entry.key)
        if entry.value is None:
            return
        end_s = now_s + self._limits.tombstone_s
        self._expired[entry.key] = (entry.renewed, end_s)
        self._expired.move_to_end(entry.key)
        if len(self._expired) > self._limits.max_keys:
            self._expired.popitem(last=False)
        if entry.cleared != NEVER:
            for oldest in self._surplus_tombstones():
                self._remove(oldest)
            tombstone = replace(entry, value=None, expires_s=end_s)
            self._hold(_Held(tombstone, size_bytes(tombstone), self.place(entry.key)))


def _is_over(entry: Entry, now_s: float) -> bool:
    return entry.expires_s is not None and entry.expires_s <= now_s
