"""Plan a cache of approximate keys: size and back-off with the fewest inferences for a maximum error.

    python examples/plan_result_cache.py

The only input are counts of (key, class) from a log of the classifier; here they are generated.
"""

import sys

import numpy as np

from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.model import lru_hits, predict

TARGET = 0.01
"""Maximum share of wrong answers."""


def report() -> str:
    """All plans, and the best of those that meet the target."""
    rng = np.random.default_rng(1)
    popularity = 1 / np.arange(1, 2001) ** 0.9
    popularity /= popularity.sum()
    classes = [rng.dirichlet([0.05] * 6) for _ in popularity]

    best = (1.0, 0, 1.0)
    lines = ["   size  back-off  inferences  errors"]
    for size in (100, 300, 1000):
        hits = lru_hits(popularity, size)
        for beta in (1.1, 1.2, 1.5, 2.0):
            plan = predict(popularity, classes, hits, AutoRefresh(beta))
            lines.append(f"{size:7d}  {beta:8.1f}  {plan.inferences:10.3f}  {plan.errors:6.4f}")
            if plan.errors <= TARGET:
                best = min(best, (plan.inferences, size, beta))
    inferences, size, beta = best
    lines.append(f"at most {TARGET:.0%} wrong: size {size}, back-off {beta}; {inferences:.0%} are inferred")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report())
