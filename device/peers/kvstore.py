"""The key-value store that devices host for each other, as an application sees it (dissertation, 5.4.3).

Values are of three kinds: a single value, a list of items, and counters. Each key has a few replicas, found
by hashing (see `KRoute`). A write is acknowledged when all of them took it; a read asks the first of them.
Whatever is sent twice counts once, and states that were written apart (two halves of a group that meet
again) merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

ITEMS_ADVICE = "a key holds one kind of value; choose another key, or delete this one first"


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
    """

    def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Set the value of a key; of several puts the last wins."""
        raise NotImplementedError

    def get(self, key: str) -> Future[bytes | None]:
        """The value of a key, None if there is none."""
        raise NotImplementedError

    def get_now(self, key: str) -> bytes | None:
        """As `get`, but waits: the fastest way, since this thread receives the answer itself."""
        raise NotImplementedError

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Add an item to the list of a key. Equal items are kept once."""
        raise NotImplementedError

    def remove(self, key: str, item: bytes) -> Future[None]:
        """Take an item out of the list of a key; no matter if it is not in there."""
        raise NotImplementedError

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        """The list of a key, empty if there is none; ``claim``: if empty, this device will produce it."""
        raise NotImplementedError

    def items_now(self, key: str, *, claim: bool = False) -> ItemsRead:
        """As `items`, but waits."""
        raise NotImplementedError

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """Add to the counters of a key.

        Never repeat a merge: if the future fails, the counts are kept and go out with the next merge of the
        key, or in the background.
        """
        raise NotImplementedError

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """The sums of the counters of a key, over all devices; empty if there are none."""
        raise NotImplementedError

    def counts_now(self, key: str) -> Mapping[str, int]:
        """As `counts`, but waits."""
        raise NotImplementedError

    def delete(self, key: str) -> Future[None]:
        """Delete a key, whatever it holds."""
        raise NotImplementedError
