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
from typing import Final

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument, InvalidMessage, NearsightError, Overloaded
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.codec import entry_from_proto, entry_to_proto
from nearsight.device.peers.store.local_store import LocalStore, Place, Refusal, StoreLimits
from nearsight.device.peers.store.stamps import EPOCH_S, LATEST_DATE, LamportClock, Stamp, date_counter
from nearsight.device.peers.store.values import Counters, Entry, latest_stamp, unknown_to_writer
from nearsight.protos.peers_pb2 import EntryMessage

ENTRY_OVERHEAD_BYTES = 2048
"""What an entry may have beside its value: key, stamps."""
CLAIM_LEASE_S = 2.0
"""How long others wait for a device that said that it would produce a value."""
MOST_CLAIMS = 4096
WRITES_PER_S: Final = 2**20
"""More than any group of devices makes; the limit reaches the end of counters in a hundred thousand years."""
LEAST_LIMIT: Final = 2 * LATEST_DATE
"""For devices with a date in the past: they take what others write by theirs."""
LARGEST_COUNT: Final = 2**48
"""No counter of one contributor gets there."""


def largest_counter(wall_s: float) -> int:
    """The highest counter of a stamp that is believed at a date, in seconds since 1970."""
    return LEAST_LIMIT + int(max(0.0, wall_s - EPOCH_S) * WRITES_PER_S)


def check_stamps(entry: Entry, wall_s: float) -> None:
    """Refuse an entry from a peer whose stamps or counts nobody can have reached by this date.

    Raises
    ------
    InvalidMessage
        If they are absurd.
    """
    if isinstance(entry.value, Counters):
        for contribution in entry.value.contributions:
            if any(count > LARGEST_COUNT for count in contribution.counts.values()):
                raise InvalidMessage(f"{entry.key!r} has a count that nobody can have reached")
    if latest_stamp(entry).counter > largest_counter(wall_s):
        raise InvalidMessage(f"{entry.key!r} was written in a future that nobody can have reached")


class Claims:
    """The claims on keys that this device is asked for. Not thread-safe.

    Parameters
    ----------
    lease_s : float
        How long a claim holds.
    max_claims : int
        Most claims at a time; the oldest makes room, at worst something is fetched twice.
    """

    def __init__(self, lease_s: float = CLAIM_LEASE_S, max_claims: int = MOST_CLAIMS) -> None:
        self._lease_s = lease_s
        self._max_claims = max_claims
        self._claims: OrderedDict[str, tuple[NodeId, float]] = OrderedDict()  # in the order in which they end

    def __len__(self) -> int:
        return len(self._claims)

    def claim(self, key: str, claimant: NodeId, now_s: float) -> float:
        """Ask to produce a missing key; a device that asks again keeps its claim, but not for longer.

        Returns
        -------
        float
            0 if the claimant is to produce it; else the seconds for which another device still is.
        """
        while self._claims and next(iter(self._claims.values()))[1] <= now_s:
            self._claims.popitem(last=False)
        holder, ends_s = self._claims.setdefault(key, (claimant, now_s + self._lease_s))
        if len(self._claims) > self._max_claims:
            self._claims.popitem(last=False)
        return 0.0 if holder == claimant else ends_s - now_s

    def delivered(self, key: str) -> None:
        """The key was written: its claim ends."""
        self._claims.pop(key, None)

    def gone(self, claimant: NodeId) -> None:
        """A node went away; the next that asks may take over."""
        for key in [key for key, (holder, _) in self._claims.items() if holder == claimant]:
            del self._claims[key]


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
        self.lock = threading.RLock()
        """Orders the uses of ``stamps`` and ``entries``."""
        limits = StoreLimits(
            memory_bytes=settings.memory_bytes,
            max_keys=settings.max_keys,
            entry_bytes=settings.value_limit_bytes + ENTRY_OVERHEAD_BYTES,
        )
        self.entries = LocalStore(limits, lambda _: Place.FIRST)
        """What is held; its sizes, ``counts``, ``plain`` and ``used`` may be looked at without the lock."""
        self.stamps = LamportClock(incarnation, lambda: date_counter(clock.wall()))
        """Stamps writes."""
        self.lossy = False
        """Entries had to go, or to stay out, for lack of room: others may hold what is missing here."""
        self._claims = Claims(CLAIM_LEASE_S)

    def stamp(self) -> Stamp:
        """A stamp for a new write."""
        with self.lock:
            return self.stamps.next()

    def read(self, key: str) -> Entry | None:
        """The entry of a key."""
        with self.lock:
            return self.entries.get(key, self._clock.monotonic())

    def write(self, entry: Entry, *, displace: bool = True) -> tuple[Entry | None, Refusal | None]:
        """Take in an entry; unless ``displace``, only if there is room.

        Returns
        -------
        (Entry or None, Refusal or None)
            What its writer must know, since its write lost to it; and why the entry was not taken.
        """
        with self.lock:
            known = entry.key in self.entries
            held, refusal = self.entries.merge(entry, self._clock.monotonic(), displace=displace or known)
            if known and refusal is Refusal.FULL:
                self.entries.drop(entry.key)  # better nothing than what is outdated: other replicas have it
            self.lossy = self.lossy or refusal is Refusal.FULL or self.entries.counts.evicted > 0
            if not entry.empty:
                self._claims.delivered(entry.key)
            return unknown_to_writer(entry, held) if held is not None else None, refusal

    def admit(self, message: EntryMessage) -> Entry:
        """Read an entry that a peer sent, and take notice of its stamps.

        Raises
        ------
        InvalidMessage
            If it is none, or absurd.
        """
        entry = entry_from_proto(message, self._clock.monotonic())
        check_stamps(entry, self._clock.wall())
        with self.lock:
            self.stamps.witness(latest_stamp(entry))
        return entry

    def encode(self, entry: Entry) -> EntryMessage:
        """The message of an entry, sent now."""
        return entry_to_proto(entry, self._clock.monotonic())

    def claim(self, key: str, claimant: NodeId) -> int:
        """Claim a missing key: milliseconds to wait for the device that claimed it before, 0 if none did."""
        with self.lock:
            return math.ceil(1000 * self._claims.claim(key, claimant, self._clock.monotonic()))

    def claimant_gone(self, node: NodeId) -> None:
        """A node is gone, and what it claimed with it."""
        with self.lock:
            self._claims.gone(node)

    def keys(self) -> tuple[str, ...]:
        """All keys, deleted ones included."""
        with self.lock:
            self.entries.expire(self._clock.monotonic())
            return self.entries.keys()

    def digests(self, keys: Iterable[str]) -> dict[str, int]:
        """The digests of those of the keys that are here."""
        with self.lock:
            return self.entries.digests(keys)

    def wanted(self, offered: Mapping[str, int]) -> Sequence[str]:
        """Which of the offered entries, by their digests, are not here in this state."""
        mine = self.digests(offered)
        return [key for key, theirs in offered.items() if mine.get(key) != theirs]

    def to_hand_on(self, keys: Iterable[str]) -> list[Entry]:
        """The entries of those of the keys that are here."""
        now_s = self._clock.monotonic()
        with self.lock:
            found = (self.entries.peek(key, now_s) for key in keys)
            return [entry for entry in found if entry is not None]

    def drop(self, digests: Mapping[str, int]) -> int:
        """Forget entries that others hold, unless they have changed since; how many those were."""
        with self.lock:
            unchanged = [k for k, now in self.entries.digests(digests).items() if now == digests[k]]
            return sum(self.entries.drop(key) for key in unchanged)

    def place_by(self, place: Callable[[str], Place]) -> None:
        """Other nodes are there, so other keys are needed here."""
        with self.lock:
            self.entries.place_by(place)


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
