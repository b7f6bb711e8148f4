"""The importance queue of mCache: a min-heap of rank scores, and a shadow that is rebuilt aside and swapped.

Ranks are computed when a model comes and when the queue is rebuilt, and are stale in between (mCache, 4.3.3).
Source: mCache, equation 2 and algorithm 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping

from nearsight.common.model_cache.policy import ModelCosts, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap


def importance(lower: int, bias: float) -> float:
    """Equation 2: the logarithm of the number of models with a lower utility, plus the bias b₀."""
    return math.log(lower + bias)


class ImportanceQueue:
    """Ranks of resident models.

    Parameters
    ----------
    utilities : mapping of str to float
        Of the models to begin with.
    bias : float
        b₀ of equation 2; positive.
    """

    def __init__(self, utilities: Mapping[str, float], bias: float) -> None:
        self._bias = bias
        self._utilities = dict(utilities)
        self._ordered = sorted(utilities.values())
        self._ranks = ScoreHeap()
        for model in utilities:
            self._rank(model)

    def insert(self, model: str, utility: float) -> None:
        """A model comes; the ranks of the others stay as they are."""
        self._utilities[model] = utility
        self._rank(model)
        insort(self._ordered, utility)

    def remove(self, model: str) -> None:
        """A model goes."""
        self._ranks.remove(model)
        del self._ordered[bisect_left(self._ordered, self._utilities.pop(model))]

    def lowest(self, evictable: Mapping[str, ModelCosts], needed_bytes: int) -> list[Victim]:
        """Evictable models from the lowest rank on, until their bytes suffice."""
        return self._ranks.lowest(evictable, needed_bytes)

    def _rank(self, model: str) -> None:
        """By equation 2; ranks are stale soon, so that utilities decide between equal ones."""
        utility = self._utilities[model]
        self._ranks.add(model, importance(bisect_left(self._ordered, utility), self._bias), tie=utility)


class ShadowQueue:
    """The next queue, built a few models at a time while the present one serves."""

    def __init__(self, models: Iterable[str]) -> None:
        self._waiting = dict.fromkeys(models)
        self._utilities: dict[str, float] = {}

    def changed(self, model: str, utility: float | None) -> None:
        """A model has come with this utility, or has gone (None)."""
        self._waiting.pop(model, None)
        if utility is None:
            self._utilities.pop(model, None)
        else:
            self._utilities[model] = utility

    def build(self, models: int, utility_of: Callable[[str], float]) -> bool:
        """Take up so many models more; whether it is complete."""
        for _ in range(min(models, len(self._waiting))):
            model, _ = self._waiting.popitem()
            self._utilities[model] = utility_of(model)
        return not self._waiting

    def queue(self, bias: float) -> ImportanceQueue:
        """The queue to serve from."""
        return ImportanceQueue(self._utilities, bias)
