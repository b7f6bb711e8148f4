"""The Optimizer of figure 3.5: which objects belong into the cache, and when a change is worth a snapshot.

How objects are chosen is a policy of the settings. The adaptive one minimises the expected latency; the
others are the baselines that it is compared with.

A snapshot costs fetched models and CPU time, and the optimum moves a little with every request. So a change
is built by these rules, in order:

1. objects that left the catalogue or were replaced there must go, whatever it costs;
2. an empty cache is filled, and a filled one emptied, only if that saves ``indifference`` of the expected
   latency: more than nothing once lookups turned out slower than they seemed;
3. an object that belongs into the cache and was asked for since the last build enters at once if nothing
   must leave for it, and from its second request on if something must: a newly popular object enters soon,
   and two objects of equal popularity do not push each other out at every photo;
4. any other change waits until it saves at least ``least_gain`` of the expected latency.

Models arrive later than they are wanted, one after the other. So there are two judgements by the same rules:
is the wanted cache worth its models, and is the part of it that is here worth a snapshot already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from nearsight.common.object_cache.expected_latency import LatencyTerms, why_nothing_is_kept
from nearsight.edge.cache_size import CacheSizeDecision, CacheSizeOptimizer
from nearsight.edge.profiler import Costs
from nearsight.edge.request_distribution import Ranking
from nearsight.edge.settings import CacheSettings


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a decision rests on."""

    ranking: Ranking
    """The estimated request distribution."""
    costs: Costs
    """f(k), recall(k) and L_miss."""
    recent: tuple[str, ...] = ()
    """Objects that were asked for, the latest first."""


@dataclass(frozen=True, slots=True)
class CacheState:
    """The cache as it is."""

    cached: Set[str]
    """Objects in the snapshot that answers now."""
    outdated: Set[str]
    """Those of them that left the catalogue or were replaced there."""
    asked: Mapping[str, int]
    """Requests per object since that snapshot was built."""


@dataclass(frozen=True, slots=True)
class CacheChange:
    """A possible step to another set of cached objects."""

    worthwhile: bool
    """Whether to build the new snapshot."""
    why: str
    """The rule that decided, for a person."""
    gain_ms: float = 0.0
    """Expected latency saved per request; negative where objects must leave, 0 where it does not matter."""


@dataclass(frozen=True, slots=True)
class CacheStep:
    """What follows from one look at the situation."""

    decision: CacheSizeDecision
    """What belongs into the cache."""
    wanted: tuple[str, ...] | None
    """The new aim: keep the models of these objects, fetch what is not here. None: the aim stays."""
    build: frozenset[str] | None
    """Build a snapshot of these objects, whose models are here. None: the snapshot stays."""
    shrinks: bool
    """Whether the cache was larger than load and memory allow."""
    why: str
    """Why to build, for a person."""


class Optimizer:
    """Decides, and remembers its aim and its last decision. Not thread-safe.

    Parameters
    ----------
    settings : CacheSettings
        The policy and its numbers.
    """

    def __init__(self, settings: CacheSettings) -> None:
        self._settings = settings
        self._aim: frozenset[str] = frozenset()
        self.decision: CacheSizeDecision | None = None
        """The last decision, None before the first."""

    def next(
        self,
        situation: Situation,
        k_max: int,
        state_of: Callable[[frozenset[str]], CacheState],
        held: Callable[[str], bool],
    ) -> CacheStep:
        """Decide, and say what to do.

        Parameters
        ----------
        situation : Situation
            What the decision rests on.
        k_max : int
            Most objects that the settings, the load and the memory allow.
        state_of : callable
            The cache as it is, seen with what is wanted.
        held : callable
            Whether the model of an object is here.
        """
        self.decision = decision = self.decide(situation, k_max)
        wanted = frozenset(decision.object_ids)
        state = state_of(wanted)
        shrinks = len(state.cached) > k_max
        aims = shrinks or self.judge(state, wanted, situation).worthwhile
        if aims:
            self._aim = wanted
        available = frozenset(name for name in self._aim if held(name))
        change = self.judge(state, available, situation)
        why = f"more than {k_max} objects are too slow, or take too much memory" if shrinks else change.why
        build = available if shrinks or change.worthwhile else None
        return CacheStep(decision, decision.object_ids if aims else None, build, shrinks, why)

    def why_empty(self, asked_for: int) -> str:
        """Why the cache holds nothing, in one sentence for a person.

        Parameters
        ----------
        asked_for : int
            Objects that somebody asked for.
        """
        decision = self.decision
        if self._settings.policy == "none":
            return "the settings want no cache: cache.policy is none"
        if not self._settings.k_max:
            return "the settings want no cache: cache.k_max is 0"
        if not asked_for:
            return "nobody has asked for one of its objects yet"
        if decision is None:
            return "what it should hold is not decided yet"
        if decision.k:
            return f"its models are still being fetched (k={decision.k})"
        if not decision.k_max:
            return "load or memory leave no room for an object"
        return why_nothing_is_kept("cloud", decision.terms, decision.alternatives.values())

    def decide(self, situation: Situation, k_max: int) -> CacheSizeDecision:
        """What belongs into the cache now, at most ``k_max`` objects.

        The adaptive policy minimises equation 3.4 and takes the most popular objects. Only objects that
        somebody asked for are candidates: models are fetched lazily (section 3.5.3), and the prior alone
        would have an edge download catalogues that nobody near it looks at.
        """
        ranking, costs = situation.ranking, situation.costs
        if self._settings.policy == "adaptive":
            optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
            return optimizer.decide(ranking, costs.miss_ms, min(k_max, ranking.seen))
        return _explained(self._settings.policy, self._baseline(situation, k_max), ranking, costs)

    def _baseline(self, situation: Situation, k_max: int) -> tuple[str, ...]:
        """What another cache would hold, the most wanted object first.

        With an infinite half-life of the counts ``lfu`` is LFU proper; with another it is LFU with aging.
        """
        ranking, size = situation.ranking, min(self._settings.fixed_size, k_max)
        match self._settings.policy:
            case "lfu":
                return ranking.top(min(size, ranking.seen))
            case "lru":
                return tuple(name for name in situation.recent if name in ranking.positions)[:size]
            case "everything":
                return ranking.top(k_max)
            case _:
                return ()

    def judge(self, state: CacheState, target: Set[str], situation: Situation) -> CacheChange:
        """Decide whether to go from the present cache to ``target``: see the rules of this module.

        A baseline holds exactly what it says, whatever that costs: every difference is worth a snapshot.
        """
        entering, leaving = target - state.cached, state.cached - target
        if self._settings.policy != "adaptive":
            return CacheChange(bool(entering or leaving or state.outdated), self._settings.policy)
        if state.outdated:
            return CacheChange(True, "objects left the catalogue or were replaced")
        if not entering and not leaving:
            return CacheChange(False, "the cache is as it should be")
        ranking, costs = situation.ranking, situation.costs
        optimizer = CacheSizeOptimizer(costs.lookup_ms, costs.recall)
        now_ms = optimizer.latency_of(state.cached, ranking, costs.miss_ms)
        gain_ms = now_ms - optimizer.latency_of(target, ranking, costs.miss_ms)
        if not (state.cached and target) and gain_ms < costs.indifference * now_ms:
            why = f"only {gain_ms:.3f} ms per request to gain, within {costs.indifference:.0%}"
            return CacheChange(False, why, gain_ms)
        popular = sum(state.asked.get(object_id, 0) >= (2 if leaving else 1) for object_id in entering)
        if popular and gain_ms > 0:
            return CacheChange(True, f"{popular} newly popular object(s) enter", gain_ms)
        if gain_ms > 0 and gain_ms >= self._settings.least_gain * now_ms:
            return CacheChange(True, f"saves {gain_ms:.2f} ms per request", gain_ms)
        return CacheChange(False, f"only {gain_ms:.3f} ms per request to gain", gain_ms)


def _explained(policy: str, object_ids: tuple[str, ...], ranking: Ranking, costs: Costs) -> CacheSizeDecision:
    """A baseline's choice with its terms of equation 2.3; more objects than described cost as the most."""
    k = min(len(object_ids), len(costs.lookup_ms) - 1)
    lookup_ms, recall, miss_ms = float(costs.lookup_ms[k]), float(costs.recall[k]), costs.miss_ms
    cached = min(1.0, ranking.probability_of(object_ids))
    expected_ms = lookup_ms + (1.0 - recall * cached) * miss_ms
    terms = LatencyTerms(len(object_ids), lookup_ms, recall, cached, miss_ms, expected_ms)
    empty_ms, empty_recall = float(costs.lookup_ms[0]), float(costs.recall[0])
    offload = LatencyTerms(0, empty_ms, empty_recall, 0.0, miss_ms, empty_ms + miss_ms)
    why = f"{policy}: k={len(object_ids)}, {expected_ms:.2f} ms expected, without a cache {miss_ms:.2f} ms"
    size = len(object_ids)
    return CacheSizeDecision(size, size, terms, {0: offload} if size else {}, object_ids, why)
