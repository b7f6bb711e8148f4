"""This device's part of the store, shared by the threads that serve peers, write and hand over.

Claims: of devices that miss the same key at once, the first that says that it will produce it gets a claim
for a while; the others are told how long to wait (5.4.4.1). If it does not deliver, the next gets the claim.

Absurd stamps are kept out. The latest stamp wins, so a peer that invents one out of reach could fix a key for
good, or exhaust the counters of all devices. Honest counters follow the date, or advance by one per write.
The limit grows with time, far faster than both: a liar at the limit wins until the next honest write, which
goes above it, and an instant later the limit has moved on. It depends on the date alone, so honest devices
agree on it; a device whose date is in the past may refuse writes while a liar is ahead of its limit.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument, InvalidMessage, NearsightError, Overloaded
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.codec import entry_from_proto, entry_to_proto
from nearsight.device.peers.store.local_store import LocalStore, Place, Refusal, StoreCounts, StoreLimits
from nearsight.device.peers.store.stamps import EPOCH_S, LATEST_DATE, LamportClock, Stamp, date_counter
from nearsight.device.peers.store.values import Counters, Entry, latest_stamp, unknown_to_writer
from nearsight.protos.peers_pb2 import EntryMessage

ENTRY_OVERHEAD_BYTES = 2048
"""What an entry may have beside its value: key, stamps."""
CLAIM_LEASE_S = 2.0
"""How long others wait for a device that said that it would produce a value."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of an entry.

    Parameters
    ----------
    newer : Entry or None
        What its writer must know: what the write lost to.
    refusal : Refusal or None
        Why it was not taken.
    """

    newer: Entry | None
    refusal: Refusal | None


class SharedStore:
    """The entries held here, the clock that stamps writes, and claims. Thread-safe.

    Parameters
    ----------
    settings : PeerSettings
        Limits.
    incarnation : int
        Of this start of the node: names it as a writer.
    clock : Clock
        The time.
    """

    def __init__(self, settings: PeerSettings, incarnation: int, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        limits = StoreLimits(
            memory_bytes=settings.memory_bytes,
            max_keys=settings.max_keys,
            entry_bytes=settings.value_limit_bytes + ENTRY_OVERHEAD_BYTES,
        )
        self._store = LocalStore(limits, lambda _: Place.FIRST)
        self.stamps = LamportClock(incarnation, lambda: date_counter(clock.wall()))
        """Only to be used under `lock`."""
        self._guard = StampGuard(self.stamps, clock)
        self._claims = Claims(CLAIM_LEASE_S)
        self.lossy = False
        """Entries had to go, or to stay out, for lack of room: others may hold what is missing here."""

    @property
    def lock(self) -> threading.RLock:
        """Orders uses of `stamps`."""
        return self._lock

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size_bytes(self) -> int:
        """Of all entries."""
        return self._store.size_bytes

    @property
    def counts(self) -> StoreCounts:
        """What happened to entries so far."""
        return self._store.counts

    def stamp(self) -> Stamp:
        """A stamp for a new write."""
        with self._lock:
            return self.stamps.next()

    def read(self, key: str) -> Entry | None:
        """The entry of a key."""
        with self._lock:
            return self._store.get(key, self._clock.monotonic())

    @property
    def plain(self) -> Mapping[str, bytes]:
        """The single values without an end that are held here now; others change it meanwhile."""
        return self._store.plain

    @property
    def note_use(self) -> Callable[[str], None]:
        """To be called with each key that was answered from `plain`."""
        return self._store.used.append

    def write(self, entry: Entry, *, displace: bool = True) -> Written:
        """Take in an entry; unless ``displace``, only if there is room."""
        with self._lock:
            known = entry.key in self._store
            merge = self._store.merge(entry, self._clock.monotonic(), displace=displace or known)
            if known and merge.refusal is Refusal.FULL:
                self._store.drop(entry.key)  # better nothing than what is outdated: other replicas have it
            self.lossy = self.lossy or merge.refusal is Refusal.FULL or self._store.counts.evicted > 0
            if not entry.empty:
                self._claims.delivered(entry.key)
            newer = unknown_to_writer(entry, merge.entry) if merge.entry is not None else None
            return Written(newer, merge.refusal)

    def admit(self, message: EntryMessage) -> Entry:
        """Read an entry that a peer sent.

        Raises
        ------
        InvalidMessage
            If it is none, or absurd.
        """
        entry = entry_from_proto(message, self._clock.monotonic())
        with self._lock:
            self._guard.admit(entry)
        return entry

    def encode(self, entry: Entry) -> EntryMessage:
        """The message of an entry, sent now."""
        return entry_to_proto(entry, self._clock.monotonic())

    def claim(self, key: str, claimant: NodeId) -> int:
        """Claim a key that nobody has: milliseconds to wait for who claimed it before, 0 if nobody did."""
        with self._lock:
            return math.ceil(1000 * self._claims.claim(key, claimant, self._clock.monotonic()))

    def claimant_gone(self, node: NodeId) -> None:
        """A node is gone, and what it claimed with it."""
        with self._lock:
            self._claims.gone(node)

    def keys(self) -> tuple[str, ...]:
        """All keys, deleted ones included."""
        with self._lock:
            self._store.expire(self._clock.monotonic())
            return self._store.keys()

    def digests(self, keys: Iterable[str]) -> dict[str, int]:
        """The digests of those of the keys that are here."""
        with self._lock:
            return self._store.digests(keys)

    def wanted(self, offered: Mapping[str, int]) -> Sequence[str]:
        """Which of the offered entries are not here in this state."""
        with self._lock:
            return self._store.wanted(offered)

    def to_hand_on(self, keys: Iterable[str]) -> list[Entry]:
        """The entries of those of the keys that are here."""
        now_s = self._clock.monotonic()
        with self._lock:
            found = (self._store.peek(key, now_s) for key in keys)
            return [entry for entry in found if entry is not None]

    def drop(self, digests: Mapping[str, int]) -> int:
        """Forget entries that others hold, unless they have changed since; how many those were."""
        with self._lock:
            unchanged = [k for k, now in self._store.digests(digests).items() if now == digests[k]]
            return sum(self._store.drop(key) for key in unchanged)

    def place_by(self, place: Callable[[str], Place]) -> None:
        """Other nodes are there, so other keys are needed here."""
        with self._lock:
            self._store.place_by(place)


def refusal_error(key: str, reason: str) -> NearsightError:
    """The error of a write that a node refused."""
    if reason == Refusal.FULL:
        return Overloaded(
            f"there is no room for {key!r} on the devices", advice="delete keys, or add devices"
        )
    if reason == Refusal.TOO_LARGE:
        return InvalidArgument(
            f"{key!r} would be larger than devices accept",
            advice="share who holds it instead of the value, or raise value_limit_bytes on all devices",
        )
    return InvalidArgument(f"{key!r} was refused: {reason[:200]}")


@dataclass(frozen=True, slots=True)
class _Claim:
    claimant: NodeId
    ends_s: float


class Claims:
    """The claims on keys that this device is asked for. Not thread-safe.

    Parameters
    ----------
    lease_s : float
        How long a claim holds.
    max_claims : int
        Most claims at a time; the oldest makes room, at worst something is fetched twice.

    Raises
    ------
    InvalidArgument
        If one of them is not positive.
    """

    def __init__(self, lease_s: float, max_claims: int = 4096) -> None:
        if not (lease_s > 0 and max_claims > 0):
            raise InvalidArgument(f"a lease of {lease_s} s and {max_claims} claims must be positive")
        self._lease_s = lease_s
        self._max_claims = max_claims
        self._claims: OrderedDict[str, _Claim] = OrderedDict()  # in the order in which they end

    def __len__(self) -> int:
        return len(self._claims)

    def claim(self, key: str, claimant: NodeId, now_s: float) -> float:
        """Ask to produce a missing key.

        Returns
        -------
        float
            0 if the claimant is to produce it; else the seconds for which somebody else still is.

        Notes
        -----
        Who asks again while it has the claim, keeps it, but not for longer.
        """
        wait_s = self.wait_s(key, claimant, now_s)
        if wait_s == 0 and key not in self._claims:
            self._claims[key] = _Claim(claimant, now_s + self._lease_s)
            if len(self._claims) > self._max_claims:
                self._claims.popitem(last=False)
        return wait_s

    def wait_s(self, key: str, asker: NodeId, now_s: float) -> float:
        """How long the asker should wait for the key; 0 if nobody else is producing it."""
        self._expire(now_s)
        claim = self._claims.get(key)
        return claim.ends_s - now_s if claim is not None and claim.claimant != asker else 0.0

    def delivered(self, key: str) -> None:
        """The key was written: nobody needs to wait for it."""
        self._claims.pop(key, None)

    def gone(self, claimant: NodeId) -> None:
        """A node went away; the next that asks may take over."""
        for key in [key for key, claim in self._claims.items() if claim.claimant == claimant]:
            del self._claims[key]

    def _expire(self, now_s: float) -> None:
        while self._claims and next(iter(self._claims.values())).ends_s <= now_s:
            self._claims.popitem(last=False)


WRITES_PER_S: Final = 2**20
"""More than any group of devices makes; the limit reaches the end of counters in a hundred thousand years."""
LEAST_LIMIT: Final = 2 * LATEST_DATE
"""For devices with a date in the past: they take what others write by theirs."""
LARGEST_COUNT: Final = 2**48
"""No counter of one contributor gets there."""


class StampGuard:
    """Looks at what peers send before it is taken. Not thread-safe.

    Parameters
    ----------
    stamps : LamportClock
        Of this node; takes notice of what is accepted.
    clock : Clock
        Tells the date.
    """

    def __init__(self, stamps: LamportClock, clock: Clock) -> None:
        self._stamps = stamps
        self._clock = clock

    def admit(self, entry: Entry) -> None:
        """Take notice of an entry from a peer.

        Raises
        ------
        InvalidMessage
            If its stamps or counts are absurd.
        """
        if isinstance(entry.value, Counters):
            for contribution in entry.value.contributions:
                if any(count > LARGEST_COUNT for count in contribution.counts.values()):
                    raise InvalidMessage(f"{entry.key!r} has a count that nobody can have reached")
        latest = latest_stamp(entry)
        if latest.counter > self._limit():
            raise InvalidMessage(f"{entry.key!r} was written in a future that nobody can have reached")
        self._stamps.witness(latest)

    def _limit(self) -> int:
        return LEAST_LIMIT + int(max(0.0, self._clock.wall() - EPOCH_S) * WRITES_PER_S)
