"""Estimates the effect of a cache with another approximation from the inferences that run anyway.

All lookups pass through a shadow, which stores what the cache of its candidate would hold. Each inference
shows whether the stored result would have been wrong; it is counted by the probability of a conflict. So for
each price of an error, the shares of served and of wrongly served lookups are known.

Inferences are not a fair sample of the lookups: new and conflicting keys run the classifier more often. But a
sequential test selects at random which served lookup is verified, one in n + 1, with n at most 30. So an
inference is weighted by the number of lookups that it represents (Horvitz and Thompson, 1952), and the
shadows need no inferences of their own. Whether a key was seen before is known for all lookups.

One bias is not corrected: if a key first occurs in a served lookup, the shadow stores the answer given, until
an inference for this key occurs. That answer has the usual share of errors. So candidates other than the
current one seem slightly worse than they are.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nearsight.common.result_cache.budget import Budget, Histories, count, lookups_served
from nearsight.common.result_cache.result_cache import Entry

Y = TypeVar("Y")

_BINS = 8
"""Number of bins per doubling of the probability of a conflict."""
_PRICES = (1e-4, 1.0)
_STEPS = 15
"""Number of bisections of this interval in the search for a price."""
_USUAL_PRICE = 0.03


@dataclass(frozen=True, slots=True)
class Sample:
    """A weighted sample of inferences: sum of the lookups they represent, and of the squares."""

    lookups: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.lookups + other.lookups, self.squares + other.squares)

    def decayed(self, kept: float) -> Sample:
        """The sample with each weight multiplied by ``kept``."""
        return Sample(self.lookups * kept, self.squares * kept * kept)

    def variance(self, share: float) -> float:
        """Variance of an estimate of this share of the lookups; positive even for shares of 0 and 1."""
        samples = self.lookups * self.lookups / self.squares
        return (max(0.0, share * (1.0 - share)) + 1.0 / samples) / samples


class Tally:
    """Counts the lookups of known keys, and how many of them would have been answered wrongly."""

    def __init__(self) -> None:
        self._known: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
        """[lookups, wrong] by probability of a conflict, in steps of the `_BINS`-th root of 2."""

    @property
    def known(self) -> float:
        """Total number of lookups of known keys."""
        return sum(lookups for lookups, _ in self._known.values())

    def note(self, conflict: float, lookups: int, *, wrong: bool) -> None:
        """Add an inference that represents ``lookups`` lookups of a known key with this conflict risk."""
        known = self._known[int(-_BINS * math.log2(conflict))]
        known[0] += lookups
        known[1] += lookups * wrong

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for place, (lookups, wrong) in other._known.items():
            known = self._known[place]
            known[0] += lookups
            known[1] += wrong

    def decay(self, kept: float) -> None:
        """Multiply all counts by ``kept``."""
        for known in self._known.values():
            known[0] *= kept
            known[1] *= kept

    def estimate(self, budget: Budget, lookups: float) -> tuple[float, float, float]:
        """The highest price that the budget allows, with the served and wrong shares of ``lookups``."""
        low, high = _PRICES
        for _ in range(_STEPS):
            price = math.sqrt(low * high)
            low, high = (price, high) if budget.allows(*self.at(price, lookups)) else (low, price)
        return low, *self.at(low, lookups)

    def at(self, price: float, lookups: float) -> tuple[float, float]:
        """Served and wrong shares of ``lookups`` at a price, without the verifications."""
        served = wrong = 0.0
        for place, (known, conflicts) in self._known.items():
            of_each = lookups_served(price, 2.0 ** (-(place + 0.5) / _BINS))
            share = of_each / (of_each + 1)
            served += known * share
            wrong += conflicts * share
        return served / lookups, wrong / lookups


class Shadow(Generic[Y]):
    """Simulates the entries of a cache with one candidate."""

    def __init__(self, levels: Sequence[int], size: int, ttl_s: float) -> None:
        self.levels = levels
        self.entries: OrderedDict[Hashable, Entry[Y]] = OrderedDict()
        self.recent, self.before = Tally(), Tally()
        """Counts since the last review, and before it."""
        self.price = _USUAL_PRICE
        self._size, self._ttl_s = size, ttl_s
        self._histories = Histories()

    def note(self, all_keys: Sequence[Hashable], answer: Y, represented: int, now_s: float) -> None:
        """Record an answered lookup; see `Selection.note`. The level is chosen as in `ResultCache.path`."""
        path: list[Entry[Y]] = []
        for number in self.levels:
            key = all_keys[number]
            entry = self.entries.get(key)
            if entry is None or entry.expires_s <= now_s:
                self._put(key, answer, represented, now_s)
                break
            self.entries.move_to_end(key)
            path.append(entry)
            refused = entry.conflicts > 0 and self._histories.conflict(entry) > self.price
            if number == self.levels[-1] or not refused:
                if represented:
                    agrees = entry.value == answer
                    self.recent.note(self._histories.conflict(entry), represented, wrong=not agrees)
                    self._histories.learn(entry, agrees=agrees)
                break
        if represented:
            for one in path:
                self._count(one, answer, now_s)

    def _put(self, key: Hashable, answer: Y, represented: int, now_s: float) -> None:
        self.entries.pop(key, None)
        if len(self.entries) >= self._size:
            self.entries.popitem(last=False)
        self.entries[key] = Entry(answer, now_s + self._ttl_s, inferences=int(represented > 0))

    def _count(self, entry: Entry[Y], answer: Y, now_s: float) -> None:
        if not entry.inferences:
            entry.value = answer
        count(entry, answer, agrees=entry.value == answer)
        entry.expires_s = now_s + self._ttl_s
