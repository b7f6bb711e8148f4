"""Choice of the cache size: the exact minimum of the expected latency, with an explanation.

The dissertation uses "gradient descent". Here, all sizes are evaluated at once. This takes well below a
millisecond for 10,000 objects, is simpler than a search, and cannot stop at a local minimum.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from nearsight.common.object_cache.expected_latency import (
    ExpectedLatency,
    FloatArray,
    LatencyTerms,
    why_chosen,
)
from nearsight.edge.request_distribution import Ranking


@dataclass(frozen=True, slots=True)
class CacheSizeDecision:
    """A cache size, with the latencies that led to it."""

    k: int
    """Chosen size."""
    k_max: int
    """Largest size that was allowed."""
    terms: LatencyTerms
    """Equation 2.3 at the chosen size."""
    alternatives: tuple[LatencyTerms, ...] = ()
    """The same at other sizes: no cache (0), k - 1, k + 1 and ``k_max``, where these exist."""
    object_ids: tuple[str, ...] = ()
    """Objects that the cache should hold, most probable first, length k."""
    baseline: str = ""
    """The policy that chose the objects, if it does not minimise the latency."""

    @property
    def why(self) -> str:
        """The decision in one line, as text for the user."""
        if self.baseline:
            expected = f"{self.terms.expected_ms:.2f} ms expected"
            return f"{self.baseline}: k={self.k}, {expected}, without a cache {self.terms.miss_ms:.2f} ms"
        note = " (the largest size allowed)" if self.k == self.k_max else ""
        return why_chosen(self.terms, self.alternatives, note)


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Terms of equation 3.4, except the distribution: from a profile, corrected by recent measurements."""

    lookup_ms: FloatArray
    """(K + 1,) float64: f(k) for k = 0 … K."""
    recall: FloatArray
    """(K + 1,) float64: recall(k)."""
    miss_ms: float
    """L_miss."""
    indifference: float = 0.0
    """See `LookupCorrection.indifference`."""

    def expected(self, ranking: Ranking, k_max: int | None = None) -> ExpectedLatency:
        """Equation 2.3 for each k in 0 … min(k_max, K, N); parameters as in `choose_size`."""
        largest = min(len(self.lookup_ms) - 1, len(ranking))
        if k_max is not None:
            largest = max(0, min(largest, k_max))
        sizes = slice(largest + 1)
        return ExpectedLatency(
            self.lookup_ms[sizes], self.recall[sizes], ranking.cumulative[sizes], self.miss_ms
        )

    def terms_of(self, object_ids: Collection[str], ranking: Ranking) -> LatencyTerms:
        """Equation 2.3 for a cache that holds exactly these objects, whatever their probabilities."""
        # A cache larger than the profile has the costs of the profile's largest size.
        k = min(len(object_ids), len(self.lookup_ms) - 1)
        lookup_ms, recall = float(self.lookup_ms[k]), float(self.recall[k])
        cached = min(1.0, ranking.probability_of(object_ids))
        expected_ms = lookup_ms + (1.0 - recall * cached) * self.miss_ms
        return LatencyTerms(len(object_ids), lookup_ms, recall, cached, self.miss_ms, expected_ms)


def choose_size(costs: Costs, ranking: Ranking, k_max: int | None = None) -> CacheSizeDecision:
    """Choose k in 0 … min(k_max, K, N) with the least expected latency; the smallest of equally good sizes.

    Parameters
    ----------
    costs : Costs
        Measured costs of each size.
    ranking : Ranking
        The estimated request distribution.
    k_max : int, optional
        Upper bound, such as the number of objects that were requested at least once.

    Notes
    -----
    With f linear also at k = 0, and constant recall, the minimum is the threshold rule "cache i iff recall ·
    p_i · L_miss > b", where b is the slope of f. The tests verify this.
    """
    expected = costs.expected(ranking, k_max)
    latency_ms = expected.evaluate()
    largest = len(latency_ms) - 1
    k = int(np.argmin(latency_ms))
    sizes = {0, k - 1, k + 1, largest} - {k}
    others = tuple(expected.terms(size, latency_ms) for size in sorted(sizes) if 0 <= size <= largest)
    return CacheSizeDecision(k, largest, expected.terms(k, latency_ms), others, ranking.top(k))
