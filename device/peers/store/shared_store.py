"""This device's part of the store, shared by the threads that serve peers, write and hand over.

Claims: if several devices miss the same key at once, the first that offers to produce it receives a claim for
a limited time. The others receive the time to wait (5.4.4.1). If the claimant does not deliver, the next
device receives the claim.

Absurd stamps are refused. The latest stamp wins, so a peer that invents an unreachable one could make a key
unchangeable, or exhaust the counters of all devices. Honest counters follow the date, or advance by one per
write. The limit grows with time, much faster than both: a malicious peer at the limit wins only until the
next honest write, which is above it, and shortly after the limit has increased. The limit depends on the date
alone, so honest devices agree on it. A device whose date is in the past may refuse writes while a malicious
peer is ahead of its limit.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument, InvalidMessage, NearsightError, Overloaded
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.codec import entry_from_proto, entry_to_proto
from nearsight.device.peers.store.local_store import LocalStore, Place, Refusal, StoreLimits
from nearsight.device.peers.store.stamps import EPOCH_S, LATEST_DATE, LamportClock, Stamp, date_counter
from nearsight.device.peers.store.values import (
    MAX_PARTS_BYTES,
    Counters,
    Entry,
    latest_stamp,
    unknown_to_writer,
)
from nearsight.protos.peers_pb2 import EntryMessage

ENTRY_OVERHEAD_BYTES = 8192
"""Bytes that an entry may have in addition to its value: key, stamps of up to `MAX_PARTS` items."""
CLAIM_LEASE_S = 2.0
"""How long other devices wait for a device that claimed to produce a value."""
MOST_CLAIMS = 4096
"""Maximum number of claims; beyond it the oldest is dropped. At worst, two devices then produce the same
value."""
WRITES_PER_S: Final = 2**20
"""Exceeds the write rate of any group of devices. The limit reaches the highest counter in a hundred thousand
years."""
LEAST_LIMIT: Final = 2 * LATEST_DATE
"""Lowest limit. It lets devices with a date in the past accept writes of devices with the right date."""
LARGEST_COUNT: Final = 2**48
"""Highest count of one contributor."""


def largest_counter(wall_s: float) -> int:
    """The highest counter of a stamp that is accepted at a date, in seconds since 1970."""
    return LEAST_LIMIT + int(max(0.0, wall_s - EPOCH_S) * WRITES_PER_S)


def check_stamps(entry: Entry, wall_s: float) -> None:
    """Refuse an entry from a peer with stamps or counts that are impossible at this date.

    Raises
    ------
    InvalidMessage
        If one of them is too high.
    """
    if isinstance(entry.value, Counters):
        for contribution in entry.value.parts:
            if any(count > LARGEST_COUNT for count in contribution.counts.values()):
                raise InvalidMessage(f"{entry.key!r} has an impossibly high count")
    if latest_stamp(entry).counter > largest_counter(wall_s):
        raise InvalidMessage(f"{entry.key!r} has an impossibly high stamp")


class Claims:
    """The claims on keys of which this device is a replica. Not thread-safe."""

    def __init__(self) -> None:
        self._claims: OrderedDict[str, tuple[NodeId, float]] = OrderedDict()  # in the order of their ends

    def claim(self, key: str, claimant: NodeId, now_s: float) -> float:
        """Request to produce a missing key. A repeated request keeps the claim but does not extend it.

        Returns
        -------
        float
            0 if the claimant must produce it; else the remaining seconds of another device's claim.
        """
        while self._claims and next(iter(self._claims.values()))[1] <= now_s:
            self._claims.popitem(last=False)
        holder, ends_s = self._claims.setdefault(key, (claimant, now_s + CLAIM_LEASE_S))
        if len(self._claims) > MOST_CLAIMS:
            self._claims.popitem(last=False)
        return 0.0 if holder == claimant else ends_s - now_s

    def delivered(self, key: str) -> None:
        """End the claim on a key, because the key was written."""
        self._claims.pop(key, None)

    def remove_claimant(self, claimant: NodeId) -> None:
        """End the claims of a node that left, so that another device can claim these keys."""
        for key in [key for key, (holder, _) in self._claims.items() if holder == claimant]:
            del self._claims[key]


class SharedStore:
    """The entries held here, the clock that stamps writes, and claims. Thread-safe.

    Parameters
    ----------
    settings : PeerSettings
        Limits.
    incarnation : int
        Random number of this process; its id as a writer.
    clock : Clock
        The time.
    """

    def __init__(self, settings: PeerSettings, incarnation: int, clock: Clock) -> None:
        self._clock = clock
        self.lock = threading.RLock()
        """Protects ``stamps`` and ``entries``."""
        limits = StoreLimits(
            memory_bytes=settings.memory_bytes,
            max_keys=settings.max_keys,
            # Lists and counters drop their oldest parts at limits that are equal on all devices.
            entry_bytes=max(settings.value_limit_bytes, MAX_PARTS_BYTES) + ENTRY_OVERHEAD_BYTES,
        )
        self.entries = LocalStore(limits, lambda _: Place.FIRST)
        """The entries held here. Their sizes, ``counts``, ``plain`` and ``used`` may be read without the
        lock."""
        self.stamps = LamportClock(incarnation, lambda: date_counter(clock.wall()))
        """The clock for stamps of writes."""
        self.lossy = False
        """Entries were evicted or refused for lack of space: a key that is missing here may exist on other
        devices."""
        self._claims = Claims()

    def stamp(self) -> Stamp:
        """A stamp for a new write."""
        with self.lock:
            return self.stamps.next()

    def read(self, key: str) -> Entry | None:
        """The entry of a key."""
        with self.lock:
            return self.entries.get(key, self._clock.monotonic())

    def write(self, entry: Entry, *, displace: bool = True) -> tuple[Entry | None, Refusal | None]:
        """Merge an entry into the store; without ``displace``, only if there is space.

        Returns
        -------
        (Entry or None, Refusal or None)
            The state that overrides the write, for its writer; and why the entry was refused.
        """
        with self.lock:
            known = entry.key in self.entries
            held, refusal = self.entries.merge(entry, self._clock.monotonic(), displace=displace or known)
            if known and refusal is Refusal.FULL:
                self.entries.drop(entry.key)  # an outdated entry is worse than none; other replicas hold it
            self.lossy = self.lossy or refusal is Refusal.FULL or self.entries.counts.evicted > 0
            if not entry.empty:
                self._claims.delivered(entry.key)
            return unknown_to_writer(entry, held) if held is not None else None, refusal

    def admit(self, message: EntryMessage) -> Entry:
        """Decode and check an entry that a peer sent, and record its stamps in the clock.

        Raises
        ------
        InvalidMessage
            If it is not a valid entry, or has impossible stamps or counts.
        """
        entry = entry_from_proto(message, self._clock.monotonic())
        check_stamps(entry, self._clock.wall())
        with self.lock:
            self.stamps.witness(latest_stamp(entry))
        return entry

    def encode(self, entry: Entry) -> EntryMessage:
        """The message of an entry, for sending it now."""
        return entry_to_proto(entry, self._clock.monotonic())

    def claim(self, key: str, claimant: NodeId) -> int:
        """Claim a missing key: milliseconds to wait for another device's claim, 0 if there is none."""
        with self.lock:
            return math.ceil(1000 * self._claims.claim(key, claimant, self._clock.monotonic()))

    def claimant_gone(self, node: NodeId) -> None:
        """End the claims of a node that left."""
        with self.lock:
            self._claims.remove_claimant(node)

    def keys(self) -> tuple[str, ...]:
        """All keys, including deleted ones."""
        with self.lock:
            self.entries.expire(self._clock.monotonic())
            return self.entries.keys()

    def digests(self, keys: Iterable[str]) -> dict[str, int]:
        """The digests of those of these keys that are held here."""
        with self.lock:
            return self.entries.digests(keys)

    def wanted(self, offered: Mapping[str, int]) -> Sequence[str]:
        """The keys of offered entries that are not held here in the same state, by their digests."""
        mine = self.digests(offered)
        return [key for key, theirs in offered.items() if mine.get(key) != theirs]

    def entries_of(self, keys: Iterable[str]) -> list[Entry]:
        """The entries of those of these keys that are held here, for handing them over."""
        now_s = self._clock.monotonic()
        with self.lock:
            found = (self.entries.peek(key, now_s) for key in keys)
            return [entry for entry in found if entry is not None]

    def drop(self, digests: Mapping[str, int]) -> int:
        """Remove entries that other devices hold, unless they have changed since; returns their number."""
        with self.lock:
            unchanged = [k for k, now in self.entries.digests(digests).items() if now == digests[k]]
            return sum(self.entries.drop(key) for key in unchanged)

    def place_by(self, place: Callable[[str], Place]) -> None:
        """Set a new priority function, after the nodes have changed."""
        with self.lock:
            self.entries.place_by(place)


def refusal_error(key: str, reason: str) -> NearsightError:
    """The error of a write that a node refused."""
    if reason == Refusal.FULL:
        return Overloaded(f"the devices have no space for {key!r}", advice="delete keys, or add devices")
    if reason == Refusal.TOO_LARGE:
        return InvalidArgument(
            f"{key!r} would exceed the size limit of the devices",
            advice="share the name of its holder instead, or raise value_limit_bytes on all devices",
        )
    return InvalidArgument(f"{key!r} was refused: {reason[:200]}")
