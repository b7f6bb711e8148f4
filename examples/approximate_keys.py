"""A classifier with a cache of approximate keys: no daemon, no network.

    python examples/approximate_keys.py

Sensors send 100 readings. The first ten nearly always determine the class.
"""

import sys
import time

import numpy as np

from nearsight import ApproximateKeyCache
from nearsight.common.result_cache.approximations import prefix, quantize


def classify(readings: np.ndarray) -> str:
    """Represents a slow classifier, such as a neural network."""
    time.sleep(0.002)
    return "rising" if readings[:10].sum() + 0.05 * readings[10:].sum() > 0 else "falling"


def report() -> str:
    """Look up 2,000 readings, and report hits and errors."""
    rng = np.random.default_rng(1)
    kinds = rng.normal(0, 10, (20, 100)).round()
    cache = ApproximateKeyCache(prefix(10) | quantize(4), classify, beta=1.5)
    for kind in rng.zipf(1.5, 2_000) % 20:
        cache.lookup(kinds[kind] + rng.normal(0, 0.3, 100))
    counts, wrong, most = cache.counts, cache.wrong_share, cache.wrong_share_bound
    return (
        f"{counts.lookups} lookups: {counts.served} served, {counts.missed} missed, "
        f"{counts.verifying} verified\n"
        f"wrong among the served: {wrong:.1%}, at most {most:.1%} with 97.5 % confidence\n"
    )


if __name__ == "__main__":
    sys.stdout.write(report())
