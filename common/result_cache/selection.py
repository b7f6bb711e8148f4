"""Which approximations make the keys: chosen from the inferences that run anyway.

Each candidate has a `Shadow`, which tells what a cache with it would serve within the budget, and how much
of that would be wrong. The best one makes the keys, and the cache takes over what inferences found for them.
So a change of the choice costs no inferences.

Once in 10,000 lookups the choice is reviewed. Where the share of known keys changed beyond chance, only what
was seen since the last review counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Generic, TypeVar

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.budget import Budget
from nearsight.common.result_cache.image_keys import PhotoKeys
from nearsight.common.result_cache.result_cache import Entry
from nearsight.common.result_cache.shadow import Sample, Shadow, Tally

X = TypeVar("X")
Y = TypeVar("Y")
Approx = Callable[[X], Hashable]
K = TypeVar("K")
F = TypeVar("F")

_REVIEW = 10_000
"""Lookups between choices; the first ones come after fewer."""
_FIRST = 1_000
_MEMORY = 300_000.0
"""Lookups over which what was seen fades to 1 / e."""
_LEAST_GAIN = 0.01
"""Share of the lookups that another candidate must serve more."""
_Z, _Z_SHIFT = 2.0, 4.0
"""Standard deviations of what chance does: the gain is larger, and what was before a shift is forgotten."""


class Candidates(Generic[X]):
    """Approximations of which a cache chooses, each alone or several coarse to fine.

    Parameters
    ----------
    *candidates : callable, or sequence of them
        Each gives a hashable key of an input; of a sequence, a finer one is used for the keys that conflict.
        The first is used until more is known.

    Raises
    ------
    InvalidArgument
        If there are none, or one gives several keys of an input.
    """

    def __init__(self, *candidates: Approx[X] | Sequence[Approx[X]]) -> None:
        each = [(one,) if callable(one) else tuple(one) for one in candidates]
        if not each or not all(each):
            raise InvalidArgument("there is nothing to choose from", advice="give approximations")
        self.functions = tuple(dict.fromkeys(function for one in each for function in one))
        if any(isinstance(function, PhotoKeys) for function in self.functions):
            raise InvalidArgument("candidates give one key of an input, not alternatives")
        numbers = {function: number for number, function in enumerate(self.functions)}
        self.levels = [tuple(numbers[function] for function in one) for one in each]
        """Of each candidate: the numbers of its functions, coarse to fine."""
        self.names = [", ".join(map(_name, one)) for one in each]


def ladders(*approximations: F) -> Iterator[tuple[F, ...]]:
    """Each of these, given coarse to fine, and all ways to leave some out: candidates."""
    for length in range(1, len(approximations) + 1):
        yield from combinations(approximations, length)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a cache with a candidate would do, as lately seen."""

    name: str
    served: float
    """Share of the lookups, at the price that the budget allows."""
    wrong: float
    """Share of the lookups that would be answered wrongly."""

    @property
    def right(self) -> float:
        """Share of the lookups that are served, and rightly."""
        return self.served - self.wrong


@dataclass(frozen=True, slots=True)
class Choice:
    """Which candidate makes the keys, and why."""

    candidate: int
    name: str
    lookups: int = 0
    """So many had been seen when it was chosen."""
    estimates: tuple[Estimate, ...] = ()
    """Of all candidates, at the last review."""
    gain: float = _LEAST_GAIN
    """Share of the lookups that another one must serve more to be chosen."""


class Selection(Generic[Y]):
    """Chooses the candidate that serves most within a budget, again and again.

    Parameters
    ----------
    candidates : Candidates
    budget : Budget
        What the cache may spend.
    size : int
        Results that the cache holds, and each shadow, too.
    ttl_s : float
        A result that was not confirmed for so long is forgotten.

    Notes
    -----
    Pure; the cache asks for the `levels` to look up, and tells each lookup. A candidate is left when another
    one would serve more by one point and by two standard deviations.
    """

    def __init__(
        self, candidates: Candidates[Any], budget: Budget, size: int, ttl_s: float = math.inf
    ) -> None:
        self._budget = budget
        self._names = candidates.names
        self._shadows = [Shadow[Y](levels, size, ttl_s) for levels in candidates.levels]
        self._lookups, self._next = 0, _FIRST
        self._before, self._recent = Sample(), Sample()
        self.choice = Choice(0, self._names[0])

    def levels(self, of_all: Sequence[K]) -> list[K]:
        """Of what all functions give: that of the chosen ones, coarse to fine."""
        return [of_all[number] for number in self._shadows[self.choice.candidate].levels]

    def note(self, of_all: Sequence[Hashable], answer: Y, tells: int, now_s: float) -> bool:
        """A lookup was answered.

        Parameters
        ----------
        of_all : sequence of hashable
            By all functions.
        answer : Y
            What was given.
        tells : int
            Lookups that an inference tells about, itself included; 0: the classifier did not run.

        Returns
        -------
        bool
            Whether another candidate was chosen: the cache should adopt what it `holds`.
        """
        self._lookups += 1
        self._recent += Sample(tells, tells * tells)
        for shadow in self._shadows:
            shadow.note(of_all, answer, tells, now_s)
        return self._lookups >= self._next and self._recent.lookups > 0 and self._review()

    def holds(self) -> list[tuple[Hashable, Entry[Y]]]:
        """What inferences found for the keys of the chosen candidate; the latest last."""
        entries = self._shadows[self.choice.candidate].entries
        return [(key, entry) for key, entry in entries.items() if entry.inferences]

    def forget(self, of_all: Sequence[Hashable]) -> None:
        """What inferences found for an input with these keys is wrong."""
        for shadow in self._shadows:
            for key in of_all:
                shadow.entries.pop(key, None)

    def invalidate(self, stale: Callable[[Y], bool]) -> None:
        """Forget the results for which ``stale`` holds."""
        for shadow in self._shadows:
            for key in [key for key, entry in shadow.entries.items() if stale(entry.value)]:
                del shadow.entries[key]

    def _review(self) -> bool:
        sample = self._before + self._recent
        if self._shifted():
            sample = self._recent
            for shadow in self._shadows:
                shadow.before = Tally()
        estimates = []
        for name, shadow in zip(self._names, self._shadows, strict=True):
            shadow.before.add(shadow.recent)
            shadow.price, served, wrong = shadow.before.estimate(self._budget, sample.lookups)
            shadow.recent = Tally()
            estimates.append(Estimate(name, served, wrong))
        chosen, present = self.choice.candidate, estimates[self.choice.candidate]
        best = max(range(len(estimates)), key=lambda one: estimates[one].right)
        chance = math.sqrt(sum(sample.variance(one.served) for one in (estimates[best], present)))
        gain = max(_LEAST_GAIN, _Z * chance)
        better = estimates[best].right > present.right + gain
        chosen, since = (best, self._lookups) if better else (chosen, self.choice.lookups)
        self.choice = Choice(chosen, self._names[chosen], since, tuple(estimates), gain)
        following = min(self._lookups, _REVIEW)
        kept = math.exp(-following / _MEMORY)
        self._before, self._recent = sample.faded(kept), Sample()
        for shadow in self._shadows:
            shadow.before.fade(kept)
        self._next = self._lookups + following
        return better

    def _shifted(self) -> bool:
        """Whether lately another share of the keys was known than before, beyond chance."""
        if not self._before.lookups:
            return False
        for shadow in self._shadows:
            if len(shadow.levels) == 1:  # which keys of several are looked up depends on the price
                lately = shadow.recent.known / self._recent.lookups
                once = shadow.before.known / self._before.lookups
                chance = math.sqrt(self._recent.variance(lately) + self._before.variance(once))
                if abs(lately - once) > _Z_SHIFT * chance:
                    return True
        return False


def _name(function: object) -> str:
    return str(getattr(function, "name", None) or getattr(function, "__name__", None) or function)
