"""Lookups in the result cache (key and dictionary) for each vector function, compared with a BallTree.

Each function has a full cache of its own. About half of the queried flows are in it. The BallTree of
scikit-learn holds the same number of flows, in all 100 dimensions. The ratio to it is computed per block.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

from nearsight.common.result_cache.approximations import Approximation, Vector
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles, times_ms
from nearsight.experiments.studies.approximate_keys.traffic import flows
from nearsight.experiments.studies.approximate_keys.traffic_figures import FUNCTIONS

QUICK = {"size": 2_000, "blocks": 3}
_IN_TREE, _IN_CACHE, _NEW = 20, 1000, 2000
"""Lookups per block in the tree and in each cache; number of new keys for each function."""


def run(report_step: ReportStep, size: int = 100_000, blocks: int = 10) -> Benchmark:
    """Measure lookups of all functions and of the BallTree in turn.

    Parameters
    ----------
    report_step : callable
        Called with the current step.
    size : int
        Results in each cache, and flows in the tree.
    blocks : int
        Blocks of each.

    Returns
    -------
    Benchmark
        For each function: function, size, time of a lookup (median_us, p25_us, p75_us, p99_us), lookups,
        median time of a miss and the insertion of a new key (new_us), median time in the BallTree
        (ball_tree_us), and the ratio to it (times_faster: median of blocks, least_faster, most_faster).
    """
    from sklearn.neighbors import BallTree  # noqa: PLC0415  takes long to import

    report_step(f"result cache: lookups among {size:,} results")
    rng = np.random.default_rng(1)
    traffic = flows(2 * size, rng).packets
    tree = BallTree(traffic[:size].astype(np.float64))
    caches: dict[str, ResultCache[bytes, int]] = {}
    for name, approx in FUNCTIONS.items():
        caches[name] = ResultCache(AutoRefresh(), size)
        for number in range(size):  # the flows may have fewer distinct keys
            caches[name].learn(number.to_bytes(16, "little"), 0, 0.0)
        for flow in traffic[:size]:
            caches[name].learn(approx(flow), 1, 0.0)
    in_tree: list[list[float]] = []
    in_cache: dict[str, list[list[float]]] = {name: [] for name in caches}
    for _ in range(blocks):
        queries = traffic[rng.integers(len(traffic), size=_IN_TREE)].astype(np.float64)
        in_tree.append(times_ms(lambda x: tree.query(x[None], 10), queries))
        for name, approx in FUNCTIONS.items():
            asked = traffic[rng.integers(len(traffic), size=_IN_CACHE + _IN_TREE)]
            times = times_ms(_lookup(approx, caches[name]), asked)
            in_cache[name].append(times[_IN_TREE:])  # the first lookups run with cold processor caches
    rows = [
        {"function": name, "size": size, "new_us": _new_us(caches[name]), **_summary(in_cache[name], in_tree)}
        for name in caches
    ]
    columns = {
        "function": "{function}",
        "median µs": "{median_us:.2f}",
        "quartiles µs": "{p25_us:.2f} … {p75_us:.2f}",
        "p99 µs": "{p99_us:.2f}",
        "new key µs": "{new_us:.2f}",
        "times faster than BallTree": "{times_faster:,.0f}",
        "blocks": "{least_faster:,.0f} … {most_faster:,.0f}",
    }
    return Benchmark("result-cache", f"One lookup among {size:,} results", columns, rows)


def _lookup(approx: Approximation, cache: ResultCache[bytes, int]) -> Callable[[Vector], object]:
    return lambda x: cache.find(approx(x), 0.0)


def _new_us(cache: ResultCache[bytes, int]) -> float:
    def ask(key: bytes) -> None:
        if cache.find(key, 0.0) is None:
            cache.learn(key, 1, 0.0)

    return 1e3 * statistics.median(times_ms(ask, [b"%016d" % number for number in range(_NEW)]))


def _summary(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, float]:
    times = [1e3 * one for block in ours for one in block]
    ratios = [
        statistics.median(slow) / statistics.median(fast) for slow, fast in zip(theirs, ours, strict=True)
    ]
    names = ("p25_us", "median_us", "p75_us", "p99_us")
    return {
        **dict(zip(names, percentiles(times, 25, 50, 75, 99), strict=True)),
        "lookups": len(times),
        "ball_tree_us": 1e3 * statistics.median(one for block in theirs for one in block),
        "times_faster": statistics.median(ratios),
        "least_faster": min(ratios),
        "most_faster": max(ratios),
    }
