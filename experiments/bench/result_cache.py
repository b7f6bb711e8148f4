"""A lookup in the result cache, key and dictionary, for each vector function, beside a BallTree.

Each function has a full cache of its own. Half of the flows that are looked up have a key in it. The
BallTree of scikit-learn holds as many flows, in all 100 dimensions. The ratio to it is taken block by block.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import BallTree

from nearsight.common.result_cache.approximations import Approximation
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.experiments.bench.benchmark import Benchmark, Tell, percentiles, times_ms
from nearsight.experiments.studies.approximate_keys.traffic import flows
from nearsight.experiments.studies.approximate_keys.traffic_figures import FUNCTIONS

_SEED, _BETA, _NEIGHBOURS = 1, 1.5, 10
_BLOCK = 20
"""Lookups in a BallTree before each function has its turn; functions have 50 times as many."""


def bench_result_cache(quick: bool, tell: Tell) -> Benchmark:
    """Lookups among 100,000 results."""
    size, blocks = (2_000, 3) if quick else (100_000, 10)
    tell(f"result cache: lookups among {size:,} results")
    columns = {
        "function": "{function}",
        "median µs": "{median_us:.2f}",
        "quartiles µs": "{p25_us:.2f} … {p75_us:.2f}",
        "p99 µs": "{p99_us:.2f}",
        "new key µs": "{new_us:.2f}",
        "times faster than BallTree": "{times_faster:,.0f}",
        "blocks": "{least_faster:,.0f} … {most_faster:,.0f}",
    }
    rows = run(size, blocks)
    title = f"One lookup among {size:,} results; BallTree: {rows[0]['ball_tree_us']:,.0f} µs"
    return Benchmark("result-cache", title, columns, rows)


def run(size: int, blocks: int) -> list[dict[str, Any]]:
    """Time lookups of all functions and of the BallTree in turn.

    Parameters
    ----------
    size : int
        Results in each cache, and flows in the tree.
    blocks : int
        Turns of each.

    Returns
    -------
    list of dict
        Of each function: function, size, time of a lookup (median_us, p25_us, p75_us, p99_us), lookups,
        median time of a new key that evicts another one (new_us), median time in the BallTree
        (ball_tree_us), and how many times faster the function is (times_faster: median of blocks,
        least_faster, most_faster).
    """
    asked = _BLOCK * 50 * blocks
    traffic = flows(size + asked, np.random.default_rng(_SEED)).packets
    tree = BallTree(traffic[:size].astype(np.float64))
    caches = {name: _filled(approx, traffic, size) for name, approx in FUNCTIONS.items()}
    rng = np.random.default_rng(_SEED)
    tree_us: list[list[float]] = []
    lookups: dict[str, list[list[float]]] = {name: [] for name in caches}
    for _ in range(blocks):
        queries = traffic[rng.integers(len(traffic), size=_BLOCK)].astype(np.float64)
        tree_us.append(_us(times_ms(lambda x: tree.query(x[None], _NEIGHBOURS), queries)))
        for name, cache in caches.items():
            approx = FUNCTIONS[name]
            known, other = rng.integers(size, size=25 * _BLOCK), rng.integers(len(traffic), size=25 * _BLOCK)
            flows_asked = traffic[rng.permutation(np.concatenate([known, other]))]
            operation = lambda x, approx=approx, cache=cache: cache.find(approx(x), 0.0)  # noqa: E731
            times_ms(operation, flows_asked[:_BLOCK])  # the tree has emptied the processor's caches
            lookups[name].append(_us(times_ms(operation, flows_asked)))
    return [_row(name, size, lookups[name], tree_us, _new_us(caches[name])) for name in caches]


def _filled(approx: Approximation, traffic: NDArray[np.int16], size: int) -> ResultCache[bytes, int]:
    """Of the flows' keys, and of other keys where these are fewer than ``size``."""
    cache: ResultCache[bytes, int] = ResultCache(AutoRefresh(_BETA), size)
    for number in range(size):
        cache.learn(number.to_bytes(16, "little"), 0, 0.0)
    for flow in traffic[:size]:
        cache.learn(approx(flow), 1, 0.0)
    return cache


def _new_us(cache: ResultCache[bytes, int]) -> float:
    """Median time in which a key that is not there is looked for and learnt."""

    def ask(key: bytes) -> None:
        if cache.find(key, 0.0) is None:
            cache.learn(key, 1, 0.0)

    new = [number.to_bytes(16, "big") for number in range(1, 2001)]
    return statistics.median(_us(times_ms(ask, new)))


def _us(times: list[float]) -> list[float]:
    return [1e3 * one for one in times]


def _row(
    name: str, size: int, lookups: list[list[float]], tree: list[list[float]], new_us: float
) -> dict[str, Any]:
    times = [one for block in lookups for one in block]
    ratios = [
        statistics.median(theirs) / statistics.median(ours)
        for theirs, ours in zip(tree, lookups, strict=True)
    ]
    p25, median, p75, p99 = percentiles(times, 25, 50, 75, 99)
    return {
        "function": name,
        "size": size,
        "median_us": median,
        "p25_us": p25,
        "p75_us": p75,
        "p99_us": p99,
        "lookups": len(times),
        "new_us": new_us,
        "ball_tree_us": statistics.median(one for block in tree for one in block),
        "times_faster": statistics.median(ratios),
        "least_faster": min(ratios),
        "most_faster": max(ratios),
    }
