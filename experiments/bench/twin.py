"""Speed of the twin: simulated device-seconds per second on one core, and the memory of a large simulation.

Each run has a process of its own, so that its memory can be measured. Warm-up, in which edges receive
requests of earlier visitors, is reported separately: its duration does not depend on the simulated time.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.links.link import TABLE_6_3
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import PhotoMaker
from nearsight.experiments.twin.session import ADAPTIVE, COOPERATIVE, LOAD_BALANCED, ONLY_CLOUD, TwinSession
from nearsight.experiments.twin.visitors import generate_visitors

_RECALL = ((200, 0.82), (400, 0.92), (600, 0.93), (800, 0.94))
_PHOTO_BYTES = (32_000.0, 0.4)
_SECOND_LOOK = 0.995
_OBJECTS = 400
_SEED = 1


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run: configuration, devices, edges, and simulated seconds."""

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
QUICK = {"sizes": (Size(LOAD_BALANCED, 20, 2, 10.0), Size(ADAPTIVE, 20, 2, 10.0))}


def run(report_step: ReportStep, sizes: Sequence[Size] = SIZES) -> Benchmark:
    """Measure each size in a process of its own.

    Returns
    -------
    Benchmark
        For each size: configuration, devices, edges, seconds, photos (requests), the duration of warm-up and
        of the replay (warming_s, replay_s), simulated seconds of all devices per second of the replay
        (device_seconds_per_s), events_per_s of the whole run, and the peak resident memory (memory_mib).
    """
    report_step("twin: simulating devices and edges")
    context = multiprocessing.get_context("spawn")
    rows = []
    for size in sizes:
        with context.Pool(1) as pool:
            rows.append(pool.apply(_measure, (size,)))
    columns = {
        "configuration": "{configuration}",
        "devices": "{devices:,}",
        "edges": "{edges:,}",
        "photos": "{requests:,}",
        "warming s": "{warming_s:.1f}",
        "replay s": "{replay_s:.1f}",
        "device s / s": "{device_seconds_per_s:,.0f}",
        "MiB": "{memory_mib:.0f}",
    }
    title = "Twin, one core: simulated device-seconds per second"
    return Benchmark("twin", title, columns, rows)


def _measure(size: Size) -> dict[str, Any]:
    rng = np.random.default_rng(_SEED)
    object_ids = [f"{number + 1:04d}" for number in range(_OBJECTS)]
    visitors, transitions = generate_visitors(
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
        seed=_SEED,
    )
    seen: list[float] = []
    started_s = time.perf_counter()
    outcome = session.play(size.configuration, on_second=lambda _s: seen.append(time.perf_counter()))
    ended_s = time.perf_counter()
    return {
        **asdict(size),
        "requests": len(outcome.rows),
        "warming_s": round(seen[0] - started_s, 3),
        "replay_s": round(ended_s - seen[0], 3),
        "device_seconds_per_s": round(size.devices * size.seconds / (ended_s - seen[0]), 1),
        "events_per_s": round(outcome.events / (ended_s - started_s), 1),
        "memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
