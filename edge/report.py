"""Reports about the caches for `nearsight status` and `nearsight explain`."""

from __future__ import annotations

from collections.abc import Mapping

from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.standby.standbys import Standbys


def facts_of(cache: CatalogueCache, standby: int = 0) -> Mapping[str, str]:
    """Facts for `nearsight status`, in display order; ``standby`` is the standby's number of objects."""
    requests = cache.hits + cache.misses
    ranking, profiler, markov, supply = cache.estimator.ranking(), cache.profiler, cache.markov, cache.supply
    profile, library, count = profiler.profile, supply.library, cache.prefetch.count
    decision = cache.optimizer.decision
    result = {"result cache": cache.result.state.why} if cache.result is not None else {}
    empty = {} if cache.size else {"why empty": _why_empty(cache, ranking.seen, standby)}
    return {
        "cached objects": f"{cache.size} of {len(ranking)}, {ranking.seen} requested",
        **empty,
        "hit ratio": f"{cache.hits / requests:.3f} of {requests} requests" if requests else "no request yet",
        **result,
        "miss latency": profiler.miss_why,
        "lookup": f"x{profiler.correction:.2f} of the profile ({profile.dataset or 'measured'})",
        "fetching": f"{supply.fetcher.in_flight} objects",
        "transitions": f"{markov.transitions} between objects, devices: {markov.devices}",
        "prefetched": f"{count.entered} objects, {count.useful} useful, {count.wasted} wasted, "
        f"actual requests: {cache.prefetch.trust:.2f} of the predicted ones",
        "spare models": f"{len(library)}, {library.size_bytes / 2**20:.1f} MiB",
        "regret": cache.regret.report().why,
        "decision": decision.why if decision is not None else "none yet",
    }


def _why_empty(cache: CatalogueCache, asked_for: int, standby: int) -> str:
    objects = "one object" if standby == 1 else f"{standby} objects"
    answers = f"; the standby of {objects} answers during an outage of the cloud" if standby else ""
    return cache.optimizer.why_empty(asked_for) + answers


def explanation_of(cache: CatalogueCache, load: str, memory: str, standbys: Standbys) -> Explanation | None:
    """Last decision for `nearsight explain`, None before the first; load and memory are one line each."""
    decision = cache.optimizer.decision
    if decision is None:
        return None
    known = facts_of(cache, standbys.size(cache.name))
    facts = [(name, value) for name, value in known.items() if name != "decision"]
    return Explanation(
        cache.name,
        max(0.0, cache.clock.monotonic() - cache.decided_s),
        decision.terms,
        decision.alternatives,
        decision.k_max,
        decision.why,
        decision.object_ids,
        (*facts, ("load", load), ("memory", memory), ("standby", standbys.why(cache.name))),
    )
