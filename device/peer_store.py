"""The key-value store that devices nearby host together, for applications: `Recognizer.store`."""

from __future__ import annotations

import copy
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TypeVar
from urllib.parse import quote
from weakref import ref

from nearsight.common.background.futures import then
from nearsight.common.errors import InvalidArgument, NearsightError
from nearsight.device.callback_thread import Callback, Job, running_loop
from nearsight.device.forks import check_process
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.peer import Peer
from nearsight.device.peers.store.values import MAX_KEY_BYTES

A = TypeVar("A")
Watcher = Callback[tuple[Peer, ...]]
Deliver = Callable[[Job, AbstractEventLoop | None], None]
LONGEST_TTL_S = 366 * 86_400.0


class PeerStore:
    """Shared storage of the devices nearby: values, lists and counters by key. Thread-safe.

    Every call except `get_blocking` returns a `concurrent.futures.Future` at once: wait for ``result()``, or
    await ``asyncio.wrap_future(future)``. It completes within about twice ``PeerSettings.read_timeout_s``,
    with a result or a `NearsightError`: `InvalidArgument` if the key is empty or too long, the value too
    large, or the key holds another kind of value; `Overloaded` if the devices are full or too busy;
    `Unavailable` or `DeadlineExceeded` if too few of them answered; `Cancelled` once the recognizer is
    closed. Callbacks that are added to the future run on network threads and must not block.

    A write is acknowledged when all present replicas of the key have stored it (``PeerSettings.replicas``, by
    default 2). A replica that is full is skipped: the value then has fewer copies. Writes of separated groups
    are merged when the groups connect again. The application's keys are separate from those of the SDK and of
    other catalogues. A key holds one kind of value.

    Parameters
    ----------
    node : PeerNode
        This device's node.
    catalogue : str
        Catalogue of the application.
    deliver : callable
        Runs callbacks, one after another, as `CallbackThread.submit`.
    """

    def __init__(self, node: PeerNode, catalogue: str, deliver: Deliver) -> None:
        self._node = node
        self._process = os.getpid()
        self._prefix = f"app/{quote(catalogue, safe=' ')}/"
        self._deliver = deliver
        self._watchers: dict[object, tuple[Watcher, AbstractEventLoop | None]] = {}
        # A weak reference: the threads of the node must not keep a recognizer that nobody uses any more.
        store = ref(self)
        node.watch(lambda: one._changed() if (one := store()) is not None else None)

    def put(self, key: str, value: bytes | str, *, ttl_s: float | None = None) -> Future[None]:
        """Set the value of a key; of several puts the last one counts.

        Parameters
        ----------
        key : str
            Up to 512 bytes in UTF-8, less 5 and the catalogue's name (percent-encoded).
        value : bytes or str
            Text is stored as UTF-8. At most ``PeerSettings.value_limit_bytes``.
        ttl_s : float, optional
            Seconds after which the key is deleted with all its content. Each further write of the key except
            `remove` replaces this time. None: the key stays as long as there are devices.

        Raises
        ------
        TypeError, ValueError
            If the value is neither bytes nor text, or ``ttl_s`` is not between 0 and a year; this also
            applies to the methods below.
        """
        return self._outcome(key, self._node.store.put(self._key(key), _bytes(value), ttl_s=_checked(ttl_s)))

    def get(self, key: str) -> Future[bytes | None]:
        """The value of a key; None if there is none."""
        return self._outcome(key, self._node.store.get(self._key(key)))

    def get_blocking(self, key: str) -> bytes | None:
        """As `get`, but waits: fastest for small values, because this thread receives the answer itself.

        Raises
        ------
        NearsightError
            As the future of `get`.
        """
        try:
            return self._node.store.get_blocking(self._key(key))
        except NearsightError as error:
            raise self._with_own_key(key, error) from error

    def append(self, key: str, item: bytes | str, *, ttl_s: float | None = None) -> Future[None]:
        """Add an item to the list of a key. Equal items are stored once; only the latest 256 are kept."""
        return self._outcome(
            key, self._node.store.append(self._key(key), _bytes(item), ttl_s=_checked(ttl_s))
        )

    def remove(self, key: str, item: bytes | str) -> Future[None]:
        """Remove an item from the list of a key; no error if it is not in the list."""
        return self._outcome(key, self._node.store.remove(self._key(key), _bytes(item)))

    def items(self, key: str) -> Future[tuple[bytes, ...]]:
        """The list of a key, oldest first; empty if there is none."""
        return self._outcome(key, then(self._node.store.items(self._key(key)), lambda read: read.items))

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """Add to the named counters of a key. Each addition counts exactly once.

        Never repeat a merge: if the future fails, the counts are stored and sent again in the background,
        unless this device deletes the key or writes another kind of value. Counts above the limits
        (`InvalidArgument`) are refused at once and never count.
        Pass the same ``ttl_s`` to all additions to a key. Otherwise counts that expired return with the next
        addition of a device that passed a longer time.

        Raises
        ------
        TypeError, ValueError
            If a name is not text or a count is not an integer; also as `put`.
        """
        return self._outcome(key, self._node.store.merge(self._key(key), counts, ttl_s=_checked(ttl_s)))

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """The sums of the counters of a key over all devices; empty if there are none."""
        return self._outcome(key, self._node.store.counts(self._key(key)))

    def delete(self, key: str) -> Future[None]:
        """Delete a key with all its content."""
        return self._outcome(key, self._node.store.delete(self._key(key)))

    def peers(self) -> tuple[Peer, ...]:
        """The devices nearby, without this one."""
        return self._node.peers()

    def watch(self, changed: Watcher) -> Callable[[], None]:
        """Call ``changed`` with the devices nearby: once soon, and after each join, leave or address change.

        It is called on the callback thread of the `Recognizer`, like the callbacks of `Recognizer.recognize`.

        Returns
        -------
        callable
            Ends the watch.
        """
        if not callable(changed):
            raise TypeError(f"changed must be callable, not {type(changed).__name__}")
        watch, loop = object(), running_loop()
        self._watchers[watch] = changed, loop
        self._deliver(partial(self._notify, watch), loop)

        def end() -> None:
            self._watchers.pop(watch, None)

        return end

    def _changed(self) -> None:
        for watch, (_, loop) in list(self._watchers.items()):
            self._deliver(partial(self._notify, watch), loop)

    def _notify(self, watch: object) -> object:
        known = self._watchers.get(watch)
        return known[0](self.peers()) if known else None  # the watch may have ended in the meantime

    def _outcome(self, key: str, call: Future[A]) -> Future[A]:
        """The outcome of a call of the store; an error names the application's key."""
        return then(call, lambda result: result, partial(self._with_own_key, key))

    def _with_own_key(self, key: str, error: BaseException) -> BaseException:
        """The error with the application's key, and the limit of its length, in place of the store's."""
        length, limit = len(key.encode(errors="replace")), MAX_KEY_BYTES - len(self._prefix)
        if isinstance(error, InvalidArgument) and length > limit:
            return InvalidArgument(
                f"a key of this catalogue must have 1 to {limit} bytes, got {length}",
                advice="use a shorter key, for example a hash of it",
            )
        if isinstance(error, NearsightError):
            error = copy.copy(error)
            error.message = error.message.replace(repr(self._prefix + key), repr(key))
        return error

    def _key(self, key: str) -> str:
        check_process(self._process, "store")
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {type(key).__name__}")
        return self._prefix + key if key else key  # an empty key is refused later


def _bytes(value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            f"a value is bytes or text, not {type(value).__name__}: json.dumps() makes text of others"
        )
    return bytes(value)


def _checked(ttl_s: float | None) -> float | None:
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_TTL_S:
        raise ValueError(f"ttl_s must be above 0 and at most {LONGEST_TTL_S:g} seconds, got {ttl_s}")
    return ttl_s
