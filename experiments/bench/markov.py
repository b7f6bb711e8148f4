"""The Markov model at the size of a large catalogue: memory, and the time of one PDF and one observation.

10,000 objects and a million different transitions, in a process of its own so that the memory is the
model's: resident memory after minus before.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import psutil

from nearsight.common.object_cache.markov import MarkovModel, MarkovSettings, TransitionCount


@dataclass(frozen=True, slots=True)
class MarkovRow:
    """One operation, timed.

    Attributes
    ----------
    operation : str
        Which.
    objects, transitions : int
        Size of the model.
    model_mib : float
        Resident memory that the model takes.
    median_ms, p99_ms : float
        Time of the operation.
    repeats : int
        Measurements.
    """

    operation: str
    objects: int
    transitions: int
    model_mib: float
    median_ms: float
    p99_ms: float
    repeats: int


def run(
    objects: int = 10_000, transitions: int = 1_000_000, repeats: int = 500, seed: int = 1
) -> tuple[MarkovRow, ...]:
    """Measure; one row per operation.

    Parameters
    ----------
    objects : int
        Objects in the catalogue.
    transitions : int
        Different transitions, from each object to its popular and to any others.
    repeats : int
        Measurements of each operation.
    seed : int
        Of the transitions.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (objects, transitions, repeats, seed))


def rows_as_json(rows: tuple[MarkovRow, ...]) -> list[dict[str, object]]:
    """Rows for ``--json``."""
    return [asdict(row) for row in rows]


def _measure(objects: int, transitions: int, repeats: int, seed: int) -> tuple[MarkovRow, ...]:
    rng = np.random.default_rng(seed)
    names = [f"object-{number:05d}" for number in range(objects)]
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    model = _learned(names, transitions, rng)
    gc.collect()
    model_mib = (process.memory_info().rss - before) / 2**20
    asked = [names[number] for number in rng.integers(objects, size=repeats).tolist()]
    operations: list[tuple[str, Callable[[str], object]]] = [
        ("PDF, top 50", lambda name: model.next_objects(name, 0.0, 50)),
        ("PDF, top 500", lambda name: model.next_objects(name, 0.0, 500)),
        ("PDF, all objects", lambda name: model.next_objects(name, 0.0)),
        ("observe", lambda name: model.observe("device", name, 0.0)),
    ]
    return tuple(
        MarkovRow(name, objects, model.transitions, model_mib, *_time(operation, asked), repeats)
        for name, operation in operations
    )


def _learned(names: list[str], transitions: int, rng: np.random.Generator) -> MarkovModel:
    model = MarkovModel(names, MarkovSettings(order=1))
    per_object = transitions // len(names)
    weights = np.arange(1, len(names) + 1) ** -0.8
    popularity = weights / weights.sum()
    model.restore((TransitionCount((), name, 1.0) for name in names), 0.0)
    for position, name in enumerate(names):
        after = rng.choice(len(names), size=per_object + 1, replace=False, p=popularity)
        others = after[after != position][:per_object].tolist()
        counts = rng.geometric(0.5, size=per_object).tolist()
        stored = zip(others, counts, strict=True)
        model.restore((TransitionCount((name,), names[other], float(count)) for other, count in stored), 0.0)
    return model


def _time(operation: Callable[[str], object], asked: list[str]) -> tuple[float, float]:
    operation(asked[0])
    times_ms = []
    for name in asked:
        started_s = time.perf_counter()
        operation(name)
        times_ms.append((time.perf_counter() - started_s) * 1e3)
    median, p99 = np.percentile(times_ms, [50, 99])
    return float(median), float(p99)
