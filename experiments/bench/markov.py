"""The Markov model with a large catalogue: memory, and the time of one PDF and of one observation.

10,000 objects and a million different transitions, in a process of its own. The memory of the model is the
resident memory after minus before.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from nearsight.common.object_cache.markov import MarkovModel, MarkovSettings, TransitionCount
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles, times_ms
from nearsight.experiments.framework.numbers import zipf

QUICK = {"objects": 500, "transitions": 20_000, "repeats": 50}


def run(
    report_step: ReportStep, objects: int = 10_000, transitions: int = 1_000_000, repeats: int = 500
) -> Benchmark:
    """Measure operations of a model.

    Parameters
    ----------
    report_step : callable
        Called with the current step.
    objects : int
        Objects in the catalogue.
    transitions : int
        Number of different transitions; targets are drawn by popularity.
    repeats : int
        Repetitions of each operation.

    Returns
    -------
    Benchmark
        For each operation: operation, size of the model (objects, transitions), its resident memory
        (model_mib), time of the operation (median_ms, p99_ms) and repeats.
    """
    report_step("markov: adding transitions between the objects of a large catalogue")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        rows = pool.apply(_measure, (objects, transitions, repeats))
    size = "{objects:,} objects, {transitions:,} transitions: {model_mib:.0f} MiB".format_map(rows[0])
    columns = {"operation": "{operation}", "median ms": "{median_ms:.3f}", "p99 ms": "{p99_ms:.3f}"}
    return Benchmark("markov", f"Markov model, {size}", columns, rows)


def _measure(objects: int, transitions: int, repeats: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    names = [f"object-{number:05d}" for number in range(objects)]
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    model = _trained_model(names, transitions, rng)
    gc.collect()
    model_mib = (process.memory_info().rss - before) / 2**20
    asked = [names[number] for number in rng.integers(objects, size=repeats).tolist()]
    operations: list[tuple[str, Callable[[str], object]]] = [
        ("PDF, top 50", lambda name: model.next_objects(name, 0.0, 50)),
        ("PDF, top 500", lambda name: model.next_objects(name, 0.0, 500)),
        ("PDF, all objects", lambda name: model.next_objects(name, 0.0)),
        ("observe", lambda name: model.observe("device", name, 0.0)),
    ]
    rows, size = [], model.transitions
    for name, operation in operations:
        operation(asked[0])
        median, p99 = percentiles(times_ms(operation, asked), 50, 99)
        rows.append(
            {
                "operation": name,
                "objects": objects,
                "transitions": size,
                "model_mib": model_mib,
                "median_ms": median,
                "p99_ms": p99,
                "repeats": repeats,
            }
        )
    return rows


def _trained_model(names: list[str], transitions: int, rng: np.random.Generator) -> MarkovModel:
    model = MarkovModel(names, MarkovSettings(order=1))
    per_object = transitions // len(names)
    popularity = zipf(len(names), 0.8)
    model.restore((TransitionCount((), name, 1.0) for name in names), 0.0)
    for position, name in enumerate(names):
        after = rng.choice(len(names), size=per_object + 1, replace=False, p=popularity)
        others = after[after != position][:per_object].tolist()
        counts = rng.geometric(0.5, size=per_object).tolist()
        stored = zip(others, counts, strict=True)
        model.restore((TransitionCount((name,), names[other], float(count)) for other, count in stored), 0.0)
    return model
