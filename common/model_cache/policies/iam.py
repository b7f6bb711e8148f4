"""IAM: importance-aware policy of mCache, with importance queue, shadow queue, and three sources of rates.

Utility = penalty / size · rate (equation 1). The queue orders models by rank scores of their utilities
(equation 2). The paper states neither its window, its weight, b₀, nor the interval of rebuilding. b₀ and the
logarithm never change which models are evicted. The paper calls the rates foreknowledge, so one variant uses
true rates. Ranks are computed when a model is loaded, and when the queue is rebuilt, a few models at each
request. In between they may be outdated (4.3.3).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap

REBUILD_S = 30.0
"""Default age of the queue at which a new one is started."""
_BIAS = 1.0
"""b₀ of equation 2."""
_AT_A_TIME = 64
"""Number of models that each request adds to the shadow queue."""


class RateEstimator(ABC):
    """Estimates Δ of mCache for each model [1/s]."""

    @abstractmethod
    def requested(self, model: str, now_s: float) -> None:
        """Record a request."""

    @abstractmethod
    def rate(self, model: str, now_s: float) -> float:
        """Requests per second of a model; 0 if it has not been requested."""


class SlidingWindow(RateEstimator):
    """Counts the requests of the last ``window_s`` seconds."""

    def __init__(self, window_s: float) -> None:
        _check_positive(window_s)
        self._window_s = window_s
        self._times_s: defaultdict[str, deque[float]] = defaultdict(deque)

    def requested(self, model: str, now_s: float) -> None:
        """Store the request's time, and delete times before the window."""
        self._in_window(model, now_s).append(now_s)

    def rate(self, model: str, now_s: float) -> float:
        """Number of requests in the window, divided by its length."""
        return len(self._in_window(model, now_s)) / self._window_s if model in self._times_s else 0.0

    def _in_window(self, model: str, now_s: float) -> deque[float]:
        times_s = self._times_s[model]
        while times_s and times_s[0] <= now_s - self._window_s:
            times_s.popleft()
        return times_s


class ExponentialAverage(RateEstimator):
    """EWMA in continuous time: each request has the weight exp(-age / ``memory_s``) / ``memory_s``."""

    def __init__(self, memory_s: float) -> None:
        _check_positive(memory_s)
        self._memory_s = memory_s
        self._last: dict[str, tuple[float, float]] = {}

    def requested(self, model: str, now_s: float) -> None:
        """Add a new request's weight to the decayed sum of earlier weights."""
        self._last[model] = (self.rate(model, now_s) + 1 / self._memory_s, now_s)

    def rate(self, model: str, now_s: float) -> float:
        """Sum of the current weights."""
        if model not in self._last:
            return 0.0
        rate, at_s = self._last[model]
        return rate * math.exp((at_s - now_s) / self._memory_s)


def _check_positive(seconds: float) -> None:
    if not seconds > 0:
        raise InvalidArgument(f"a rate cannot be estimated over {seconds:g} s", advice="give a positive time")


class TrueRates(RateEstimator):
    """Constant rates, given at the start. For experiments."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates

    def requested(self, model: str, now_s: float) -> None:
        """No effect: rates are constant."""

    def rate(self, model: str, now_s: float) -> float:
        """The given rate; 0 for a model without one."""
        del now_s
        return self._rates.get(model, 0.0)


class ImportanceQueue(ScoreHeap):
    """Ranks of resident models, initially of those with the given utilities."""

    def __init__(self, utilities: Mapping[str, float]) -> None:
        super().__init__()
        self._utilities = dict(utilities)
        self._ordered = sorted(utilities.values())
        for model in utilities:
            self._rank(model)

    def insert(self, model: str, utility: float) -> None:
        """Add a model, without changing the ranks of others."""
        self._utilities[model] = utility
        self._rank(model)
        insort(self._ordered, utility)

    def remove(self, model: str) -> None:
        """Remove a model."""
        super().remove(model)
        del self._ordered[bisect_left(self._ordered, self._utilities.pop(model))]

    def _rank(self, model: str) -> None:
        """Compute a rank by equation 2: the logarithm of the number of lower utilities plus the bias.

        Since ranks may be outdated, utilities decide between equal ranks.
        """
        utility = self._utilities[model]
        self.add(model, math.log(bisect_left(self._ordered, utility) + _BIAS), tie=utility)


class ImportanceAware(Policy):
    """Scores are ranks by equation 2.

    Parameters
    ----------
    rates : RateEstimator
        Must not be shared with other policies.
    rebuild_s : float
        Age of the queue at which a new one is started.
    """

    def __init__(self, rates: RateEstimator, rebuild_s: float = REBUILD_S) -> None:
        self._rates = rates
        self._rebuild_s = rebuild_s
        self._densities: dict[str, float] = {}
        self._queue = ImportanceQueue({})
        self._built_s = 0.0
        self._shadow: dict[str, float] = {}
        """Utilities of the models in the next queue."""
        self._waiting: dict[str, None] | None = None
        """Models that the next queue lacks; None while it is not built."""

    def requested(self, model: str, now_s: float) -> None:
        """Count the request, and continue the shadow queue. Hits do not change the current queue."""
        self._rates.requested(model, now_s)
        if self._waiting is None:
            if now_s - self._built_s < self._rebuild_s:
                return
            self._waiting, self._shadow, self._built_s = dict.fromkeys(self._densities), {}, now_s
        for _ in range(min(_AT_A_TIME, len(self._waiting))):
            one, _ = self._waiting.popitem()
            self._shadow[one] = self._utility(one, now_s)
        if not self._waiting:
            self._queue, self._waiting = ImportanceQueue(self._shadow), None

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model to both queues, as algorithm 1; in 4.3.3 the old queue is read-only meanwhile."""
        self._densities[model] = costs.load_ms / costs.size_bytes
        self._shadow[model] = self._utility(model, now_s)
        self._queue.insert(model, self._shadow[model])

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model from both queues."""
        del now_s, self._densities[model]
        self._queue.remove(model)
        self._shadow.pop(model, None)
        if self._waiting is not None:
            self._waiting.pop(model, None)

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Algorithm 1: take models from the top of the heap until enough bytes are free."""
        del now_s
        return self._queue.lowest(evictable, needed_bytes)

    def _utility(self, model: str, now_s: float) -> float:
        return self._densities[model] * self._rates.rate(model, now_s)
