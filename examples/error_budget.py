"""A budget of wrong answers instead of a back-off, and finer keys where coarse keys are not sufficient.

    python examples/error_budget.py

A reading is a family, a kind and noise. Half of the families have one class each; in the others the kind
determines the class. One reading in 50 has a different class, which no key can predict. In the second half,
other families become frequent.
"""

import sys
from random import Random

import numpy as np

from nearsight import ApproximateKeyCache
from nearsight.common.result_cache.approximations import prefix
from nearsight.common.result_cache.budget import Budget


def classify(reading: tuple[int, int, int]) -> str:
    """Represents a slow classifier, such as a neural network."""
    family, kind, noise = reading
    if noise % 50 == 0:
        return "odd"
    return f"family {family}" if family % 2 else f"family {family}, kind {kind}"


def report(lookups: int = 100_000) -> str:
    """Look up readings in two halves, with a budget of 1 %, and report hits and errors."""
    rng = np.random.default_rng(1)
    cache = ApproximateKeyCache(
        (prefix(1), prefix(2)),
        classify,
        budget=Budget(error=0.01),
        rng=Random(1),  # this example has the same output each time
    )
    lines = ["half   served   wrong   estimated since the beginning        alarm"]
    for half, shift in enumerate((0, 37), 1):
        families = (rng.zipf(1.3, lookups) + shift) % 200
        readings = np.column_stack([families, rng.integers(0, 5, lookups), rng.integers(0, 10**6, lookups)])
        served, wrong = cache.counts.served, 0
        for reading in readings.tolist():
            wrong += cache.lookup(reading) != classify(reading)
        served = cache.counts.served - served
        lines.append(
            f"{half:4d}   {served / lookups:6.1%}  {wrong / lookups:6.2%}   "
            f"{cache.wrong_share:.2%} of the served, at most {cache.wrong_share_bound:.2%}   {cache.alarm}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report())
