"""Which cached result answers a lookup, which lookup runs the classifier, and how often answers are wrong.

The cache knows keys and results only. Who asks it also runs the classifier where the cache has no answer, and
tells it the result; so the same object serves a library, a daemon and a simulation.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from nearsight.common.errors import InvalidArgument

K = TypeVar("K", bound=Hashable)
Y = TypeVar("Y")

_Z = 1.96
"""Standard deviations of a one-sided bound with 97.5 % confidence."""
_FEW = 5
"""Wrong answers that may be chance, whatever their share."""
_RECENT = 20_000.0
"""Lookups over which recent errors fade to 1 / e."""


@dataclass(slots=True, eq=False)
class Entry(Generic[Y]):
    """A cached result, and what inferences found for its key."""

    value: Y
    expires_s: float
    to_serve: int = 0
    """Lookups to serve before the next verification."""
    stands_for: int = 0
    """Served lookups that the next verification tells about."""
    inferences: int = 0
    """That agreed with the value; those of auto-refresh in a row."""
    conflicts: int = 0
    """Inferences that did not. Auto-refresh starts again instead of counting them."""
    rival: Y | None = None
    rivals: int = 0
    """The last inferences in a row that found another value, and that value."""


class Refresh(Protocol):
    """Which result is kept, and when it is verified."""

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """An inference gave this value for the key of an entry; the first one made the entry.

        Parameters
        ----------
        entry : Entry
            Is changed: its value, its counts, and when it is verified next.
        value : object
            The result.
        lookups : int
            That the inference tells about: itself and those served before it; 0 if it was not asked for.

        Returns
        -------
        bool
            Whether all results must be verified before they are served again.
        """

    def schedule(self, entry: Entry[Any]) -> None:
        """Set when the entry is verified next, by what inferences have found for its key."""

    def refuses(self, entry: Entry[Any]) -> bool:
        """Whether inferences for this key conflict too often to serve one result."""


class WrongHits:
    """How many of the served lookups were wrong, estimated from verifications.

    A verification tells for all lookups that were served since the inference before it: each was wrong as
    probably as this one. So it weighs as much as they are. Verifications counted alike would tell too much of
    fresh results, which are verified often and served little.

    Parameters
    ----------
    memory : float
        Lookups over which the estimate forgets what was to 1 / e; by default it forgets nothing.
    """

    def __init__(self, memory: float = math.inf) -> None:
        self._memory = memory
        self._weight = self._squares = self._wrong = 0.0

    def note(self, served: int, *, wrong: bool) -> None:
        """A verification, after so many lookups were served, found another result."""
        if self._memory < math.inf:
            kept = math.exp(-served / self._memory)
            self._weight, self._wrong = self._weight * kept, self._wrong * kept
            self._squares *= kept * kept
        self._weight += served
        self._squares += served * served
        self._wrong += served * wrong

    @property
    def share(self) -> float:
        """Share of the lookups that were wrong; 0 if nothing is known yet."""
        return self._wrong / self._weight if self._weight else 0.0

    @property
    def bound(self) -> float:
        """The share is not larger than this with 97.5 % confidence; 1 if nothing is known yet."""
        return self._interval()[1]

    @property
    def least(self) -> float:
        """The share is not smaller than this with 97.5 % confidence; 0 if nothing is known yet."""
        return self._interval()[0]

    def exceeds(self, limit: float) -> bool:
        """Whether the share is larger than the limit by more than half, with 97.5 % confidence.

        Half, because a cache that keeps to a budget comes near the limit from both sides. A few wrong answers
        are never enough.
        """
        return self.least > 1.5 * limit and self._samples * self.share >= _FEW

    @property
    def _samples(self) -> float:
        """As many as weigh like these: (sum of weights)^2 / sum of squared weights."""
        return self._weight * self._weight / self._squares if self._weight else 0.0

    def _interval(self) -> tuple[float, float]:
        """Wilson's."""
        if not self._weight:
            return 0.0, 1.0
        n, share = self._samples, self.share
        spread = _Z * math.sqrt(share * (1.0 - share) / n + _Z * _Z / (4.0 * n * n))
        middle, scale = share + _Z * _Z / (2.0 * n), 1.0 + _Z * _Z / n
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


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
        """Among the served lookups, since the beginning."""
        self.recent_errors = WrongHits(_RECENT)
        """Among all lookups, lately: those that ran the classifier were right."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

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
        self.counts.served += 1
        return entry

    def path(self, keys: Iterable[K], now_s: float) -> list[K]:
        """Of keys of one input, coarse to fine: those whose results conflict too often, and the next one.

        The last key is the one to `find` and to `learn`.
        """
        path = []
        for key in keys:
            path.append(key)
            entry = self._entries.get(key)
            if entry is None or entry.expires_s <= now_s or not self._refresh.refuses(entry):
                break
            self._entries.move_to_end(key)
        return path

    def learn(self, key: K, value: Y, now_s: float, coarser: Iterable[K] = ()) -> int:
        """The classifier gave this result for an input with this key, and with these coarser ones.

        Returns
        -------
        int
            Lookups that this one tells about: itself and those served before it; 0 if it was not asked for.
        """
        entry = self._entries.get(key)
        lookups = 1
        if entry is None:
            self.recent_errors.note(1, wrong=False)
            self._put(key, value, now_s)
        else:
            lookups = self._verify(entry, value)
            entry.expires_s = now_s + self._ttl_s
        for one in coarser:
            if (entry := self._entries.get(one)) is not None:
                self._refresh.inferred(entry, value, 0)
        return lookups

    def adopt(self, found: Iterable[tuple[K, Entry[Y]]]) -> None:
        """Keep what inferences found elsewhere, the latest last; what is kept for a key already stays."""
        for key, entry in found:
            if key in self._entries:
                self._entries.move_to_end(key)
            else:
                self._refresh.schedule(self._make_room(key, replace(entry)))

    def contradict(self, key: K) -> None:
        """The classifier gave no result for an input with this key: what was kept was wrong, and goes."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._verify(entry, None)

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
        if self._only is None or key in self._only:
            self._refresh.inferred(self._make_room(key, Entry(value, now_s + self._ttl_s)), value, 1)

    def _make_room(self, key: K, entry: Entry[Y]) -> Entry[Y]:
        if len(self._entries) >= self._size:
            self._entries.popitem(last=False)
            self.counts.evictions += 1
        self._entries[key] = entry
        return entry

    def _verify(self, entry: Entry[Y], value: Y | None) -> int:
        """An inference for the key of this entry gave this value; gives the lookups that it tells about."""
        agrees = entry.value == value
        served = 0 if entry.to_serve else entry.stands_for
        self.wrong_hits.note(served, wrong=not agrees)
        self.recent_errors.note(served, wrong=not agrees)
        self.recent_errors.note(1, wrong=False)
        self.counts.corrections += not agrees
        lookups = 0 if entry.to_serve else served + 1
        if self._refresh.inferred(entry, value, lookups):
            for one in self._entries.values():
                one.to_serve = one.stands_for = 0
        return lookups
