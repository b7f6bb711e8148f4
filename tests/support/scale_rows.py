"""Stored rows of a figure with a p50 that a test defines; machines without a measurement."""

import json
from collections.abc import Callable

from nearsight.experiments.rig.rows import RECOGNIZED, RequestRow
from nearsight.experiments.rig.session import Played
from nearsight.experiments.studies.cachier.scale.configurations import ORDER
from nearsight.experiments.studies.cachier.scale.machines import Machines
from nearsight.experiments.studies.cachier.scale.operating_point import OperatingPoint
from nearsight.experiments.studies.cachier.scale.photos import PhotoKind
from nearsight.experiments.studies.cachier.scale.session_numbers import session_row
from nearsight.experiments.twin.cost_model import CostModel, Hardware

ASSUMED = CostModel.assumed()
MACHINES = Machines(ASSUMED, Hardware(), PhotoKind.of(ASSUMED))
P50 = Callable[[OperatingPoint, str], float]


def stored_rows(
    points: list[OperatingPoint],
    p50: P50,
    *,
    costs: str = "measured",
    runs: int = 2,
    unknown: float = 0.0,
    smoke: bool = False,
) -> list[dict[str, str]]:
    """One row per point, configuration and run; the latency increases by 1 ms with each run."""
    configuration = json.dumps({"on": "twin", "costs": costs, "smoke": smoke})
    cpu_s, cores = {"edge": 1.0, "cloud": 2.0}, {"edge": 8, "cloud": 24}
    found = []
    for point in points:
        for tiers in ORDER:
            for run in range(1, runs + 1):
                latency_ms = p50(point, tiers) + run - 1
                asked = RequestRow(tiers, "v", 0, 0.0, 0.0, "a", "a", RECOGNIZED, 1, "edge", latency_ms)
                played = Played((asked,), None, cpu_s=cpu_s, seconds=10.0, up_bytes=10_000, down_bytes=1_000)
                row = session_row(point, tiers, run, played, cores, unknown)
                found.append(
                    {**{name: str(value) for name, value in row.items()}, "configuration": configuration}
                )
    return found
