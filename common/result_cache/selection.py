"""Selection of the approximations that make the keys, based on the inferences that run anyway.

Each candidate has a `Shadow`, which estimates how many lookups a cache with it would serve within the budget,
and how many of these wrongly. The best candidate makes the keys, and the cache takes the results of its
shadow. So a change of the candidate needs no additional inferences.

The choice is reviewed every 10,000 lookups. If the share of known keys changed beyond chance, only
observations since the last review are used.
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
"""Lookups between reviews; the first reviews follow after fewer."""
_FIRST = 1_000
_MEMORY = 300_000.0
"""Number of lookups after which an observation has decayed to 1 / e."""
_LEAST_GAIN = 0.01
"""Minimum increase of the share of correctly served lookups for choosing another candidate."""
_Z, _Z_SHIFT = 2.0, 4.0
"""Standard deviations that a gain, and a shift of the workload, must exceed."""


class Candidates(Generic[X]):
    """Approximations from which a cache chooses; a candidate is a single one or a sequence, coarse to fine.

    Parameters
    ----------
    *candidates : callable, or sequence of them
        Each computes a hashable key of an input; in a sequence, a finer one is used for keys that conflict.
        The first candidate is used until the first review.

    Raises
    ------
    InvalidArgument
        If there are no candidates, or one computes several keys per input.
    """

    def __init__(self, *candidates: Approx[X] | Sequence[Approx[X]]) -> None:
        each = [(one,) if callable(one) else tuple(one) for one in candidates]
        if not each or not all(each):
            raise InvalidArgument("there are no candidates", advice="give at least one approximation")
        self.functions = tuple(dict.fromkeys(function for one in each for function in one))
        if any(isinstance(function, PhotoKeys) for function in self.functions):
            raise InvalidArgument("candidates compute one key per input, not alternatives")
        numbers = {function: number for number, function in enumerate(self.functions)}
        self.levels = [tuple(numbers[function] for function in one) for one in each]
        """For each candidate, the indices of its functions, coarse to fine."""
        self.names = [", ".join(map(_name, one)) for one in each]


def ladders(*approximations: F) -> Iterator[tuple[F, ...]]:
    """Candidates: every non-empty selection of these approximations, which are given coarse to fine."""
    for length in range(1, len(approximations) + 1):
        yield from combinations(approximations, length)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Recent estimate for a cache with a candidate."""

    name: str
    served: float
    """Share of the lookups that would be served, at the price that the budget allows."""
    wrong: float
    """Share of the lookups that would be answered wrongly."""

    @property
    def right(self) -> float:
        """Share of the lookups that would be served correctly."""
        return self.served - self.wrong


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen candidate, with the estimates on which the choice is based."""

    candidate: int
    name: str
    lookups: int = 0
    """Number of lookups up to the choice."""
    estimates: tuple[Estimate, ...] = ()
    """Estimates of all candidates, at the last review."""
    gain: float = _LEAST_GAIN
    """Minimum increase of correctly served lookups, as a share, for choosing another candidate."""


class Selection(Generic[Y]):
    """Repeatedly chooses the candidate that serves the most lookups within a budget.

    Parameters
    ----------
    candidates : Candidates
    budget : Budget
        The budget of the cache.
    size : int
        Maximum number of results, of the cache and of each shadow.
    ttl_s : float
        Time after which a result that was not confirmed is deleted [s].

    Notes
    -----
    Pure: the cache requests the `levels` to look up, and reports each lookup. The candidate changes if
    another one would serve more lookups correctly, by one percentage point and by two standard deviations.
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

    def levels(self, all_keys: Sequence[K]) -> list[K]:
        """From the keys of all functions, those of the chosen candidate, coarse to fine."""
        return [all_keys[number] for number in self._shadows[self.choice.candidate].levels]

    def note(self, all_keys: Sequence[Hashable], answer: Y, represented: int, now_s: float) -> bool:
        """Record an answered lookup.

        Parameters
        ----------
        all_keys : sequence of hashable
            The keys of all functions.
        answer : Y
            The answer.
        represented : int
            Number of lookups that an inference represents, including itself; 0 if the classifier did not run.
        now_s : float
            Current time.

        Returns
        -------
        bool
            Whether another candidate was chosen; the cache should then adopt the results of `entries`.
        """
        self._lookups += 1
        self._recent += Sample(represented, represented * represented)
        for shadow in self._shadows:
            shadow.note(all_keys, answer, represented, now_s)
        return self._lookups >= self._next and self._recent.lookups > 0 and self._review()

    def entries(self) -> list[tuple[Hashable, Entry[Y]]]:
        """The entries of the chosen candidate that have inferences, the latest last."""
        entries = self._shadows[self.choice.candidate].entries
        return [(key, entry) for key, entry in entries.items() if entry.inferences]

    def forget(self, all_keys: Sequence[Hashable]) -> None:
        """Delete the results for an input with these keys, because they are wrong."""
        for shadow in self._shadows:
            for key in all_keys:
                shadow.entries.pop(key, None)

    def invalidate(self, stale: Callable[[Y], bool]) -> None:
        """Delete the results for which ``stale`` returns True."""
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
        self._before, self._recent = sample.decayed(kept), Sample()
        for shadow in self._shadows:
            shadow.before.decay(kept)
        self._next = self._lookups + following
        return better

    def _shifted(self) -> bool:
        """Whether the share of known keys has recently changed beyond chance."""
        if not self._before.lookups:
            return False
        for shadow in self._shadows:
            if len(shadow.levels) == 1:  # with several levels, the keys looked up depend on the price
                lately = shadow.recent.known / self._recent.lookups
                once = shadow.before.known / self._before.lookups
                chance = math.sqrt(self._recent.variance(lately) + self._before.variance(once))
                if abs(lately - once) > _Z_SHIFT * chance:
                    return True
        return False


def _name(function: object) -> str:
    return str(getattr(function, "name", None) or getattr(function, "__name__", None) or function)
