"""A decision about a cache with everything that a person needs to judge it, the same for edge and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearsight.common.caching.cache_size import CacheSizeDecision, LatencyTerms
from nearsight.common.caching.prefetch_decision import PrefetchDecision


@dataclass(frozen=True, slots=True)
class ExplainedTerms:
    """Equation 2.3 at one point.

    Attributes
    ----------
    terms : LatencyTerms
        Its terms.
    query_features : int
        Features per query; 0 where they are not part of the decision.
    """

    terms: LatencyTerms
    query_features: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """One decision.

    Attributes
    ----------
    catalogue : str
        Which catalogue's cache it is about.
    age_s : float
        Seconds since it was taken.
    chosen : ExplainedTerms
        What was chosen.
    alternatives : tuple of ExplainedTerms
        What else was compared.
    k_max : int
        Largest size that was allowed.
    why : str
        In one line.
    object_ids : tuple of str
        What belongs into the cache, the most probable first.
    facts : tuple of pairs
        Further facts for a person, in display order.
    """

    catalogue: str
    age_s: float
    chosen: ExplainedTerms
    alternatives: tuple[ExplainedTerms, ...] = ()
    k_max: int = 0
    why: str = ""
    object_ids: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_cache_size(
        cls,
        decision: CacheSizeDecision,
        catalogue: str,
        age_s: float,
        facts: Sequence[tuple[str, str]] = (),
    ) -> Explanation:
        """Explain an edge's decision."""
        return cls(
            catalogue,
            age_s,
            ExplainedTerms(decision.terms),
            tuple(ExplainedTerms(terms) for _, terms in sorted(decision.alternatives.items())),
            decision.k_max,
            decision.why,
            decision.object_ids,
            tuple(facts),
        )

    @classmethod
    def of_prefetch(
        cls,
        decision: PrefetchDecision,
        catalogue: str,
        age_s: float,
        k_max: int,
        facts: Sequence[tuple[str, str]] = (),
    ) -> Explanation:
        """Explain a device's decision."""
        return cls(
            catalogue,
            age_s,
            ExplainedTerms(decision.terms, decision.query_features),
            tuple(
                ExplainedTerms(terms, features)
                for (_, features), terms in sorted(decision.alternatives.items())
            ),
            k_max,
            decision.why,
            decision.object_ids,
            tuple(facts),
        )
