"""IAM: importance-aware policy of mCache, with importance queue, shadow queue, and three sources of rates.

Utility = penalty / size · rate (equation 1). The queue orders models by rank scores of their utilities
(equation 2). The paper states neither its window, its weight, b₀, nor the interval of rebuilding. b₀ and the
logarithm never change which models are evicted. The paper calls the rates foreknowledge, so one variant uses
true rates. Ranks are computed when a model is loaded, and when the queue is rebuilt, a few models at each
request. In between they may be outdated (4.3.3).
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
"""Age of the queue at which a new one is started."""
_BIAS = 1.0
"""b₀ of equation 2."""
_AT_A_TIME = 64
"""Number of models that each request adds to the shadow queue."""


class ImportanceQueue:
    """Ranks of resident models, initially of those with the given utilities."""

    def __init__(self, utilities: Mapping[str, float]) -> None:
        self._utilities = dict(utilities)
        self._ordered = sorted(utilities.values())
        self._ranks = ScoreHeap()
        for model in utilities:
            self._rank(model)

    def insert(self, model: str, utility: float) -> None:
        """Add a model, without changing the ranks of others."""
        self._utilities[model] = utility
        self._rank(model)
        insort(self._ordered, utility)

    def remove(self, model: str) -> None:
        """Remove a model."""
        self._ranks.remove(model)
        del self._ordered[bisect_left(self._ordered, self._utilities.pop(model))]

    def lowest(self, evictable: Mapping[str, ModelCosts], needed_bytes: int) -> list[Victim]:
        """Evictable models in ascending order of ranks, until their sizes reach the needed bytes."""
        return self._ranks.lowest(evictable, needed_bytes)

    def _rank(self, model: str) -> None:
        """Compute a rank by equation 2: the logarithm of the number of lower utilities plus the bias.

        Since ranks may be outdated, utilities decide between equal ranks.
        """
        utility = self._utilities[model]
        self._ranks.add(model, math.log(bisect_left(self._ordered, utility) + _BIAS), tie=utility)


class ShadowQueue:
    """The next queue, which is built a few models at a time while the current one is used."""

    def __init__(self, models: Iterable[str]) -> None:
        self._waiting = dict.fromkeys(models)
        self._utilities: dict[str, float] = {}

    def changed(self, model: str, utility: float | None) -> None:
        """Record that a model was loaded, with its utility, or evicted (None)."""
        self._waiting.pop(model, None)
        if utility is None:
            self._utilities.pop(model, None)
        else:
            self._utilities[model] = utility

    def build(self, models: int, utility_of: Callable[[str], float]) -> bool:
        """Add up to ``models`` further models; returns whether the queue is complete."""
        for _ in range(min(models, len(self._waiting))):
            model, _ = self._waiting.popitem()
            self._utilities[model] = utility_of(model)
        return not self._waiting

    def queue(self) -> ImportanceQueue:
        """Convert to the queue that is used for evictions."""
        return ImportanceQueue(self._utilities)


class ImportanceAware(Policy):
    """Scores are ranks by equation 2. Rates come from a sliding window."""

    name: ClassVar[str] = "iam"
    estimator: ClassVar[type[SlidingWindow | ExponentialAverage]] = SlidingWindow

    def __init__(self, rates: RateEstimator, rebuild_s: float = REBUILD_S) -> None:
        self._rates = rates
        self._rebuild_s = rebuild_s
        self._densities: dict[str, float] = {}
        self._queue = ImportanceQueue({})
        self._shadow: ShadowQueue | None = None
        self._built_s = 0.0

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Use rates of the last ``window_s``. The queue is rebuilt at least twice in this time."""
        window_s = knowledge.window_s
        return cls(cls.estimator(window_s), min(REBUILD_S, window_s / 2))

    def requested(self, model: str, now_s: float) -> None:
        """Count the request, and continue the shadow queue. Hits do not change the current queue."""
        self._rates.requested(model, now_s)
        if self._shadow is None:
            if now_s - self._built_s < self._rebuild_s:
                return
            self._shadow = ShadowQueue(self._densities)
            self._built_s = now_s
        if self._shadow.build(_AT_A_TIME, lambda one: self._utility(one, now_s)):
            self._queue, self._shadow = self._shadow.queue(), None

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model to both queues."""
        self._densities[model] = costs.load_ms / costs.size_bytes
        utility = self._utility(model, now_s)
        self._queue.insert(model, utility)
        if self._shadow is not None:
            self._shadow.changed(model, utility)

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model from both queues."""
        del now_s, self._densities[model]
        self._queue.remove(model)
        if self._shadow is not None:
            self._shadow.changed(model, None)

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Algorithm 1: take models from the top of the heap until enough bytes are free."""
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
        """Use the given rates."""
        return cls(_TrueRates(knowledge.rates))


class _TrueRates(RateEstimator):
    """Constant rates, given at the start."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates

    def requested(self, model: str, now_s: float) -> None:
        """No effect: rates are constant."""

    def rate(self, model: str, now_s: float) -> float:
        """The given rate; 0 for a model without one."""
        del now_s
        return self._rates.get(model, 0.0)
