"""What a cache with another approximation would do, judged by the inferences that run anyway.

All lookups pass through a shadow, which keeps what the cache of its candidate would hold. Where the
classifier ran, it tells whether the kept result would have been wrong, by how probable a conflict seemed. At
each price of an error it is known then how much would be served, and how much of that wrongly.

Inferences are no fair sample of the lookups: new keys and keys that conflict run the classifier more often.
But a sequential test draws by chance which served lookup is verified, one in n + 1, with n at most 30. So an
inference weighs as many lookups as it tells about (Horvitz and Thompson, 1952), and none is run for the
shadows. Which keys were seen before is known of all lookups.

What is not corrected: a key that a shadow meets in a served lookup first gets the answer that was given,
until an inference for this key is seen. It is wrong as often as answers are. So candidates other than the
present one look a little worse than they are.
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
"""For each doubling of the probability of a conflict."""
_PRICES = (1e-4, 1.0)
_STEPS = 15
"""Halvings of this interval in which a price is searched."""
_USUAL_PRICE = 0.03


@dataclass(frozen=True, slots=True)
class Sample:
    """Weighted inferences: the lookups that they tell about."""

    lookups: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Sample) -> Sample:
        return Sample(self.lookups + other.lookups, self.squares + other.squares)

    def faded(self, kept: float) -> Sample:
        """Each inference with this part of its weight."""
        return Sample(self.lookups * kept, self.squares * kept * kept)

    def variance(self, share: float) -> float:
        """Of an estimate of this share of the lookups; never 0, so that 0 and 1 are estimates as well."""
        samples = self.lookups * self.lookups / self.squares
        return (max(0.0, share * (1.0 - share)) + 1.0 / samples) / samples


class Tally:
    """How many lookups there were of keys that were known, and how many would have been answered wrongly."""

    def __init__(self) -> None:
        self._known: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
        """By the probability of a conflict, in steps of the `_BINS`-th root of 2."""

    @property
    def known(self) -> float:
        """All of these lookups."""
        return sum(lookups for lookups, _ in self._known.values())

    def note(self, conflict: float, lookups: int, *, wrong: bool) -> None:
        """An inference tells about so many lookups of a key that was known, which conflicts so probably."""
        known = self._known[int(-_BINS * math.log2(conflict))]
        known[0] += lookups
        known[1] += lookups * wrong

    def add(self, other: Tally) -> None:
        """Count what the other one counted."""
        for place, (lookups, wrong) in other._known.items():
            known = self._known[place]
            known[0] += lookups
            known[1] += wrong

    def fade(self, kept: float) -> None:
        """Keep this part of all."""
        for known in self._known.values():
            known[0] *= kept
            known[1] *= kept

    def estimate(self, budget: Budget, lookups: float) -> tuple[float, float, float]:
        """The highest price that the budget affords; served and wrong shares of so many lookups."""
        low, high = _PRICES
        for _ in range(_STEPS):
            price = math.sqrt(low * high)
            low, high = (price, high) if budget.affords(*self.at(price, lookups)) else (low, price)
        return low, *self.at(low, lookups)

    def at(self, price: float, lookups: float) -> tuple[float, float]:
        """Served and wrong shares of so many lookups at a price, verifications taken off."""
        served = wrong = 0.0
        for place, (known, conflicts) in self._known.items():
            of_each = lookups_served(price, 2.0 ** (-(place + 0.5) / _BINS))
            share = of_each / (of_each + 1)
            served += known * share
            wrong += conflicts * share
        return served / lookups, wrong / lookups


class Shadow(Generic[Y]):
    """What the cache of one candidate would hold."""

    def __init__(self, levels: Sequence[int], size: int, ttl_s: float) -> None:
        self.levels = levels
        self.entries: OrderedDict[Hashable, Entry[Y]] = OrderedDict()
        self.recent, self.before = Tally(), Tally()
        """Since the last review, and before that."""
        self.price = _USUAL_PRICE
        self._size, self._ttl_s = size, ttl_s
        self._histories = Histories()

    def note(self, of_all: Sequence[Hashable], answer: Y, tells: int, now_s: float) -> None:
        """A lookup was answered; see `Selection.note`. Which level is used follows `ResultCache.path`."""
        path: list[Entry[Y]] = []
        for number in self.levels:
            key = of_all[number]
            entry = self.entries.get(key)
            if entry is None or entry.expires_s <= now_s:
                self._put(key, answer, tells, now_s)
                return
            self.entries.move_to_end(key)
            path.append(entry)
            if number == self.levels[-1] or not entry.conflicts:
                break
            if self._histories.conflict(entry) <= self.price:
                break
        if tells:
            entry = path[-1]
            agrees = entry.value == answer
            self.recent.note(self._histories.conflict(entry), tells, wrong=not agrees)
            self._histories.learn(entry, agrees=agrees)
            for one in path:
                self._count(one, answer, now_s)

    def _put(self, key: Hashable, answer: Y, tells: int, now_s: float) -> None:
        self.entries.pop(key, None)
        if len(self.entries) >= self._size:
            self.entries.popitem(last=False)
        self.entries[key] = Entry(answer, now_s + self._ttl_s, inferences=int(tells > 0))

    def _count(self, entry: Entry[Y], answer: Y, now_s: float) -> None:
        if not entry.inferences:
            entry.value = answer
        count(entry, answer, agrees=entry.value == answer)
        entry.expires_s = now_s + self._ttl_s
