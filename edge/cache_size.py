"""Choice of the cache size: the exact minimum of the expected latency, with an explanation.

The dissertation uses "gradient descent". Here, all sizes are evaluated at once. This takes well below a
millisecond for 10,000 objects, is simpler than a search, and cannot stop at a local minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import ExpectedLatency, FloatArray, LatencyTerms
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
    alternatives: Mapping[int, LatencyTerms] = field(default_factory=dict)
    """The same at other sizes: no cache (0), k - 1, k + 1 and ``k_max``, where these exist."""
    object_ids: tuple[str, ...] = ()
    """Objects that the cache should hold, most probable first, length k."""
    why: str = ""
    """The decision in one line, as text for the user."""


class CacheSizeOptimizer:
    """Finds the cache size with the least expected latency, for one set of measured costs.

    Parameters
    ----------
    lookup_ms, recall : ndarray, (K + 1,) float64
        f(k) and recall(k) for k = 0 … K, from a profile, corrected by recent measurements.

    Notes
    -----
    With linear f and constant recall the minimum is the threshold rule "cache i iff recall · p_i · L_miss >
    b", where b is the slope of f. The tests verify this.
    """

    def __init__(self, lookup_ms: FloatArray, recall: FloatArray) -> None:
        if lookup_ms.shape != recall.shape or lookup_ms.ndim != 1 or not len(lookup_ms):
            raise InvalidArgument(
                f"lookup_ms and recall must be of one shape (K + 1,), got {lookup_ms.shape}, {recall.shape}"
            )
        self._lookup_ms = lookup_ms
        self._recall = recall

    def decide(self, ranking: Ranking, miss_ms: float, k_max: int | None = None) -> CacheSizeDecision:
        """Choose k in 0 … min(k_max, K, N); the smallest of equally good sizes.

        Parameters
        ----------
        ranking : Ranking
            The estimated request distribution.
        miss_ms : float
            L_miss.
        k_max : int, optional
            Upper bound, such as the number of objects that were requested at least once.
        """
        expected = self.expected(ranking, miss_ms, k_max)
        latency_ms = expected.evaluate()
        largest = len(latency_ms) - 1
        k = int(np.argmin(latency_ms))
        sizes = {0, k - 1, k + 1, largest} - {k}
        alternatives = {
            size: expected.terms(size, latency_ms) for size in sorted(sizes) if 0 <= size <= largest
        }
        terms = expected.terms(k, latency_ms)
        return CacheSizeDecision(
            k, largest, terms, alternatives, ranking.top(k), _why(terms, alternatives, largest)
        )

    def expected(self, ranking: Ranking, miss_ms: float, k_max: int | None = None) -> ExpectedLatency:
        """Equation 2.3 for each k in 0 … min(k_max, K, N); parameters as in `decide`."""
        largest = min(len(self._lookup_ms) - 1, len(ranking))
        if k_max is not None:
            largest = max(0, min(largest, k_max))
        return ExpectedLatency(
            self._lookup_ms[: largest + 1],
            self._recall[: largest + 1],
            ranking.cumulative[: largest + 1],
            miss_ms,
        )

    def latency_of(self, object_ids: Iterable[str], ranking: Ranking, miss_ms: float) -> float:
        """E[L] in ms of a cache that holds exactly these objects, whatever their probabilities."""
        held = frozenset(object_ids)
        # A cache larger than the profile has the costs of the profile's largest size.
        k = min(len(held), len(self._lookup_ms) - 1)
        hit_ratio = float(self._recall[k]) * min(1.0, ranking.probability_of(held))
        return float(self._lookup_ms[k]) + (1.0 - hit_ratio) * miss_ms


def _why(terms: LatencyTerms, alternatives: Mapping[int, LatencyTerms], k_max: int) -> str:
    others = ", ".join(f"k={size}: {other.expected_ms:.2f} ms" for size, other in alternatives.items())
    sum_of_terms = (
        f"{terms.lookup_ms:.2f} ms lookup + (1 - {terms.recall:.3f} recall x "
        f"{terms.cached_probability:.3f} cached) x {terms.miss_ms:.1f} ms miss"
    )
    bound = " (the largest size allowed)" if terms.k == k_max else ""
    line = f"k={terms.k}{bound}: {terms.expected_ms:.2f} ms = {sum_of_terms}"
    return f"{line}; {others}" if others else line
