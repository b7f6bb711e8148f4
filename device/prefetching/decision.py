"""The number of objects that a device caches and of features that it extracts (sections 4.4 to 4.6).

Fewer features are extracted and looked up faster, but distinguish fewer objects reliably. Therefore the
number of features and the number of objects are chosen together: equation 4.1 is minimised exactly for each
number of features, and the lowest minimum is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from nearsight.common.object_cache.expected_latency import (
    ExpectedLatency,
    FloatArray,
    LatencyTerms,
    why_cache_is_empty,
    why_chosen,
)
from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.object_cache.profile import CacheProfile

_TOLERANCE = 0.15
"""Relative change of the inputs of a decision up to which the decision is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class ExtractionCurves:
    """Costs of a device with one number of features: one row of table 4.1."""

    query_features: int
    """Number of features extracted from a photo."""
    lookup_ms: FloatArray
    """(K + 1,) float64: f_D(k) including extraction [ms]. f_D(0) is the time that a device without a cache
    spends before it offloads: 0 if it sends the image."""
    recall: FloatArray
    """(K + 1,) float64: recall_D(k)."""

    @classmethod
    def of_profile(cls, profile: CacheProfile, k_max: int) -> Self:
        """The curves that `nearsight profile` measured with this number of features."""
        curves = profile.curves(k_max)
        lookup_ms = curves.lookup_ms.copy()
        lookup_ms[1:] += profile.extraction_ms
        return cls(profile.query_features, lookup_ms, curves.recall)


@dataclass(frozen=True, slots=True)
class PrefetchDecision:
    """The objects that a device should cache, the features that it should extract, and the reasons."""

    terms: LatencyTerms
    """Equation 4.1 for the chosen number of objects, including the current one, and of features to extract
    for a lookup; k = 0: offload every photo."""
    object_ids: tuple[str, ...]
    """Length k: the current object, then the others, the most probable first."""
    alternatives: tuple[LatencyTerms, ...]
    """By size: no cache, one object fewer and one more, and the best size for every other number of
    features."""
    why: str
    """The decision in one line, for people."""


@dataclass(frozen=True, slots=True)
class PrefetchFacts:
    """Inputs of a decision in addition to the device's curves."""

    following: NextObjects
    """The prediction of the next objects."""
    miss_ms: float
    """L_Net + L_Edge: the time of an answer that a hit would save [ms]."""
    current: str
    """The object in front of the device. It is in any cache that is not empty, as it will probably be on the
    next photos too."""
    stays: float
    """Probability that the next photo shows the current object again. The dissertation's program counts only
    steps to other objects, as if it were 0; with the true value, k is optimal per photo."""
    correction: float
    """Current times of the machine relative to those of the curves."""

    def is_close_to(self, other: PrefetchFacts) -> bool:
        """Whether the decision is kept if the inputs change to the others."""
        before, after = self.following, other.following
        if self.current != other.current or before.object_ids != after.object_ids:
            return False
        close = np.allclose(before.probabilities, after.probabilities, rtol=_TOLERANCE, atol=0.01)
        old, new = (self.miss_ms, self.correction, self.stays), (other.miss_ms, other.correction, other.stays)
        return bool(close and np.allclose(old, new, rtol=_TOLERANCE, atol=0.02))

    def candidates(self, k_max: int) -> tuple[tuple[str, ...], FloatArray]:
        """Objects in the order in which they enter the cache, and P_cached of the first k, from k = 0."""
        pairs = zip(self.following.object_ids, self.following.probabilities.tolist(), strict=True)
        others = [(name, p) for name, p in pairs if name != self.current]
        moves = 1.0 - self.stays
        entering = [(self.current, self.stays), *((name, moves * p) for name, p in others)][:k_max]
        cached = np.zeros(len(entering) + 1)
        np.cumsum([p for _, p in entering], out=cached[1:])
        return tuple(name for name, _ in entering), np.minimum(cached, 1.0)


class PrefetchOptimizer:
    """Minimises E[L_D] over (k, number of features).

    Parameters
    ----------
    curves : sequence of ExtractionCurves
        One for each number of features, all different, with the same K; not corrected.

    Notes
    -----
    Source: Cachier dissertation, eq. 4.1 and section 4.5.3.
    """

    def __init__(self, curves: Sequence[ExtractionCurves]) -> None:
        self._curves = sorted(curves, key=lambda one: one.query_features)

    def decide(self, facts: PrefetchFacts, k_max: int) -> PrefetchDecision:
        """Choose k and the features; of equally good choices the smaller k, then the fewer features.

        Parameters
        ----------
        facts : PrefetchFacts
            The current inputs.
        k_max : int
            Maximum number of objects, e.g. because of memory; at most K.
        """
        names, cached = facts.candidates(k_max)
        equations = {one.query_features: _equation(one, cached, facts) for one in self._curves}
        latencies = {features: equation.evaluate() for features, equation in equations.items()}
        best = {features: int(np.argmin(latency)) for features, latency in latencies.items()}
        features = min(best, key=lambda number: (latencies[number][best[number]], best[number], number))
        k = best[features]
        choices = {(best[number], number) for number in best}
        choices |= {(near, features) for near in (0, k - 1, k + 1) if 0 <= near < len(latencies[features])}
        terms, *others = (
            equations[number].terms(size, latencies[number], number)
            for size, number in ((k, features), *sorted(choices - {(k, features)}))
        )
        return PrefetchDecision(terms, names[:k], tuple(others), why_chosen(terms, others))


def _equation(curves: ExtractionCurves, cached: FloatArray, facts: PrefetchFacts) -> ExpectedLatency:
    sizes = len(cached)
    lookup_ms = curves.lookup_ms[:sizes] * facts.correction
    return ExpectedLatency(lookup_ms, curves.recall[:sizes], cached, facts.miss_ms)


def why_empty(decision: PrefetchDecision | None, *, recognised: bool, edge_away: bool) -> str:
    """The reason why the cache of a device is empty, in one sentence for people.

    Parameters
    ----------
    decision : PrefetchDecision, optional
        The last decision; None before the first.
    recognised : bool
        Whether an object was recognised yet.
    edge_away : bool
        Whether the edge does not answer, or there is none.
    """
    if not recognised:
        return "no object was recognised yet; the decision needs one"
    if decision is None:
        return "the edge does not answer" if edge_away else "the edge has not predicted yet"
    if decision.terms.k:
        return f"its models are still being fetched (k={decision.terms.k})"
    return why_cache_is_empty("edge", decision.terms, decision.alternatives)
