"""Which cached result answers a lookup, which lookup runs the classifier, and how often answers are wrong.

The cache knows keys and results only. Who asks it also runs the classifier where the cache has no answer, and
tells it the result; so the same object serves a library, a daemon and a simulation.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from nearsight.common.errors import InvalidArgument

K = TypeVar("K", bound=Hashable)
Y = TypeVar("Y")

_Z = 1.96
"""Standard deviations of a one-sided bound with 97.5 % confidence."""


class Refresh(Protocol):
    """When results are verified."""

    def to_serve(self, inferences: int) -> int:
        """How many lookups are served after so many agreeing inferences, before the next one verifies."""


@dataclass(slots=True, eq=False)
class Entry(Generic[Y]):
    """A cached result."""

    value: Y
    to_serve: int
    """Lookups to serve before the next verification."""
    expires_s: float
    inferences: int = 1
    """That agreed, in a row."""
    served: int = 0
    """Lookups since the last inference."""


class WrongHits:
    """How many of the served lookups were wrong, estimated from verifications.

    A verification tells for all lookups that were served since the inference before it: each was wrong as
    probably as this one. So it weighs as much as they are. Verifications counted alike would tell too much of
    fresh results, which are verified often and served little.
    """

    def __init__(self) -> None:
        self._weight = self._squares = self._wrong = 0.0

    def note(self, served: int, *, wrong: bool) -> None:
        """A verification, after so many lookups were served, found another result."""
        self._weight += served
        self._squares += served * served
        self._wrong += served * wrong

    @property
    def share(self) -> float:
        """Share of the served lookups that were wrong; 0 if nothing served was verified yet."""
        return self._wrong / self._weight if self._weight else 0.0

    @property
    def bound(self) -> float:
        """The share is not larger than this with 97.5 % confidence; 1 if nothing served was verified yet.

        Wilson's bound, with as many samples as weigh like these: (sum of weights)^2 / sum of squared weights.
        """
        if not self._weight:
            return 1.0
        n, share = self._weight * self._weight / self._squares, self.share
        spread = _Z * math.sqrt(share * (1.0 - share) / n + _Z * _Z / (4.0 * n * n))
        return min(1.0, (share + _Z * _Z / (2.0 * n) + spread) / (1.0 + _Z * _Z / n))


@dataclass(slots=True)
class Counts:
    """What became of the lookups of a cache so far."""

    served: int = 0
    """Answered with a cached result."""
    missed: int = 0
    """Of a key that was not there, or whose result had expired."""
    verifying: int = 0
    """Of a key that was there and was to be verified."""
    corrections: int = 0
    """Inferences that found another result than the cached one."""
    evictions: int = 0
    """Results that made room for others."""

    @property
    def lookups(self) -> int:
        """All of them."""
        return self.served + self.missed + self.verifying


class ResultCache(Generic[K, Y]):
    """Results by key, with verification.

    Parameters
    ----------
    refresh : Refresh
        When results are verified.
    size : int
        Largest number of results. Of more, the one that was looked up the longest time ago is forgotten.
    ttl_s : float
        A result that was not confirmed for so long is forgotten.
    only : collection of keys, optional
        Keep results of these keys alone: with the most popular ones, the paper's ideal cache.

    Notes
    -----
    Source: approximate-key caching, algorithm 1 (with the schedule that ``refresh`` gives). Not thread-safe.
    Results are compared with ``==``.
    """

    def __init__(
        self, refresh: Refresh, size: int, *, ttl_s: float = math.inf, only: Collection[K] | None = None
    ) -> None:
        if size < 1:
            raise InvalidArgument(f"a cache has room for at least one result, got {size}")
        if not ttl_s > 0:
            raise InvalidArgument(f"the time to live must be positive, got {ttl_s:g} s")
        self._refresh = refresh
        self._size = size
        self._ttl_s = ttl_s
        self._only = only
        # A dict would do, but its first key is slow to find where many before it were removed.
        self._entries: OrderedDict[K, Entry[Y]] = OrderedDict()
        self.counts = Counts()
        self.wrong_hits = WrongHits()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: K, now_s: float) -> Entry[Y] | None:
        """The result that answers this lookup; None if the classifier must run, and `learn` be told."""
        entry = self._entries.get(key)
        if entry is None or entry.expires_s <= now_s:
            self._entries.pop(key, None)
            self.counts.missed += 1
            return None
        self._entries.move_to_end(key)
        if not entry.to_serve:
            self.counts.verifying += 1
            return None
        entry.to_serve -= 1
        entry.served += 1
        self.counts.served += 1
        return entry

    def learn(self, key: K, value: Y, now_s: float) -> None:
        """The classifier gave this result for an input with this key."""
        entry = self._entries.get(key)
        if entry is None:
            self._put(key, value, now_s)
            return
        agrees = entry.value == value
        self.wrong_hits.note(entry.served, wrong=not agrees)
        self.counts.corrections += not agrees
        entry.value = value
        entry.inferences = entry.inferences + 1 if agrees else 1
        entry.to_serve = self._refresh.to_serve(entry.inferences)
        entry.served = 0
        entry.expires_s = now_s + self._ttl_s

    def contradict(self, key: K) -> None:
        """The classifier gave no result for an input with this key: what was kept was wrong, and goes."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.wrong_hits.note(entry.served, wrong=True)
            self.counts.corrections += 1

    def correct(self, key: K, value: Y, now_s: float) -> None:
        """Somebody who knows says that this is right: it answers from now on, verified like a new result."""
        self._entries.pop(key, None)
        self._put(key, value, now_s)

    def invalidate(self, stale: Callable[[K, Y], bool]) -> int:
        """Forget the results for which ``stale`` holds; gives how many."""
        gone = [key for key, entry in self._entries.items() if stale(key, entry.value)]
        for key in gone:
            del self._entries[key]
        return len(gone)

    def _put(self, key: K, value: Y, now_s: float) -> None:
        if self._only is not None and key not in self._only:
            return
        if len(self._entries) >= self._size:
            self._entries.popitem(last=False)
            self.counts.evictions += 1
        self._entries[key] = Entry(value, self._refresh.to_serve(1), now_s + self._ttl_s)
