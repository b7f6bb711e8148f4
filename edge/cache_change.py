"""Whether a better cache is worth building: hysteresis between the optimizer's decision and a new snapshot.

A snapshot costs fetched models and CPU time, and the optimum moves a little with every request. The rules,
in order:

1. objects that left the catalogue or were replaced there must go, whatever it costs;
2. an empty cache is filled, and a filled one emptied, only if that saves ``indifference`` of the expected
   latency: more than nothing once lookups turned out slower than they seemed;
3. an object that belongs into the cache and was asked for since the last build enters at once if nothing
   must leave for it, and from its second request on if something must: a newly popular object enters soon,
   and two objects of equal popularity do not push each other out at every photo;
4. any other change waits until it saves at least ``least_gain`` of the expected latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from nearsight.edge.cache_size import CacheSizeOptimizer
from nearsight.edge.request_distribution import Ranking


@dataclass(frozen=True, slots=True)
class CacheChange:
    """A possible step from one set of cached objects to another.

    Attributes
    ----------
    entering, leaving : frozenset of str
        What is new and what goes.
    gain_ms : float
        Expected latency saved per request; negative where objects must leave.
    worthwhile : bool
        Whether to build the new snapshot.
    why : str
        The rule that decided, for a person.
    """

    entering: frozenset[str]
    leaving: frozenset[str]
    gain_ms: float
    worthwhile: bool
    why: str


@dataclass(frozen=True, slots=True)
class CacheState:
    """What a decision about a change rests on.

    Attributes
    ----------
    cached : set of str
        Objects in the snapshot that answers now.
    outdated : set of str
        Those of them that left the catalogue or were replaced there.
    asked : mapping of str to int
        Requests per object since that snapshot was built.
    """

    cached: Set[str]
    outdated: Set[str]
    asked: Mapping[str, int]


def judge_change(
    state: CacheState,
    target: Set[str],
    optimizer: CacheSizeOptimizer,
    ranking: Ranking,
    miss_ms: float,
    least_gain: float = 0.01,
    indifference: float = 0.0,
) -> CacheChange:
    """Decide whether to go from ``state.cached`` to ``target``.

    Parameters
    ----------
    state : CacheState
        The cache as it is.
    target : set of str
        The cache as it should be.
    optimizer, ranking, miss_ms
        What the expected latency of both is computed from.
    least_gain : float
        Share of the present expected latency that rule 4 asks for.
    indifference : float
        Share of it that rule 2 asks for: see `LookupCorrection.indifference`.
    """
    entering = frozenset(target - state.cached)
    leaving = frozenset(state.cached - target)
    if state.outdated:
        return CacheChange(entering, leaving, 0.0, True, "objects left the catalogue or were replaced")
    if not entering and not leaving:
        return CacheChange(entering, leaving, 0.0, False, "the cache is as it should be")
    now_ms = optimizer.latency_of(state.cached, ranking, miss_ms)
    gain_ms = now_ms - optimizer.latency_of(target, ranking, miss_ms)
    if not (state.cached and target) and gain_ms < indifference * now_ms:
        why = f"only {gain_ms:.3f} ms per request to gain, within {indifference:.0%}"
        return CacheChange(entering, leaving, gain_ms, False, why)
    requests_needed = 2 if leaving else 1
    popular = sum(state.asked.get(object_id, 0) >= requests_needed for object_id in entering)
    if popular and gain_ms > 0:
        return CacheChange(entering, leaving, gain_ms, True, f"{popular} newly popular object(s) enter")
    if gain_ms > 0 and gain_ms >= least_gain * now_ms:
        return CacheChange(entering, leaving, gain_ms, True, f"saves {gain_ms:.2f} ms per request")
    return CacheChange(entering, leaving, gain_ms, False, f"only {gain_ms:.3f} ms per request to gain")
