"""An edge without network and photos: the decisions of `edge.catalogue_cache` on a virtual clock.

Requests come with their time; models arrive a moment after they are wanted. Everything that decides is the
code of the daemon: `RequestDistribution`, `MissLatency`, `CacheSizeOptimizer`, `judge_change`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.caching.cache_change import CacheState, judge_change
from nearsight.common.caching.cache_size import CacheSizeOptimizer
from nearsight.common.caching.miss_latency import MissLatency
from nearsight.common.caching.profile import CacheProfile
from nearsight.common.caching.request_distribution import RequestDistribution

_DECIDE_EVERY = 10
_FETCH_S = 0.3
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class EdgeCosts:
    """What a lookup and a miss cost.

    Attributes
    ----------
    profile : CacheProfile
        f(k) and recall(k).
    miss_ms : float
        Median round trip to the cloud.
    k_max : int
        Most objects in the cache.
    """

    profile: CacheProfile
    miss_ms: float
    k_max: int = 10_000


class CrowdEdge:
    """One catalogue's adaptive cache.

    Parameters
    ----------
    object_ids : sequence of str
        The catalogue.
    costs : EdgeCosts
        What lookups and misses cost.
    half_life_s : float
        Of the counts; the prior is 1 as in the dissertation.
    rng : Generator
        Draws what is recognised and how long misses take.

    Attributes
    ----------
    changed : bool
        Whether the last request brought another set of cached objects.
    """

    def __init__(
        self, object_ids: Sequence[str], costs: EdgeCosts, half_life_s: float, rng: np.random.Generator
    ) -> None:
        self._distribution = RequestDistribution(object_ids, prior=1.0, half_life_s=half_life_s)
        self._misses = MissLatency(costs.miss_ms)
        curves = costs.profile.curves(len(object_ids))
        self._recall = curves.recall
        self._optimizer = CacheSizeOptimizer(curves.lookup_ms, curves.recall)
        self._costs = costs
        self._rng = rng
        self._cached: frozenset[str] = frozenset()
        self._asked: Counter[str] = Counter()
        self._fetching: dict[str, float] = {}
        self._since_decision = 0
        self.changed = False

    @property
    def size(self) -> int:
        """Objects in the cache."""
        return len(self._cached)

    def expected_hit_ratio(self, shares: Mapping[str, float]) -> float:
        """Probability that the cache answers a request drawn with these shares."""
        return float(self._recall[self.size]) * sum(shares.get(name, 0.0) for name in self._cached)

    def count(self, object_id: str, now_s: float) -> None:
        """A request that is only counted."""
        self._distribution.count(object_id, now_s)
        self._asked[object_id] += 1

    def request(self, object_id: str, now_s: float) -> None:
        """A request: looked up, counted, and perhaps a reason to decide again."""
        self.changed = False
        inside = object_id in self._cached
        if not (inside and self._rng.random() < self._recall[self.size]):
            self._misses.observe(self._costs.miss_ms * float(np.exp(self._rng.normal(0.0, _JITTER))))
        self.count(object_id, now_s)
        self._since_decision += 1
        arrived = any(at_s <= now_s for at_s in self._fetching.values())
        if not inside or arrived or self._since_decision >= _DECIDE_EVERY:
            self._decide(now_s)

    def _decide(self, now_s: float) -> None:
        self._since_decision = 0
        ranking = self._distribution.ranking(now_s)
        miss_ms = self._misses.mean_ms
        decision = self._optimizer.decide(ranking, miss_ms, min(self._costs.k_max, ranking.seen))
        state = CacheState(self._cached, frozenset(), self._asked)
        target = frozenset(decision.object_ids)
        if not judge_change(state, target, self._optimizer, ranking, miss_ms).worthwhile:
            return
        missing = target - self._cached
        self._fetching = {name: self._fetching.get(name, now_s + _FETCH_S) for name in missing}
        available = target - {name for name, at_s in self._fetching.items() if at_s > now_s}
        if judge_change(state, available, self._optimizer, ranking, miss_ms).worthwhile:
            self._cached = available
            for name in available:
                self._asked.pop(name, None)
                self._fetching.pop(name, None)
            self.changed = True
