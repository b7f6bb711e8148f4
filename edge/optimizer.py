"""The Optimizer of figure 3.5: which objects belong into the cache now.

How they are chosen is a policy. The adaptive one minimises the expected latency; policies that only bound
or fix the size fit behind the same interface.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from nearsight.common.caching.cache_change import CacheChange, CacheState, judge_change
from nearsight.common.caching.cache_size import CacheSizeDecision, CacheSizeOptimizer
from nearsight.common.caching.request_distribution import Ranking
from nearsight.edge.profiler import Costs


class CachePolicy(Protocol):
    """Chooses the objects of the cache."""

    def choose(self, ranking: Ranking, costs: Costs, k_max: int) -> CacheSizeDecision:
        """Choose at most ``k_max`` objects."""


class AdaptivePolicy:
    """The size that minimises equation 3.4, filled with the most popular objects.

    Only objects that somebody asked for are candidates: models are fetched lazily (section 3.5.3), and the
    prior alone would have an edge download catalogues that nobody near it looks at.
    """

    def choose(self, ranking: Ranking, costs: Costs, k_max: int) -> CacheSizeDecision:
        """Minimise over k = 0 … min(k_max, objects that were asked for)."""
        optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
        return optimizer.decide(ranking, costs.miss_ms, min(k_max, ranking.seen))


class Optimizer:
    """Applies a policy, and judges whether a change pays.

    Parameters
    ----------
    policy : CachePolicy
        How objects are chosen.
    k_max : int
        Most objects in the cache.
    least_gain : float
        See `judge_change`.
    """

    def __init__(self, policy: CachePolicy, k_max: int, least_gain: float) -> None:
        self._policy = policy
        self.k_max = k_max
        self._least_gain = least_gain
        self._decision: CacheSizeDecision | None = None

    @property
    def decision(self) -> CacheSizeDecision | None:
        """The last decision, None before the first."""
        return self._decision

    def decide(self, ranking: Ranking, costs: Costs) -> CacheSizeDecision:
        """Choose what belongs into the cache now."""
        self._decision = self._policy.choose(ranking, costs, self.k_max)
        return self._decision

    def judge(self, state: CacheState, target: Set[str], ranking: Ranking, costs: Costs) -> CacheChange:
        """Decide whether going from the present cache to ``target`` is worth it."""
        optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
        return judge_change(state, target, optimizer, ranking, costs.miss_ms, self._least_gain)
