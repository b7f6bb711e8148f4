"""The Optimizer of figure 3.5: which objects belong into the cache now.

How they are chosen is a policy. The adaptive one minimises the expected latency; the baselines that it is
compared with stand behind the same interface.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from nearsight.edge.cache_change import CacheChange, CacheState, judge_change
from nearsight.edge.cache_size import CacheSizeDecision, CacheSizeOptimizer
from nearsight.edge.eviction import (
    Everything,
    EvictionPolicy,
    FixedLfu,
    FixedLru,
    NoCache,
    decision_for,
)
from nearsight.edge.profiler import Costs
from nearsight.edge.request_distribution import Ranking
from nearsight.edge.settings import CacheSettings


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a decision rests on.

    Attributes
    ----------
    ranking : Ranking
        The estimated request distribution.
    costs : Costs
        f(k), recall(k) and L_miss.
    recent : tuple of str
        Objects that were asked for, the latest first.
    """

    ranking: Ranking
    costs: Costs
    recent: tuple[str, ...] = ()


class CachePolicy(Protocol):
    """Chooses the objects of the cache, and says when a change is worth a new snapshot."""

    def choose(self, situation: Situation, k_max: int) -> CacheSizeDecision:
        """Choose at most ``k_max`` objects."""

    def judge(self, state: CacheState, target: Set[str], situation: Situation) -> CacheChange:
        """Decide whether going from the present cache to ``target`` is worth it."""


class AdaptivePolicy:
    """The size that minimises equation 3.4, filled with the most popular objects.

    Only objects that somebody asked for are candidates: models are fetched lazily (section 3.5.3), and the
    prior alone would have an edge download catalogues that nobody near it looks at.

    Parameters
    ----------
    least_gain : float
        See `judge_change`.
    """

    def __init__(self, least_gain: float) -> None:
        self._least_gain = least_gain

    def choose(self, situation: Situation, k_max: int) -> CacheSizeDecision:
        """Minimise over k = 0 … min(k_max, objects that were asked for)."""
        ranking, costs = situation.ranking, situation.costs
        optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
        return optimizer.decide(ranking, costs.miss_ms, min(k_max, ranking.seen))

    def judge(self, state: CacheState, target: Set[str], situation: Situation) -> CacheChange:
        """See `judge_change`."""
        costs = situation.costs
        optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
        return judge_change(
            state,
            target,
            optimizer,
            situation.ranking,
            costs.miss_ms,
            self._least_gain,
            costs.indifference,
        )


class BaselinePolicy:
    """A baseline: holds exactly what its rule says, whatever that costs.

    Parameters
    ----------
    rule : EvictionPolicy
        Which objects belong into the cache.
    """

    def __init__(self, rule: EvictionPolicy) -> None:
        self._rule = rule

    def choose(self, situation: Situation, k_max: int) -> CacheSizeDecision:
        """Follow the rule."""
        object_ids = self._rule.choose(situation.ranking, situation.recent, k_max)
        costs = situation.costs
        return decision_for(
            self._rule, object_ids, situation.ranking, costs.lookup_ms, costs.recall, costs.miss_ms
        )

    def judge(self, state: CacheState, target: Set[str], situation: Situation) -> CacheChange:
        """Every difference is worth a new snapshot."""
        del situation
        entering, leaving = frozenset(target - state.cached), frozenset(state.cached - target)
        return CacheChange(
            entering, leaving, 0.0, bool(entering or leaving or state.outdated), self._rule.name
        )


def policy_of(settings: CacheSettings) -> CachePolicy:
    """The policy that the settings choose."""
    match settings.policy:
        case "adaptive":
            return AdaptivePolicy(settings.least_gain)
        case "none":
            return BaselinePolicy(NoCache())
        case "lfu":
            return BaselinePolicy(FixedLfu(settings.fixed_size))
        case "lru":
            return BaselinePolicy(FixedLru(settings.fixed_size))
        case "everything":
            return BaselinePolicy(Everything())


class Optimizer:
    """Applies a policy, and remembers the last decision.

    Parameters
    ----------
    policy : CachePolicy
        How objects are chosen.
    """

    def __init__(self, policy: CachePolicy) -> None:
        self._policy = policy
        self._decision: CacheSizeDecision | None = None

    @property
    def decision(self) -> CacheSizeDecision | None:
        """The last decision, None before the first."""
        return self._decision

    def decide(self, situation: Situation, k_max: int) -> CacheSizeDecision:
        """Choose what belongs into the cache now, at most ``k_max`` objects."""
        self._decision = self._policy.choose(situation, k_max)
        return self._decision

    def judge(self, state: CacheState, target: Set[str], situation: Situation) -> CacheChange:
        """Decide whether going from the present cache to ``target`` is worth it."""
        return self._policy.judge(state, target, situation)
