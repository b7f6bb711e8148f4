"""The key-value store that devices host for each other (dissertation, 5.4.3).

There are three kinds of values: a single value, a list of items, and counters. Each key has a few replicas,
found by hashing (see `KRoute`). A write is acknowledged when all of them accepted it, except full ones; a
read asks the first of them. Repeated messages count once. States that were written in separate partitions
merge when the partitions meet again. Applications use it through `nearsight.device.peer_store`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import index
from typing import SupportsIndex, TypeVar

from nearsight.common.background.futures import completed, failed, flat, then
from nearsight.common.errors import InvalidArgument, NearsightError, Unavailable
from nearsight.device.peers.routing.cluster_view import View
from nearsight.device.peers.store.pending_increments import PendingIncrements
from nearsight.device.peers.store.quorum_read import QuorumRead
from nearsight.device.peers.store.quorum_write import QuorumWrite
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.service import NodeAnswer
from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import (
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    check_key,
    last_write,
)

MOST_REPETITIONS = 3
"""Maximum number of repetitions of a write above later stamps that it met. One repetition is enough to be
later than all writes before it began. Writes that it then meets are concurrent with it, and may be ordered
after it; a malicious device invents them."""
_REMEMBERED_KEYS = 4096

A = TypeVar("A")
B = TypeVar("B")
V = TypeVar("V", Register, ItemList, Counters)


@dataclass(frozen=True, slots=True)
class ItemsRead:
    """The answer to a read of a list."""

    items: tuple[bytes, ...]
    """Oldest first."""
    wait_ms: int = 0
    """If there are no items and the caller claimed the key: time to wait for another device that already
    produces them [ms]. 0: no device does, so the caller should."""


@dataclass(slots=True, eq=False)
class _OwnWrite:
    """A write of this device that has not ended."""

    item: bytes | None
    """The item that it adds to a list or removes; None if it sets or deletes the key."""
    superseded: bool = False
    """Whether this device has begun a later write of the item or key, which must prevail."""


@dataclass(slots=True)
class LocalReplicaKeys:
    """Keys for which this device is a replica. Valid while its view of the cluster is unchanged."""

    view: View | None
    all_keys: bool
    keys: set[str] = field(default_factory=set)


class KVStore:
    """The store on one device. Thread-safe; only `get_blocking` blocks.

    All futures fail with a `NearsightError`: `InvalidArgument` for an invalid key, value or kind of value,
    `Overloaded` if the devices are too busy or full, `Unavailable` or `DeadlineExceeded` if too few of them
    answered. Their callbacks run on threads of the network and must not block.

    A key holds one kind of value, and the last write decides which: a value put over a list ends the list.
    Writes of this device take effect in the order of the calls, also if a call does not wait for the previous
    one.

    Parameters
    ----------
    calls : ReplicaCalls
        Calls to the replicas, including this device's own.
    rng : random.Random
        Draws the ids of contributors to counters.
    """

    def __init__(self, calls: ReplicaCalls, rng: random.Random) -> None:
        self._calls = calls
        self._shared = calls.shared
        self._clock = calls.clock
        self._cluster = calls.route.cluster
        self._counts = calls.counts
        self._plain, self._note_use = calls.shared.entries.plain, calls.shared.entries.used.append
        self._increments = PendingIncrements(
            calls.shared.stamps, rng, max(_REMEMBERED_KEYS, calls.settings.max_keys)
        )
        self._local_keys = LocalReplicaKeys(None, all_keys=False)
        self._unfinished: dict[str, dict[bytes | None, _OwnWrite]] = {}
        """The last writes of this device by key and item. Protected by ``shared.lock``."""

    def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Set the value of a key; of several puts the last one wins."""

        def entry() -> Entry:
            return Entry(
                key, value=Register(bytes(value), self._shared.stamp()), expires_s=self._expiry_s(ttl_s)
            )

        # A state that overrides it has a later stamp, so the put is repeated with an even later one.
        return self._write(key, value, entry, lambda *_: False)

    def get(self, key: str) -> Future[bytes | None]:
        """The value of a key, None if there is none."""
        return then(self._read(key), _value_of)

    def get_blocking(self, key: str) -> bytes | None:
        """Like `get`, but blocks. Fastest for small values, as this thread receives the answer itself.

        A value that takes longer than ``hedge_s`` to arrive is requested twice; use `get` for large values.
        """
        # This device's own keys first, in few steps: most of their cost is code outside the CPU caches.
        local = self._local_keys
        if local.view is self._cluster.synchronised_view and (local.all_keys or key in local.keys):
            value = self._plain.get(key)
            if value is not None:
                self._note_use(key)
                self._counts.reads += 1
                self._counts.own_reads += 1
                return value
        self._check(key)
        self._counts.reads += 1
        answer = self._local_answer(key, claim=False)
        if answer is None:
            read = QuorumRead(self._calls, key, claim=False)
            answer = read.ask_first() or read.future.result()
        return _value_of(answer)

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Add an item to the list of a key. Equal items are kept once."""

        def entry() -> Entry:
            added = ListItem(bytes(item), self._shared.stamp())
            return Entry(key, value=ItemList((added,)), expires_s=self._expiry_s(ttl_s))

        def prevails(newer: Entry, stamp: Stamp) -> bool:
            return newer.cleared < stamp and not _removed(newer, item)

        return self._write(key, item, entry, prevails)

    def remove(self, key: str, item: bytes) -> Future[None]:
        """Remove an item from the list of a key; no error if it is not in the list."""

        def entry() -> Entry:
            return Entry(key, value=ItemList((ListItem(bytes(item), self._shared.stamp(), removed=True),)))

        def prevails(newer: Entry, stamp: Stamp) -> bool:
            return newer.cleared >= stamp or newer.empty

        return self._write(key, item, entry, prevails)

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        """The list of a key, empty if there is none; ``claim``: if empty, this device will produce it."""
        return then(self._read(key, claim=claim), _items_of)

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """Add to the counters of a key.

        Never repeat a merge: if the future fails, the counts are kept and sent with the next merge of the
        key, or in the background, unless this device deletes the key or writes another kind of value. Counts
        above the limits are refused at once and not kept.

        Raises
        ------
        TypeError
            If a name is not text, or a count is not an integer.
        """
        whole = {name: _whole(name, count) for name, count in counts.items()}
        try:
            self._check(key)
            for name, count in whole.items():
                check_key(name, "counter")
                if count < 0:
                    raise InvalidArgument(f"{count} cannot be added to a counter, as it is negative")
            with self._shared.lock:
                now_s = self._clock.monotonic()
                entry = self._increments.add(key, whole, self._expiry_s(ttl_s), now_s)
                write = self._begun(entry)
        except NearsightError as error:
            return failed(error)
        return self._ends(key, write, self._contribute(entry))

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """The sums of the counters of a key, over all devices; empty if there are none."""
        return then(self._read(key), _counts_of)

    def delete(self, key: str) -> Future[None]:
        """Delete a key with any kind of value."""
        with self._shared.lock:
            self._increments.forget(key)
            called = Entry(key, cleared=self._shared.stamp())
            write = self._begun(called)

        def clear(_: NodeAnswer) -> Future[Sequence[Entry]]:
            with self._shared.lock:
                # The read has moved this device's clock past all writes that must be deleted, and also past
                # later ones of this device.
                entry = called if write.superseded else Entry(key, cleared=self._shared.stamp())
            return self._write_entry(entry)

        return self._ends(key, write, then(_and_then(self._read(key), clear), lambda _: None))

    def close(self) -> None:
        """Close the store when this device leaves: unfinished and later operations fail with `Cancelled`."""
        self._calls.close()
        self._local_keys = LocalReplicaKeys(None, all_keys=False)

    def resend(self) -> None:
        """Send unacknowledged counts again; the node calls this every few seconds."""
        with self._shared.lock:
            entries = self._increments.unacknowledged()
        for entry in entries:
            self._contribute(entry)

    def _read(self, key: str, *, claim: bool = False) -> Future[NodeAnswer]:
        try:
            self._check(key)
        except NearsightError as error:
            return failed(error)
        self._counts.reads += 1
        known = self._local_answer(key, claim=claim)
        if known is not None:
            return completed(known)
        read = QuorumRead(self._calls, key, claim=claim)
        read.begin()
        return read.future

    def _local_answer(self, key: str, *, claim: bool) -> NodeAnswer | None:
        """The entry held here, if this device is a replica of the key and its keys are complete."""
        view, route, replicas = self._cluster.view, self._calls.route, self._calls.settings.replicas
        # Evaluated before the entry is read, as in `StoreService.answer`.
        if not self._cluster.synchronised(view.digest):
            return None
        if len(view.nodes) > replicas and route.own not in view.ranking(key)[:replicas]:
            return None
        entry = self._shared.read(key)
        if entry is None or (claim and entry.empty):
            return None
        self._counts.own_reads += 1
        local = self._local_keys
        if local.view is not view or len(local.keys) >= _REMEMBERED_KEYS:
            local = self._local_keys = LocalReplicaKeys(view, all_keys=len(view.nodes) <= replicas)
        local.keys.add(key)
        return NodeAnswer(entry, synchronised=True)

    def _check(self, key: str) -> None:
        self._calls.check_open()
        check_key(key)

    def _expiry_s(self, ttl_s: float | None) -> float | None:
        return None if ttl_s is None else self._clock.monotonic() + ttl_s

    def _write_entry(self, entry: Entry) -> Future[Sequence[Entry]]:
        """Write to the replicas; the future holds the states that override the write."""
        self._counts.writes += 1
        write = QuorumWrite(self._calls, entry)
        write.begin()
        return write.future

    def _write(
        self, key: str, value: bytes, make: Callable[[], Entry], prevails: Callable[[Entry, Stamp], bool]
    ) -> Future[None]:
        """Write ``make()``, and repeat until ``prevails(state, stamp)`` for all states that override it.

        Of unfinished writes of this device, only the last one is repeated.
        """
        limit_bytes = self._calls.settings.value_limit_bytes
        try:
            self._check(key)
            if len(value) > limit_bytes:
                raise InvalidArgument(
                    f"the value of {key!r} has {len(value)} bytes, the limit is {limit_bytes}",
                    advice="share the name of its holder instead, or raise value_limit_bytes on all devices",
                )
        except NearsightError as error:
            return failed(error)

        def attempt(entry: Entry, repetitions: int) -> Future[None]:
            stamp = last_write(entry.value)

            def written(known: Sequence[Entry]) -> Future[None]:
                if repetitions == 0 or all(prevails(newer, stamp) for newer in known):
                    return completed(None)
                with self._shared.lock:
                    if write.superseded:
                        return completed(None)
                    again = make()
                return attempt(again, repetitions - 1)

            return _and_then(self._write_entry(entry), written)

        with self._shared.lock:
            self._increments.forget(key)
            first = make()
            write = self._begun(first)
        return self._ends(key, write, attempt(first, MOST_REPETITIONS))

    def _begun(self, entry: Entry) -> _OwnWrite:
        """Record a write of this device, which supersedes earlier ones. Call it with ``shared.lock`` held."""
        item = entry.value.parts[0].value if isinstance(entry.value, ItemList) else None
        write, unfinished = _OwnWrite(item), self._unfinished.setdefault(entry.key, {})
        for each in tuple(unfinished) if item is None else {item, None} & unfinished.keys():
            unfinished.pop(each).superseded = True
        unfinished[item] = write
        return write

    def _ends(self, key: str, write: _OwnWrite, outcome: Future[None]) -> Future[None]:
        """Forget the write when its outcome is known; returns the outcome."""

        def forget(_: Future[None]) -> None:
            with self._shared.lock:
                if write.superseded:
                    return
                del self._unfinished[key][write.item]
                if not self._unfinished[key]:
                    del self._unfinished[key]

        outcome.add_done_callback(forget)
        return outcome

    def _contribute(self, entry: Entry, repetitions: int = MOST_REPETITIONS) -> Future[None]:
        """Write counts; repeat the write if a deletion that the writer had not received removed them."""

        def written(known: Sequence[Entry]) -> Future[None]:
            cleared = max((newer.cleared for newer in known), default=NEVER)
            with self._shared.lock:
                if cleared < last_write(entry.value):
                    self._increments.acknowledged(entry.key, entry)
                    return completed(None)
                left = self._increments.cleared(entry.key, cleared)
            if left is None:
                return completed(None)
            if repetitions == 0:
                advice = "the counts are sent again later; use another key if this repeats"
                return failed(Unavailable(f"a device deletes {entry.key!r} each time", advice=advice))
            return self._contribute(left, repetitions - 1)

        return _and_then(self._write_entry(entry), written)


def _and_then(first: Future[A], go_on: Callable[[A], Future[B]]) -> Future[B]:
    return flat(then(first, go_on))


def _removed(entry: Entry, item: bytes) -> bool:
    """Whether the entry contains the removal of this item from the list."""
    value = entry.value
    return isinstance(value, ItemList) and any(each.removed for each in value.parts if each.value == item)


def _value_of(answer: NodeAnswer) -> bytes | None:
    register = _held(answer, Register, "no single value")
    return register.value if register is not None else None


def _items_of(answer: NodeAnswer) -> ItemsRead:
    listed = _held(answer, ItemList, "no list")
    items = listed.values() if listed is not None else ()
    return ItemsRead(items, 0 if items else answer.wait_ms)


def _counts_of(answer: NodeAnswer) -> Mapping[str, int]:
    counted = _held(answer, Counters, "no counters")
    return counted.totals() if counted is not None else {}


def _held(answer: NodeAnswer, kind: type[V], otherwise: str) -> V | None:
    """The value of a key; None if there is none."""
    if answer.entry is None or answer.entry.value is None:
        return None
    if isinstance(answer.entry.value, kind):
        return answer.entry.value
    raise InvalidArgument(
        f"{answer.entry.key!r} holds {otherwise}", advice="a key holds one kind of value: use another key"
    )


def _whole(name: str, count: SupportsIndex) -> int:
    if not isinstance(name, str):
        raise TypeError(f"the name of a counter is text, not {type(name).__name__}: {name!r}")
    try:
        return index(count)
    except TypeError:
        raise TypeError(f"the count of {name!r} is not an integer: {count!r}") from None
