"""This device's part of the store, shared by the threads that serve peers, write and hand over."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument, NearsightError, Overloaded
from nearsight.device.peers.claims import Claims
from nearsight.device.peers.entries_codec import entry_from_proto, entry_to_proto
from nearsight.device.peers.local_store import LocalStore, Place, Refusal, StoreCounts, StoreLimits
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer_settings import PeerSettings
from nearsight.device.peers.stamp_guard import StampGuard
from nearsight.device.peers.stamps import LamportClock, Stamp, date_counter
from nearsight.device.peers.values import Entry, unknown_to_writer
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
