"""Choosing k: the exact minimum in numpy against what one would write first, and the dissertation's search.

Three ways to the same number, on the same distribution and profile, in one run:

- ``exact``: `CacheSizeOptimizer`, every size at once;
- ``python loop``: equation 3.4 size by size;
- ``local scan``: the dissertation's "gradient descent": while a size within 10 is better, go there. It is
  cheap, but stops in the first local minimum.

The whole decision is timed too: ranking the objects by popularity, the choice and its explanation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from nearsight.common.object_cache.profile import CacheProfile, ProfileCurves
from nearsight.edge.cache_size import CacheSizeOptimizer
from nearsight.edge.request_distribution import Ranking, RequestDistribution

_SCAN_RADIUS = 10


@dataclass(frozen=True, slots=True)
class CacheSizeRow:
    """One way to choose k, timed.

    Attributes
    ----------
    method : str
        Which way.
    objects : int
        Objects in the catalogue, all of them candidates.
    k : int
        What it chose.
    expected_ms : float
        Expected latency at that size.
    median_ms, p25_ms, p75_ms : float
        Time to choose.
    repeats : int
        Measurements.
    """

    method: str
    objects: int
    k: int
    expected_ms: float
    median_ms: float
    p25_ms: float
    p75_ms: float
    repeats: int


def run(
    objects: int = 10_000, repeats: int = 200, seed: int = 1, miss_ms: float = 370.0
) -> tuple[CacheSizeRow, ...]:
    """Time every way; one row each.

    Parameters
    ----------
    objects : int
        Objects in the catalogue; requests for them follow a Zipf law with exponent 0.8.
    repeats : int
        Measurements of the fast ways; slow ones get a tenth.
    seed : int
        Of the requests.
    miss_ms : float
        L_miss.
    """
    distribution = _distribution(objects, seed)
    profile = CacheProfile(
        backend="table 3.2 scaled to this many objects",
        query_features=800,
        largest_k=objects,
        lookup_ms=(51.14, 1.87 * 400 / objects),
        recall=(0.90, -0.00014 * 400 / objects),
    )
    curves = profile.curves(objects)
    ranking = distribution.ranking(0.0)
    optimizer = CacheSizeOptimizer(curves.lookup_ms, curves.recall)

    def whole_decision() -> int:
        return optimizer.decide(distribution.ranking(0.0), miss_ms).k

    ways: list[tuple[str, Callable[[], int], int]] = [
        ("exact", lambda: optimizer.decide(ranking, miss_ms).k, repeats),
        ("exact, with ranking", whole_decision, repeats),
        ("python loop", lambda: _python_loop(curves, ranking, miss_ms), max(3, repeats // 10)),
        ("local scan from 0", lambda: _local_scan(curves, ranking, miss_ms, 0), repeats),
        (
            "local scan from half",
            lambda: _local_scan(curves, ranking, miss_ms, objects // 2),
            max(3, repeats // 10),
        ),
    ]
    return tuple(_time(name, choose, count, curves, ranking, miss_ms) for name, choose, count in ways)


def rows_as_json(rows: tuple[CacheSizeRow, ...]) -> list[dict[str, object]]:
    """Rows for ``--json``."""
    return [asdict(row) for row in rows]


def _distribution(objects: int, seed: int) -> RequestDistribution:
    names = [f"{index:05d}" for index in range(objects)]
    distribution = RequestDistribution(names)
    weights = np.arange(1, objects + 1) ** -0.8
    rng = np.random.default_rng(seed)
    for index in rng.choice(objects, size=3 * objects, p=weights / weights.sum()):
        distribution.count(names[index], 0.0)
    return distribution


def _python_loop(curves: ProfileCurves, ranking: Ranking, miss_ms: float) -> int:
    best, best_ms, cached = 0, curves.lookup_ms[0] + miss_ms, 0.0
    for k, probability in enumerate(ranking.probabilities, start=1):
        cached += probability
        latency_ms = curves.lookup_ms[k] + (1 - curves.recall[k] * cached) * miss_ms
        if latency_ms < best_ms:
            best, best_ms = k, latency_ms
    return best


def _local_scan(curves: ProfileCurves, ranking: Ranking, miss_ms: float, start: int) -> int:
    def latency_ms(k: int) -> float:
        return float(curves.lookup_ms[k] + (1 - curves.recall[k] * ranking.cumulative[k]) * miss_ms)

    k = start
    while True:
        near = range(max(0, k - _SCAN_RADIUS), min(len(ranking), k + _SCAN_RADIUS) + 1)
        best = min(near, key=latency_ms)
        if latency_ms(best) >= latency_ms(k):
            return k
        k = best


def _time(
    name: str,
    choose: Callable[[], int],
    repeats: int,
    curves: ProfileCurves,
    ranking: Ranking,
    miss_ms: float,
) -> CacheSizeRow:
    k = choose()
    times_ms = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        choose()
        times_ms.append((time.perf_counter() - started_s) * 1e3)
    p25, median, p75 = np.percentile(times_ms, [25, 50, 75])
    expected_ms = curves.lookup_ms[k] + (1 - curves.recall[k] * ranking.cumulative[k]) * miss_ms
    return CacheSizeRow(
        name, len(ranking), k, float(expected_ms), float(median), float(p25), float(p75), repeats
    )
