"""IAM: the importance-aware policy of mCache, with its queue, its shadow, and three ways to know the rates.

Utility = penalty / size · rate (equation 1); the queue orders models by rank scores of utilities (equation
2). The paper does not say its window, its weight, b₀ or how often it rebuilds; b₀ and the logarithm never
change who is evicted. It calls the rates foreknowledge, so that there is a variant with true rates. Ranks
are computed when a model comes and when the queue is rebuilt, aside, and are stale in between (4.3.3).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Self

from nearsight.common.model_cache.policy import Knowledge, ModelCosts, Policy, Victim
from nearsight.common.model_cache.rates import ExponentialAverage, RateEstimator, SlidingWindow
from nearsight.common.model_cache.score_heap import ScoreHeap

REBUILD_S = 30.0
"""Age of the queue at which its successor is begun."""
_BIAS = 1.0
_AT_A_TIME = 64
"""Models that a request adds to the shadow."""


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


class ImportanceAware(Policy):
    """Scores are ranks, equation 2. Rates are those of a sliding window."""

    name: ClassVar[str] = "iam"
    estimator: ClassVar[type[SlidingWindow | ExponentialAverage]] = SlidingWindow

    def __init__(self, rates: RateEstimator | None = None, rebuild_s: float = REBUILD_S) -> None:
        self._rates = rates or SlidingWindow(Knowledge.window_s)
        self._rebuild_s = rebuild_s
        self._densities: dict[str, float] = {}
        self._queue = ImportanceQueue({}, _BIAS)
        self._shadow: ShadowQueue | None = None
        self._built_s = 0.0

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Rates of the last ``window_s``; the queue is rebuilt twice in that time at least."""
        window_s = knowledge.window_s
        return cls(cls.estimator(window_s), min(REBUILD_S, window_s / 2))

    def requested(self, model: str, now_s: float) -> None:
        """Count it, and go on with the shadow queue; hits do not change the queue that serves."""
        self._rates.requested(model, now_s)
        if self._shadow is None:
            if now_s - self._built_s < self._rebuild_s:
                return
            self._shadow = ShadowQueue(self._densities)
            self._built_s = now_s
        if self._shadow.build(_AT_A_TIME, lambda one: self._utility(one, now_s)):
            self._queue, self._shadow = self._shadow.queue(_BIAS), None

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Both queues take it up."""
        self._densities[model] = costs.load_ms / costs.size_bytes
        utility = self._utility(model, now_s)
        self._queue.insert(model, utility)
        if self._shadow is not None:
            self._shadow.changed(model, utility)

    def evicted(self, model: str, now_s: float) -> None:
        """Both queues drop it."""
        del now_s, self._densities[model]
        self._queue.remove(model)
        if self._shadow is not None:
            self._shadow.changed(model, None)

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Algorithm 1: from the top of the heap, until it fits."""
        del now_s
        return self._queue.lowest(evictable, needed_bytes)

    def _utility(self, model: str, now_s: float) -> float:
        return self._densities[model] * self._rates.rate(model, now_s)


class ImportanceAwareEwma(ImportanceAware):
    """Rates are exponentially weighted moving averages."""

    name: ClassVar[str] = "iam-ewma"
    estimator: ClassVar[type[SlidingWindow | ExponentialAverage]] = ExponentialAverage


class ImportanceAwareTrueRates(ImportanceAware):
    """Rates are the true means. For experiments."""

    name: ClassVar[str] = "iam-true-rates"
    clairvoyant: ClassVar[bool] = True

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Know the rates."""
        return cls(_TrueRates(knowledge.rates))


class _TrueRates(RateEstimator):
    """Rates that were given."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates

    def requested(self, model: str, now_s: float) -> None:
        """Nothing is to be learnt."""

    def rate(self, model: str, now_s: float) -> float:
        """As given; 0 for a model without a rate."""
        del now_s
        return self._rates.get(model, 0.0)
