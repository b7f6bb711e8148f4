"""Throughput of the simulator that replays requests through the model cache, for every policy.

Models are CremeBrulee's with their sizes; each function has its own model. The budget is a fifth of their
memory. Rates are the papers'; the arrival process is Poisson. Each policy replays the same trace several
times, each time with a new cache.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.registry import make_policy, policy_names
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.model_serving.simulation import knowledge_of, replay
from nearsight.experiments.model_serving.zoo import cremebrulee_models
from nearsight.experiments.traces.arrivals import CREMEBRULEE, Poisson, rarely_called
from nearsight.experiments.traces.model_requests import Association, associate, own_models

QUICK = {"functions": 300, "repetitions": 2}
_MEMORY = 0.2
"""Budget as a share of the memory of all models."""


def run(report_step: ReportStep, functions: int = 3_500, repetitions: int = 5) -> Benchmark:
    """Replay six hours of requests for the models of ``functions`` functions with every policy.

    Returns
    -------
    Benchmark
        For each policy: policy, requests, models, requests per second (requests_per_s: median of repetitions,
        least_per_s, most_per_s), hit_ratio, load_ms (mean over requests).
    """
    report_step("model cache: replaying requests")
    rng = np.random.default_rng(1)
    zoo = cremebrulee_models()
    rates_hz = rarely_called(CREMEBRULEE.draw(functions, rng), 0.95)
    chosen = associate(rates_hz, np.array([one.load_ms for one in zoo.values()]), Association.UNIFORM, rng)
    times_s, called = Poisson().segments(rates_hz, 6 * 3600.0, rng).events(rng)
    requests, models = own_models(times_s, called, chosen, tuple(zoo))
    costs = dict(zip(requests.names, ([*zoo.values()][one] for one in chosen[models].tolist()), strict=True))
    budget_bytes = int(_MEMORY * sum(one.size_bytes for one in costs.values()))
    knowledge = knowledge_of(requests)
    rows: list[dict[str, Any]] = []
    for name in policy_names():
        timed = []
        for _ in range(repetitions):
            cache = ModelCache(budget_bytes, make_policy(name, knowledge))
            started_s = time.perf_counter()
            served = replay(requests, costs, cache)
            timed.append((len(requests) / (time.perf_counter() - started_s), served))
        speeds = [speed for speed, _ in timed]
        rows.append(
            {
                "policy": name,
                "requests": len(requests),
                "models": len(requests.names),
                "requests_per_s": statistics.median(speeds),
                "least_per_s": min(speeds),
                "most_per_s": max(speeds),
                "hit_ratio": timed[0][1].hit_ratio,
                "load_ms": timed[0][1].load_ms_per_request,
            }
        )
    columns = {
        "policy": "{policy}",
        "requests/s": "{requests_per_s:,.0f}",
        "range": "{least_per_s:,.0f} … {most_per_s:,.0f}",
        "hit ratio": "{hit_ratio:.3f}",
        "load ms per request": "{load_ms:,.1f}",
    }
    title = f"Replay of {len(requests):,} requests for {len(requests.names):,} models, memory for a fifth"
    return Benchmark("model-cache", title, columns, rows)
