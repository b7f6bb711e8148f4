"""How fast the twin is: simulated device-seconds per second, on one core, and what a large one needs.

Each run has a process of its own, so that the memory is its own. Warming, during which edges learn from
earlier visitors, is told apart: it does not grow with the time that devices are followed.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import asdict, dataclass

import numpy as np

from nearsight.experiments.links.networks import TABLE_6_3
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import PhotoMaker
from nearsight.experiments.twin.session import (
    ADAPTIVE,
    CONFIGURATIONS,
    COOPERATIVE,
    LOAD_BALANCED,
    ONLY_CLOUD,
    TwinSession,
)
from nearsight.experiments.twin.visitors import generated

_RECALL = ((200, 0.82), (400, 0.92), (600, 0.93), (800, 0.94))
_PHOTO_BYTES = (32_000.0, 0.4)
_SECOND_LOOK = 0.995
_OBJECTS = 400


@dataclass(frozen=True, slots=True)
class Size:
    """A run: a configuration, devices, edges, and seconds that devices are followed for."""

    configuration: str
    devices: int
    edges: int
    seconds: float


SIZES = (
    Size(ONLY_CLOUD, 100, 1, 120.0),
    Size(LOAD_BALANCED, 100, 1, 120.0),
    Size(ADAPTIVE, 100, 1, 120.0),
    Size(COOPERATIVE, 100, 1, 120.0),
    Size(ADAPTIVE, 10_000, 100, 30.0),
)
QUICK_SIZES = (Size(LOAD_BALANCED, 20, 2, 10.0), Size(ADAPTIVE, 20, 2, 10.0))


@dataclass(frozen=True, slots=True)
class TwinRow:
    """One run, timed.

    Attributes
    ----------
    configuration, devices, edges, seconds
        As of `Size`.
    requests : int
        Photos.
    warming_s, replay_s : float
        Time that they took; everything counts that a replay needs.
    device_seconds_per_s : float
        Simulated seconds of all devices over ``replay_s``.
    events_per_s : float
        Of the whole run.
    memory_mib : float
        Largest resident memory of the process.
    """

    configuration: str
    devices: int
    edges: int
    seconds: float
    requests: int
    warming_s: float
    replay_s: float
    device_seconds_per_s: float
    events_per_s: float
    memory_mib: float


def run(sizes: tuple[Size, ...] = SIZES, seed: int = 1) -> tuple[TwinRow, ...]:
    """Measure; one row per size."""
    return tuple(_alone(size, seed) for size in sizes)


def rows_as_json(rows: tuple[TwinRow, ...]) -> list[dict[str, object]]:
    """Rows for ``--json``."""
    return [asdict(row) for row in rows]


def _alone(size: Size, seed: int) -> TwinRow:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (size, seed))


def _measure(size: Size, seed: int) -> TwinRow:
    rng = np.random.default_rng(seed)
    object_ids = [f"{number + 1:04d}" for number in range(_OBJECTS)]
    visitors, transitions = generated(
        PhotoMaker(_RECALL, _SECOND_LOOK, _PHOTO_BYTES, rng),
        object_ids,
        Following(size.devices, size.seconds, unknown_share=0.05),
        sections=3,
        edges=size.edges,
        rng=rng,
    )
    session = TwinSession(
        object_ids,
        visitors,
        CostModel.assumed(),
        TABLE_6_3["Medium"],
        transitions,
        edges=size.edges,
        seed=seed,
    )
    seen: list[float] = []
    started_s = time.perf_counter()
    outcome = session.play(
        size.configuration, CONFIGURATIONS[size.configuration], lambda _s: seen.append(time.perf_counter())
    )
    ended_s = time.perf_counter()
    return TwinRow(
        size.configuration,
        size.devices,
        size.edges,
        size.seconds,
        len(outcome.rows),
        round(seen[0] - started_s, 3),
        round(ended_s - seen[0], 3),
        round(size.devices * size.seconds / (ended_s - seen[0]), 1),
        round(outcome.events / (ended_s - started_s), 1),
        round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    )
