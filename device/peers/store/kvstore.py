"""The key-value store that devices host for each other, as an application sees it (dissertation, 5.4.3).

Values are of three kinds: a single value, a list of items, and counters. Each key has a few replicas, found
by hashing (see `KRoute`). A write is acknowledged when all of them took it; a read asks the first of them.
Whatever is sent twice counts once, and states that were written apart (two halves of a group that meet
again) merge.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

from nearsight.common.background.futures import failed, then
from nearsight.common.errors import InternalError, InvalidArgument, NearsightError
from nearsight.device.peers.routing.cluster_view import View
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.pending_increments import PendingIncrements
from nearsight.device.peers.store.quorum_read import QuorumRead
from nearsight.device.peers.store.quorum_write import QuorumWrite
from nearsight.device.peers.store.replica_calls import StoreCalls
from nearsight.device.peers.store.service import NodeAnswer
from nearsight.device.peers.store.shared_store import LARGEST_COUNT, SharedStore
from nearsight.device.peers.store.stamps import Stamp
from nearsight.device.peers.store.values import Counters, Entry, ItemList, ListItem, Register, check_key

MOST_REPETITIONS = 3
"""How often a write is repeated above later stamps that it met. Once is enough to be later than whatever was
written before it began; what it meets then was written at the same time, and may as well be the later one."""

_Judge = Callable[[Entry], bool]


@dataclass(frozen=True, slots=True)
class ItemsRead:
    """What a list held.

    Parameters
    ----------
    items : tuple of bytes
        Oldest first.
    wait_ms : int
        If there are none and the caller claimed the key: how long to wait for somebody else who produces
        them already; 0: nobody does, so that it is the caller who should.
    """

    items: tuple[bytes, ...]
    wait_ms: int = 0


class KVStore:
    """The store as seen from one device. Thread-safe; nothing but the ``_now`` calls waits.

    All futures fail with a `NearsightError`: `InvalidArgument` for a key, value or kind of value that cannot
    be, `Overloaded` if the devices are too busy or full, `Unavailable` or `DeadlineExceeded` if too few of
    them answered. Their callbacks run on threads of the network and must not wait.

    A key holds one kind of value, and the last write decides which: a value put over a list ends the list.

    Parameters
    ----------
    client : StoreClient
        Reaches the replicas.
    shared : SharedStore
        Stamps the writes.
    settings : PeerSettings
        Limits.
    rng : random.Random
        Names contributors to counters.
    """

    def __init__(
        self, client: StoreClient, shared: SharedStore, settings: PeerSettings, rng: random.Random
    ) -> None:
        self._client = client
        self._shared = shared
        self._clock = client.clock
        self._cluster = client.own.cluster
        self._counts = client.counts
        self._plain, self._note_use = shared.plain, shared.note_use
        self._limit_bytes = settings.value_limit_bytes
        self._contributions = PendingIncrements(shared.stamps, rng, settings.max_keys)

    def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Set the value of a key; of several puts the last wins."""

        def entry() -> Entry:
            return Entry(key, value=Register(bytes(value), self._shared.stamp()), expires_s=self._end(ttl_s))

        # Whatever the replicas know better is a later write: this one, later still, is repeated above it.
        return self._write(key, value, entry, _never)

    def get(self, key: str) -> Future[bytes | None]:
        """The value of a key, None if there is none."""
        return then(self._read(key), _value_of)

    def get_now(self, key: str) -> bytes | None:
        """As `get`, but waits: the fastest way, since this thread receives the answer itself.

        For small values: one that takes longer than ``hedge_s`` to arrive is asked for once more; take `get`.
        """
        # This device's own keys first, in few steps: most of their cost is code that no cache holds.
        mine = self._client.mine
        if mine.view is self._cluster.synchronised_view and (mine.everything or key in mine.keys):
            value = self._plain.get(key)
            if value is not None:
                self._note_use(key)
                self._counts.reads += 1
                self._counts.own_reads += 1
                return value
        return _value_of(self._read_now(key))

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Add an item to the list of a key. Equal items are kept once."""

        def entry() -> Entry:
            added = ListItem(bytes(item), self._shared.stamp())
            return Entry(key, value=ItemList((added,)), expires_s=self._end(ttl_s))

        return self._write(
            key, item, entry, lambda stamp: lambda newer: newer.cleared < stamp and not _removed(newer, item)
        )

    def remove(self, key: str, item: bytes) -> Future[None]:
        """Take an item out of the list of a key; no matter if it is not in there."""

        def entry() -> Entry:
            return Entry(key, value=ItemList((ListItem(bytes(item), self._shared.stamp(), removed=True),)))

        return self._write(
            key, item, entry, lambda stamp: lambda newer: newer.cleared >= stamp or _removed(newer, item)
        )

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        """The list of a key, empty if there is none; ``claim``: if empty, this device will produce it."""
        return then(self._read(key, claim=claim), _items_of)

    def items_now(self, key: str, *, claim: bool = False) -> ItemsRead:
        """As `items`, but waits."""
        return _items_of(self._read_now(key, claim=claim))

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """Add to the counters of a key.

        Never repeat a merge: if the future fails, the counts are kept and go out with the next merge of the
        key, or in the background.
        """
        done: Future[None] = Future()
        try:
            check_key(key)
            for name, count in counts.items():
                check_key(name, "counter")
                if not 0 <= count < LARGEST_COUNT:
                    raise InvalidArgument(f"{count} cannot be added to a counter")
            with self._shared.lock:
                now_s = self._clock.monotonic()
                entry = self._contributions.add(key, counts, self._end(ttl_s), now_s)
        except NearsightError as error:
            done.set_exception(error)
        else:
            self._contribute(entry, done)
        return done

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """The sums of the counters of a key, over all devices; empty if there are none."""
        return then(self._read(key), _counts_of)

    def counts_now(self, key: str) -> Mapping[str, int]:
        """As `counts`, but waits."""
        return _counts_of(self._read_now(key))

    def delete(self, key: str) -> Future[None]:
        """Delete a key, whatever it holds."""
        done: Future[None] = Future()

        def written(future: Future[Sequence[Entry]]) -> None:
            error = future.exception()
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def clear(read: Future[NodeAnswer]) -> None:
            # Reading has moved this device's clock past everything that is to be deleted.
            error = read.exception()
            if error is not None:
                done.set_exception(error)
                return
            self._client.write(Entry(key, cleared=self._shared.stamp())).add_done_callback(written)

        self._read(key).add_done_callback(clear)
        return done

    def resend(self) -> None:
        """Send counts again that nobody acknowledged; the node calls this now and then."""
        with self._shared.lock:
            keys = self._contributions.unacknowledged()
            entries = [self._contributions.current(key) for key in keys]
        for entry in entries:
            if entry is not None:
                self._contribute(entry, Future())

    def _read(self, key: str, *, claim: bool = False) -> Future[NodeAnswer]:
        try:
            check_key(key)
        except InvalidArgument as error:
            return failed(error)
        return self._client.read(key, claim=claim)

    def _read_now(self, key: str, *, claim: bool = False) -> NodeAnswer:
        check_key(key)
        return self._client.read_now(key, claim=claim)

    def _end(self, ttl_s: float | None) -> float | None:
        return None if ttl_s is None else self._clock.monotonic() + ttl_s

    def _write(
        self, key: str, value: bytes, make: Callable[[], Entry], judge: Callable[[Stamp], _Judge]
    ) -> Future[None]:
        """Write what ``make`` makes until ``judge``, given its stamp, is content with what replicas know."""
        done: Future[None] = Future()
        try:
            check_key(key)
            if len(value) > self._limit_bytes:
                raise InvalidArgument(
                    f"the value of {key!r} has {len(value)} bytes, the limit is {self._limit_bytes}",
                    advice="share who holds it instead, or raise value_limit_bytes on all devices",
                )
        except InvalidArgument as error:
            done.set_exception(error)
            return done

        def attempt(repetitions: int) -> None:
            entry = make()
            stands = judge(_stamp_of(entry))

            def written(future: Future[Sequence[Entry]]) -> None:
                error = future.exception()
                if error is not None:
                    done.set_exception(error)
                elif repetitions == 0 or all(stands(newer) for newer in future.result()):
                    done.set_result(None)
                else:
                    attempt(repetitions - 1)

            self._client.write(entry).add_done_callback(written)

        attempt(MOST_REPETITIONS)
        return done

    def _contribute(self, entry: Entry, done: Future[None]) -> None:
        key = entry.key

        def written(future: Future[Sequence[Entry]]) -> None:
            error = future.exception()
            if error is not None:
                done.set_exception(error)
                return
            cleared = max((newer.cleared for newer in future.result()), default=Stamp(0, 0))
            with self._shared.lock:
                again = None
                if cleared >= _stamp_of(entry):
                    again = self._contributions.cleared(key, cleared)
                else:
                    self._contributions.acknowledged(key, entry)
            if again is None:
                done.set_result(None)
            else:
                self._contribute(again, done)

        self._client.write(entry).add_done_callback(written)


def _stamp_of(entry: Entry) -> Stamp:
    match entry.value:
        case Register(stamp=stamp):
            return stamp
        case ItemList(items):
            return items[0].stamp
        case Counters(contributions):
            return contributions[0].began
        case _:
            raise InternalError("a write without a value has no stamp")


def _never(stamp: Stamp) -> _Judge:  # noqa: ARG001
    return lambda _: False


def _removed(entry: Entry, item: bytes) -> bool:
    """Whether somebody took the item out of the list, as far as the entry tells."""
    value = entry.value
    return isinstance(value, ItemList) and any(each.removed for each in value.items if each.value == item)


def _value_of(answer: NodeAnswer) -> bytes | None:
    match answer.entry.value if answer.entry is not None else None:
        case None:
            return None
        case Register(value):
            return value
        case _:
            raise _other_kind(answer, "no single value")


def _items_of(answer: NodeAnswer) -> ItemsRead:
    match answer.entry.value if answer.entry is not None else None:
        case None:
            return ItemsRead((), answer.wait_ms)
        case ItemList() as value:
            items = value.values()
            return ItemsRead(items, 0 if items else answer.wait_ms)
        case _:
            raise _other_kind(answer, "no list")


def _counts_of(answer: NodeAnswer) -> Mapping[str, int]:
    match answer.entry.value if answer.entry is not None else None:
        case None:
            return {}
        case Counters() as value:
            return value.totals()
        case _:
            raise _other_kind(answer, "no counters")


def _other_kind(answer: NodeAnswer, what: str) -> InvalidArgument:
    key = answer.entry.key if answer.entry is not None else ""
    return InvalidArgument(f"{key!r} holds {what}", advice="a key holds one kind of value: use another key")


_REMEMBERED_KEYS = 4096


@dataclass(slots=True)
class LocalReplicaKeys:
    """Keys that a device is known to be a replica of, as long as it is synchronised in this view."""

    view: View | None
    everything: bool
    keys: set[str] = field(default_factory=set)


class StoreClient(StoreCalls):
    """Reads and writes of one device. Thread-safe; parameters as of `StoreCalls`."""

    @cached_property
    def mine(self) -> LocalReplicaKeys:
        """Replaced as a whole when others are there; the first is of nobody."""
        return LocalReplicaKeys(None, everything=False)

    def read(self, key: str, *, claim: bool) -> Future[NodeAnswer]:
        """What the nodes say about a key. The future fails with a `NearsightError`."""
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            at_once: Future[NodeAnswer] = Future()
            at_once.set_result(known)
            return at_once
        course = QuorumRead(self, key, claim=claim)
        course.begin()
        return course.future

    def read_now(self, key: str, *, claim: bool) -> NodeAnswer:
        """As `read`, but waits.

        Raises
        ------
        NearsightError
            If no node answered.
        """
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            return known
        course = QuorumRead(self, key, claim=claim)
        answer = course.ask_first()
        return answer if answer is not None else course.future.result()

    def _known_here(self, key: str, *, claim: bool) -> NodeAnswer | None:
        """What this device holds itself, if it is a replica of the key and has been told all writes of it."""
        entry = self.own.shared.read(key)
        if entry is None or (claim and entry.empty):
            return None
        cluster, replicas = self.own.cluster, self.settings.replicas
        view = cluster.view
        if not cluster.synchronised(view.digest):
            return None
        if len(view.nodes) > replicas and self.route.own not in self.route.ranking(key, view)[:replicas]:
            return None
        self.counts.own_reads += 1
        self._note_mine(view, key)
        return NodeAnswer(entry, synchronised=True)

    def _note_mine(self, view: View, key: str) -> None:
        if self.mine.view is not view or len(self.mine.keys) >= _REMEMBERED_KEYS:
            self.mine = LocalReplicaKeys(view, everything=len(view.nodes) <= self.settings.replicas)
        self.mine.keys.add(key)

    def write(self, entry: Entry) -> Future[Sequence[Entry]]:
        """Write an entry to its replicas. The future holds what they know that the writer did not."""
        self.counts.writes += 1
        course = QuorumWrite(self, entry)
        course.begin()
        return course.future
