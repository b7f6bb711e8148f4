"""What a person sees of a cache: facts for `nearsight status`, explanations for `nearsight explain`."""

from __future__ import annotations

from collections.abc import Mapping

from nearsight.common.clock import Clock
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.edge.catalogue_cache import CatalogueCache


def details_of(cache: CatalogueCache) -> Mapping[str, str]:
    """Facts for a person, in display order."""
    hits, requests = cache.hits, cache.hits + cache.misses
    decision = cache.optimizer.decision
    ranking = cache.estimator.ranking()
    profile = cache.profiler.profile
    guests = cache.prefetch.count
    return {
        "cached objects": f"{cache.size} of {len(ranking)}, {ranking.seen} asked for",
        "hit ratio": f"{hits / requests:.3f} of {requests} requests" if requests else "no request yet",
        "miss latency": f"{cache.profiler.miss_ms:.1f} ms",
        "lookup": f"x{cache.profiler.correction:.2f} of the profile ({profile.dataset or 'measured'})",
        "fetching": f"{cache.supply.fetcher.in_flight} objects",
        "transitions": f"{cache.markov.transitions} between objects, {cache.markov.devices} devices",
        "prefetched": f"{guests.entered} objects, {guests.useful} useful, {guests.wasted} wasted, "
        f"predictions trusted at {cache.prefetch.trust:.2f}",
        "spare models": f"{len(cache.supply.library)}, {cache.supply.library.size_bytes / 2**20:.1f} MiB",
        "regret": cache.regret.report().why,
        "decision": decision.why if decision is not None else "none yet",
    }


def explanation_of(cache: CatalogueCache, clock: Clock, load: str) -> Explanation | None:
    """The last decision, None before the first."""
    decision = cache.optimizer.decision
    if decision is None:
        return None
    facts = [(name, value) for name, value in details_of(cache).items() if name != "decision"]
    age_s = max(0.0, clock.monotonic() - cache.decided_s)
    return Explanation(
        cache.name,
        age_s,
        decision.terms,
        tuple(terms for _, terms in sorted(decision.alternatives.items())),
        decision.k_max,
        decision.why,
        decision.object_ids,
        (*facts, ("load", load)),
    )
