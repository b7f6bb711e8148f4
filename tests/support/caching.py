"""Request distributions and profiles with known answers."""

import numpy as np

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.edge.request_distribution import Ranking


def ranking_of(probabilities: np.ndarray, seen: int | None = None) -> Ranking:
    """Objects "0", "1", … with these descending probabilities; all, or the first ``seen``, were requested."""
    count = len(probabilities)
    names = tuple(map(str, range(count)))
    cumulative = np.minimum(np.concatenate([[0.0], np.cumsum(probabilities)]), 1.0)
    positions = {name: position for position, name in enumerate(names)}
    return Ranking(
        names, positions, np.arange(count), probabilities, cumulative, count if seen is None else seen
    )


def zipf_ranking(count: int, exponent: float) -> Ranking:
    """A Zipf distribution: p_i is proportional to i^-exponent."""
    weights = np.arange(1, count + 1, dtype=float) ** -exponent
    return ranking_of(weights / weights.sum())


def profile_of_table_3_2() -> CacheProfile:
    """The dissertation's LSH on the Stanford set: f(k) = 51.14 + 1.87k ms, recall(k) = 0.90 - 0.00014k."""
    return CacheProfile(
        backend="flann-lsh",
        query_features=800,
        largest_k=400,
        lookup_ms=(51.14, 1.87),
        recall=(0.90, -0.00014),
    )
