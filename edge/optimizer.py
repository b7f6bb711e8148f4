"""The Optimizer of figure 3.5: which objects the cache should hold, and when a change is worth a snapshot.

The settings choose a policy. The adaptive policy minimises the expected latency. The other policies are
baselines for comparison.

A snapshot costs fetched models and CPU time, and every request moves the optimum a little. Therefore these
rules decide, in this order, whether a change is built:

1. objects that left the catalogue or were replaced there are removed, whatever the cost;
2. an empty cache is filled, and a filled cache is emptied, only if this saves ``indifference`` of the
   expected latency; this share is above 0 after lookups were slower than estimated;
3. a wanted object that was requested since it last entered enters at once if this saves time and no object
   must leave for it. Otherwise it enters from its second request on. Thus newly popular objects enter soon,
   and two objects of equal popularity do not replace each other at every photo;
4. any other change must save at least ``least_gain`` of the expected latency.

Models arrive one after the other, after the decision. Therefore the same rules are applied twice: is the
wanted cache worth fetching its models, and are the available models of it already worth a snapshot?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from nearsight.common.object_cache.expected_latency import why_cache_is_empty
from nearsight.common.text import percent
from nearsight.edge.cache_size import CacheSizeDecision, Costs, choose_size
from nearsight.edge.request_distribution import Ranking
from nearsight.edge.settings import CacheSettings


@dataclass(frozen=True, slots=True, eq=False)
class DecisionInputs:
    """Inputs of a decision."""

    ranking: Ranking
    """Estimated request distribution."""
    costs: Costs
    """f(k), recall(k) and L_miss."""
    recent: Callable[[], tuple[str, ...]] = tuple
    """Returns the requested objects, latest first; called by policy lru only, because the list is long."""


@dataclass(frozen=True, slots=True)
class CacheState:
    """Present state of the cache."""

    cached: Set[str]
    """Objects in the active snapshot."""
    outdated: Set[str]
    """Cached objects that left the catalogue or were replaced there."""
    asked: Mapping[str, int]
    """Requests per object since it was last in a new snapshot."""
    prefetched: Set[str] = frozenset()
    """Cached objects that were prefetched."""


def residents_among(cached: Set[str], prefetched: Set[str], wanted: Set[str]) -> frozenset[str]:
    """Cached objects, without prefetched ones that the optimizer does not want."""
    return frozenset(cached - (prefetched - wanted))


@dataclass(frozen=True, slots=True)
class CacheChange:
    """A possible change to another set of cached objects."""

    worthwhile: bool
    """Whether to build the new snapshot."""
    why: str
    """The rule that decided, as text for the user."""
    gain_ms: float = 0.0
    """Expected saving per request [ms]; negative if objects must leave, 0 if it is not relevant."""


@dataclass(frozen=True, slots=True)
class CacheStep:
    """Result of one run of the optimizer."""

    decision: CacheSizeDecision
    """The objects that the cache should hold."""
    wanted: tuple[str, ...] | None
    """New target: keep the models of these objects, and fetch missing ones. None: the target is unchanged."""
    build: frozenset[str] | None
    """Objects of a snapshot to build, whose models are available. None: the snapshot is unchanged."""
    shrinks: bool
    """Whether the cache was larger than load and memory permit."""
    why: str
    """Reason for the build, as text for the user."""


class Optimizer:
    """Decides about the cache; stores its target and its last decision. Not thread-safe.

    Parameters
    ----------
    settings : CacheSettings
        Policy and its parameters.
    """

    def __init__(self, settings: CacheSettings) -> None:
        self._settings = settings
        self._target: frozenset[str] = frozenset()
        self.decision: CacheSizeDecision | None = None
        """Last decision; None before the first."""

    def next(
        self,
        inputs: DecisionInputs,
        k_max: int,
        state: CacheState,
        held: Callable[[str], bool],
    ) -> CacheStep:
        """Make a decision, and derive the next actions.

        Parameters
        ----------
        inputs : DecisionInputs
            Inputs of the decision.
        k_max : int
            Maximum number of objects that settings, load and memory permit.
        state : CacheState
            Present state of the cache.
        held : callable
            Whether the model of an object is available.
        """
        self.decision = decision = self.decide(inputs, k_max)
        wanted = frozenset(decision.object_ids)
        state = replace(state, cached=residents_among(state.cached, state.prefetched, wanted))
        shrinks = len(state.cached) > k_max
        new_target = shrinks or self.judge(state, wanted, inputs).worthwhile
        if new_target:
            self._target = wanted
        available = frozenset(name for name in self._target if held(name))
        change = self.judge(state, available, inputs)
        why = f"more than {k_max} objects are too slow, or take too much memory" if shrinks else change.why
        build = available if shrinks or change.worthwhile else None
        return CacheStep(decision, decision.object_ids if new_target else None, build, shrinks, why)

    def why_empty(self, asked_for: int) -> str:
        """Why the cache is empty, in one sentence for the user.

        Parameters
        ----------
        asked_for : int
            Number of objects that were requested at least once.
        """
        decision = self.decision
        if self._settings.policy == "none":
            return "the settings disable the cache: cache.policy is none"
        if not self._settings.k_max:
            return "the settings disable the cache: cache.k_max is 0"
        if not asked_for:
            return "none of its objects was requested yet"
        if decision is None:
            return "no decision was made yet"
        if decision.k:
            return f"its models are still being fetched (k={decision.k})"
        if not decision.k_max:
            return "load or memory permit no object"
        return why_cache_is_empty("cloud", decision.terms, decision.alternatives)

    def decide(self, inputs: DecisionInputs, k_max: int) -> CacheSizeDecision:
        """Objects that the cache should hold now, at most ``k_max``.

        The adaptive policy minimises equation 3.4 and takes the most popular objects. Only objects with
        requests are candidates, because models are fetched lazily (section 3.5.3). With the prior alone, an
        edge would download catalogues that nobody uses there.
        """
        ranking, costs = inputs.ranking, inputs.costs
        if self._settings.policy == "adaptive":
            return choose_size(costs, ranking, min(k_max, ranking.seen))
        return _explained(self._settings.policy, self._baseline(inputs, k_max), ranking, costs)

    def _baseline(self, inputs: DecisionInputs, k_max: int) -> tuple[str, ...]:
        """Content of a baseline's cache, the object with the highest priority first.

        ``lfu`` is proper LFU if the half-life of counts is infinite; otherwise it is LFU with aging.
        """
        ranking, size = inputs.ranking, min(self._settings.fixed_size, k_max)
        match self._settings.policy:
            case "lfu":
                return ranking.top(min(size, ranking.seen))
            case "lru":
                return tuple(name for name in inputs.recent() if name in ranking.positions)[:size]
            case "everything":
                return ranking.top(k_max)
            case _:
                return ()

    def judge(self, state: CacheState, target: Set[str], inputs: DecisionInputs) -> CacheChange:
        """Decide whether to change the present cache to ``target``, by the rules of this module.

        Baselines hold exactly their choice: every difference is worth a snapshot.
        """
        entering, leaving = target - state.cached, state.cached - target
        if self._settings.policy != "adaptive":
            return CacheChange(bool(entering or leaving or state.outdated), self._settings.policy)
        if state.outdated:
            return CacheChange(True, "objects left the catalogue or were replaced")
        if not entering and not leaving:
            return CacheChange(False, "the cache has the wanted objects")
        ranking, costs = inputs.ranking, inputs.costs
        now_ms = costs.terms_of(state.cached, ranking).expected_ms
        gain_ms = now_ms - costs.terms_of(target, ranking).expected_ms
        if not (state.cached and target) and gain_ms < costs.indifference * now_ms:
            why = f"only {gain_ms:.3f} ms per request to gain, within {percent(costs.indifference)}"
            return CacheChange(False, why, gain_ms)
        popular = sum(state.asked.get(object_id, 0) >= (2 if leaving else 1) for object_id in entering)
        if popular and gain_ms > 0:
            return CacheChange(True, f"{popular} newly popular object(s) enter", gain_ms)
        if gain_ms > 0 and gain_ms >= self._settings.least_gain * now_ms:
            return CacheChange(True, f"saves {gain_ms:.2f} ms per request", gain_ms)
        return CacheChange(False, f"only {gain_ms:.3f} ms per request to gain", gain_ms)


def _explained(policy: str, object_ids: tuple[str, ...], ranking: Ranking, costs: Costs) -> CacheSizeDecision:
    """A baseline's choice with its terms of equation 2.3."""
    terms, offload, size = costs.terms_of(object_ids, ranking), costs.terms_of((), ranking), len(object_ids)
    return CacheSizeDecision(size, size, terms, (offload,) if size else (), object_ids, policy)
