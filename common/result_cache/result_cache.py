"""A cache of results by key: which lookups are served or verified, and how many answers are wrong.

The cache handles only keys and results. The caller runs the classifier if the cache has no answer, and
reports the result. So the same class serves a library, a daemon and a simulation.
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
_MIN_WRONG = 5
"""Minimum number of wrong answers for an alarm; fewer may be chance at any share."""
_RECENT = 20_000.0
"""Number of lookups after which recent errors have decayed to 1 / e."""


@dataclass(slots=True, eq=False)
class Entry(Generic[Y]):
    """A cached result, with the statistics of inferences for its key."""

    value: Y
    expires_s: float
    to_serve: int = 0
    """Remaining lookups to serve before the next verification."""
    represented: int = 0
    """Number of served lookups that the next verification represents."""
    due: bool = False
    """Whether a lookup was selected for verification. Other inferences for the key do not represent the
    served lookups."""
    inferences: int = 0
    """Inferences that agreed with the value; with auto-refresh, only consecutive ones."""
    conflicts: int = 0
    """Inferences that did not agree. Auto-refresh does not count them but restarts."""
    rival: Y | None = None
    rivals: int = 0
    """Another value found by the last inferences, and their number in a row."""


class Refresh(Protocol):
    """Policy that decides which result is kept and when it is verified."""

    def inferred(self, entry: Entry[Any], value: object, lookups: int) -> bool:
        """Update an entry with the value of an inference; the first inference creates the entry.

        Parameters
        ----------
        entry : Entry
            Updated: its value, its counts, and its next verification.
        value : object
            The result of the inference.
        lookups : int
            Number of lookups that the inference represents: itself and, if it was due, those served before
            it; 0 if it counts for another entry.

        Returns
        -------
        bool
            Whether all results must be verified before they are served again.
        """

    def schedule(self, entry: Entry[Any]) -> None:
        """Set the next verification of the entry from the statistics of its inferences."""

    def refuses(self, entry: Entry[Any]) -> bool:
        """Whether inferences for this key conflict too often to serve one result."""


class WrongHits:
    """Estimates how many of the served lookups were wrong, from verifications.

    A verification represents all lookups served since the previous inference; each of them was wrong with the
    same probability. So it is weighted by their number. With equal weights, new results would be
    overrepresented: they are verified often and served little.

    Parameters
    ----------
    memory : float
        Number of lookups after which an observation has decayed to 1 / e; by default there is no decay.
    """

    def __init__(self, memory: float = math.inf) -> None:
        self._memory = memory
        self._weight = self._squares = self._wrong = 0.0

    def note(self, served: int, *, wrong: bool) -> None:
        """Record a verification after ``served`` lookups; ``wrong`` if it found another result."""
        if self._memory < math.inf:
            kept = math.exp(-served / self._memory)
            self._weight, self._wrong = self._weight * kept, self._wrong * kept
            self._squares *= kept * kept
        self._weight += served
        self._squares += served * served
        self._wrong += served * wrong

    @property
    def share(self) -> float:
        """Share of the lookups that were wrong; 0 without verifications."""
        return self._wrong / self._weight if self._weight else 0.0

    @property
    def bound(self) -> float:
        """Upper bound of the share with 97.5 % confidence; 1 without verifications."""
        return self._interval()[1]

    @property
    def least(self) -> float:
        """Lower bound of the share with 97.5 % confidence; 0 without verifications."""
        return self._interval()[0]

    def exceeds(self, limit: float) -> bool:
        """Whether the share is larger than 1.5 times the limit, with 97.5 % confidence.

        The factor is needed because a cache that follows a budget varies around the limit. A few wrong
        answers are never enough.
        """
        return self.least > 1.5 * limit and self._samples * self.share >= _MIN_WRONG

    @property
    def _samples(self) -> float:
        """Effective sample size: (sum of weights)^2 / sum of squared weights."""
        return self._weight * self._weight / self._squares if self._weight else 0.0

    def _interval(self) -> tuple[float, float]:
        """Wilson score interval."""
        if not self._weight:
            return 0.0, 1.0
        n, share = self._samples, self.share
        spread = _Z * math.sqrt(share * (1.0 - share) / n + _Z * _Z / (4.0 * n * n))
        middle, scale = share + _Z * _Z / (2.0 * n), 1.0 + _Z * _Z / n
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


@dataclass(slots=True)
class Counts:
    """Number of lookups of a cache by outcome."""

    served: int = 0
    """Answered with a cached result."""
    missed: int = 0
    """The key had no result, or an expired one."""
    verifying: int = 0
    """The key had a result that was due for verification."""
    corrections: int = 0
    """Inferences that found another result than the cached one."""
    evictions: int = 0
    """Results that were evicted."""

    @property
    def lookups(self) -> int:
        """Total number of lookups."""
        return self.served + self.missed + self.verifying


class ResultCache(Generic[K, Y]):
    """Results by key, with verification.

    Parameters
    ----------
    refresh : Refresh
        Schedule of verifications.
    size : int
        Maximum number of results; the least recently used one is evicted.
    ttl_s : float
        Time after which a result that was not confirmed is deleted [s].
    only : collection of keys, optional
        Keys whose results are kept; with the most popular keys, this is the paper's ideal cache.

    Notes
    -----
    Source: approximate-key caching, algorithm 1 (with the schedule of ``refresh``). Not thread-safe. Results
    are compared with ``==``.
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
        # Not a plain dict, which finds its first key slowly after many removals from its front.
        self._entries: OrderedDict[K, Entry[Y]] = OrderedDict()
        self.counts = Counts()
        self.wrong_hits = WrongHits()
        """Errors among the served lookups, since the start."""
        self.recent_errors = WrongHits(_RECENT)
        """Recent errors among all lookups; those that ran the classifier count as correct."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def find(self, key: K, now_s: float) -> Entry[Y] | None:
        """The entry that answers this lookup; None if the classifier must run and report to `learn`."""
        entry = self._entries.get(key)
        if entry is None or entry.expires_s <= now_s:
            self._entries.pop(key, None)
            self.counts.missed += 1
            return None
        self._entries.move_to_end(key)
        if not entry.to_serve:
            entry.due = True
            self.counts.verifying += 1
            return None
        entry.to_serve -= 1
        self.counts.served += 1
        return entry

    def path(self, keys: Iterable[K], now_s: float) -> list[K]:
        """The keys of one input, coarse to fine, as far as results conflict too often, and the next one.

        The last key is the one for `find` and `learn`.
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
        """Store the classifier's result for an input with this key; existing coarser entries learn from it.

        Returns
        -------
        int
            Number of lookups that this inference represents: itself and, if it was due, those served before
            it.
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
                entry.expires_s = now_s + self._ttl_s
        return lookups

    def adopt(self, found: Iterable[tuple[K, Entry[Y]]]) -> None:
        """Copy entries from elsewhere, the latest last; existing entries are kept."""
        for key, entry in found:
            if key in self._entries:
                self._entries.move_to_end(key)
            else:
                self._refresh.schedule(self._make_room(key, replace(entry)))

    def contradict(self, key: K) -> None:
        """Remove the result of this key, because the classifier found none for an input with this key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._verify(entry, None)

    def correct(self, key: K, value: Y, now_s: float) -> None:
        """Replace the result of this key by a correct one, which is then verified like a new result."""
        self._entries.pop(key, None)
        self._put(key, value, now_s)

    def invalidate(self, stale: Callable[[Y], bool] = lambda _: True) -> int:
        """Delete the results for which ``stale`` returns True, by default all; returns their number."""
        gone = [key for key, entry in self._entries.items() if stale(entry.value)]
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
        """Record an inference for the key of this entry; returns the number of lookups that it represents."""
        agrees = entry.value == value
        served = entry.represented if entry.due else 0
        self.wrong_hits.note(served, wrong=not agrees)
        self.recent_errors.note(served, wrong=not agrees)
        self.recent_errors.note(1, wrong=False)
        self.counts.corrections += not agrees
        all_due = self._refresh.inferred(entry, value, served + 1)
        entry.due = False
        if all_due:
            for one in self._entries.values():
                one.to_serve = one.represented = 0
        return served + 1
