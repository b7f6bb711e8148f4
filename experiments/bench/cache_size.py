"""Choice of k: the exact minimum in numpy, a plain Python loop, and the dissertation's "gradient descent".

Three methods on the same distribution and profile, in one run:

- ``exact``: `choose_size`, all sizes at once;
- ``python loop``: equation 3.4 for each size;
- ``local scan``: "gradient descent" as in the authors' programs: move to the best size within a distance of
  10 while it is better.
  It is cheap, but stops in the first local minimum.

The whole decision is also measured: ranking of the objects by popularity, choice and explanation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from nearsight.common.object_cache.profile import CacheProfile, ProfileCurves
from nearsight.edge.cache_size import Costs, choose_size
from nearsight.edge.request_distribution import Ranking, RequestDistribution
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles, times_ms
from nearsight.experiments.framework.numbers import zipf

QUICK = {"repeats": 30}
_SCAN_RADIUS = 10
_MISS_MS = 370.0
_SEED = 1


def run(report_step: ReportStep, objects: int = 10_000, repeats: int = 200) -> Benchmark:
    """Measure every method to choose k.

    Parameters
    ----------
    report_step : callable
        Called with the current step.
    objects : int
        Objects in the catalogue; requests for them follow a Zipf law with exponent 0.8.
    repeats : int
        Repetitions of the fast methods; slow methods have a tenth.

    Returns
    -------
    Benchmark
        For each method: method, objects, the chosen k, the expected latency at that size (expected_ms), the
        time of the choice (median_ms, p25_ms, p75_ms) and repeats.
    """
    report_step(f"cache size: choosing k for {objects:,} objects")
    distribution = _distribution(objects)
    profile = CacheProfile(
        backend="table 3.2 scaled to this many objects",
        query_features=800,
        largest_k=objects,
        lookup_ms=(51.14, 1.87 * 400 / objects),
        recall=(0.90, -0.00014 * 400 / objects),
    )
    curves = profile.curves(objects)
    ranking = distribution.ranking(0.0)
    costs = Costs(curves.lookup_ms, curves.recall, _MISS_MS)

    few = max(3, repeats // 10)
    ways: list[tuple[str, Callable[[int], int], int]] = [
        ("exact", lambda _: choose_size(costs, ranking).k, repeats),
        ("exact, with ranking", lambda _: choose_size(costs, distribution.ranking(0.0)).k, repeats),
        ("python loop", lambda _: _python_loop(curves, ranking), few),
        ("local scan from 0", lambda _: _local_scan(curves, ranking, 0), repeats),
        ("local scan from half", lambda _: _local_scan(curves, ranking, objects // 2), few),
    ]
    rows = []
    for name, choose, count in ways:
        k = choose(0)
        p25, median, p75 = percentiles(times_ms(choose, range(count)), 25, 50, 75)
        rows.append(
            {
                "method": name,
                "objects": objects,
                "k": k,
                "expected_ms": _expected_ms(curves, ranking, k),
                "median_ms": median,
                "p25_ms": p25,
                "p75_ms": p75,
                "repeats": count,
            }
        )
    columns = {
        "method": "{method}",
        "k": "{k}",
        "E[L] ms": "{expected_ms:.2f}",
        "median ms": "{median_ms:.3f}",
        "quartiles ms": "{p25_ms:.3f} … {p75_ms:.3f}",
    }
    return Benchmark("cache-size", f"Choosing k for {objects:,} objects", columns, rows)


def _expected_ms(curves: ProfileCurves, ranking: Ranking, k: int) -> float:
    """Expected latency, equation 3.4."""
    return float(curves.lookup_ms[k] + (1 - curves.recall[k] * ranking.cumulative[k]) * _MISS_MS)


def _distribution(objects: int) -> RequestDistribution:
    names = [f"{index:05d}" for index in range(objects)]
    distribution = RequestDistribution(names)
    rng = np.random.default_rng(_SEED)
    for index in rng.choice(objects, size=3 * objects, p=zipf(objects, 0.8)):
        distribution.count(names[index], 0.0)
    return distribution


def _python_loop(curves: ProfileCurves, ranking: Ranking) -> int:
    best, best_ms, cached = 0, curves.lookup_ms[0] + _MISS_MS, 0.0
    for k, probability in enumerate(ranking.probabilities, start=1):
        cached += probability
        latency_ms = curves.lookup_ms[k] + (1 - curves.recall[k] * cached) * _MISS_MS
        if latency_ms < best_ms:
            best, best_ms = k, latency_ms
    return best


def _local_scan(curves: ProfileCurves, ranking: Ranking, start: int) -> int:
    k, latency_ms = start, partial(_expected_ms, curves, ranking)
    while True:
        near = range(max(0, k - _SCAN_RADIUS), min(len(ranking), k + _SCAN_RADIUS) + 1)
        best = min(near, key=latency_ms)
        if latency_ms(best) >= latency_ms(k):
            return k
        k = best
