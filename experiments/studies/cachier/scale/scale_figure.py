"""Figures of sections 6.3 to 6.6: one variable, six configurations, four runs with other traces each.

Figures of one variable share their rows and show different metrics. Figures of different variables share the
cells of the baseline, which are measured only once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.logging import configure_logging
from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    ON_MACHINES,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.numbers import leaves, nested
from nearsight.experiments.studies.cachier.scale.configurations import NAMES, ORDER
from nearsight.experiments.studies.cachier.scale.expectations import targets_of
from nearsight.experiments.studies.cachier.scale.machines import machines_of, measure_machines
from nearsight.experiments.studies.cachier.scale.operating_point import (
    CLASSES,
    MEASURED,
    NETWORK,
    SECTIONS,
    TESTBED,
    TWIN,
    VISITORS,
    OperatingPoint,
    amount_of,
    points_of,
)
from nearsight.experiments.studies.cachier.scale.picture import draw
from nearsight.experiments.studies.cachier.scale.sessions import play_on_testbed, play_on_twin

LATENCY = ("p50_ms", "p95_ms", "mean_ms", "device_ms", "edge_ms", "cloud_ms", "queue_ms", "link_ms")
BANDWIDTH = ("up_kbps", "down_kbps")
TRAFFIC = "traffic_kbps"
"""Sum of both directions: models that edges fetch are a load in the same way as photos."""
CPU = ("edge_cpu", "cloud_cpu")
ACCURACY = ("recall", "precision")
ANSWERS = ("by_device", "by_edge", "by_cloud")
UNKNOWN_SHARE = 0.0
"""As in the dissertation: every photo shows an exhibit of the sections (6.2.5)."""
METRICS = (*LATENCY, *BANDWIDTH, *CPU, *ACCURACY, *ANSWERS)
_SEEN_BY_USERS, _RIGHT = (*LATENCY, *BANDWIDTH), (*ACCURACY, *ANSWERS)
_PERCENT = frozenset((*CPU, *ANSWERS))
_BY_SPEED = ("Slow", "Medium", "baseline", "Fast", "SuperFast")
_HEADINGS = {
    **{name: name.replace("_ms", " ms") for name in LATENCY},
    **{name: name.replace("_kbps", " kbit/s") for name in BANDWIDTH},
    **{f"{tier}_cpu": f"CPU {tier}" for tier in ("edge", "cloud")},
    **{name: name for name in ACCURACY},
    **{name: name.replace("_", " ") for name in ANSWERS},
}


class OnMachines(Experiment):
    """An experiment that runs on the twin or on the testbed."""

    takes: ClassVar[tuple[str, ...]] = ON_MACHINES

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:
        """Fill in the options of a run; costs of the machines are measured if necessary.

        Raises
        ------
        InvalidArgument
            If costs are given for the testbed, which has its own.
        """
        on = options.on or TWIN
        if on == TESTBED:
            if options.costs:
                raise InvalidArgument(
                    "the testbed has real costs", advice="leave out --costs, or use --on twin"
                )
            measure_machines(replace(options, costs=MEASURED), say)
            return replace(options, on=on, costs="")
        options = replace(options, on=on, costs=options.costs or MEASURED)
        measure_machines(options, say)
        return replace(options, costs_mark=machines_of(options).mark)

    def processes(self, options: RunOptions) -> int:
        """One per core on the twin, which measures no time."""
        return amount_of(options).processes


class AtPoints(OnMachines):
    """An experiment whose cells are an operating point and a run, with all configurations."""

    def cell_of(self, row: StoredRow) -> dict[str, Any]:
        """Point, run and share of unknown photos."""
        return _cell(OperatingPoint.of(row), int(row["run"]), float(row["unknown_share"]))

    def run(self, options: RunOptions, point: OperatingPoint, unknown_share: float, run: int) -> list[Row]:
        """Play all configurations at a point, with the traces of a run."""
        amount = amount_of(options)
        if options.on == TESTBED:
            return play_on_testbed(point, ORDER, run, options, amount, unknown_share)
        configure_logging(level="CRITICAL")  # messages of simulated daemons are part of the simulation
        return play_on_twin(point, ORDER, run, machines_of(options), options.seed, amount, unknown_share)


class ScaleFigure(AtPoints):
    """One figure."""

    shares_cells_with: ClassVar[tuple[str, ...]] = ("fig6.4", "fig6.7", "fig6.10", "fig6.12", "table6.4")
    variable: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = _SEEN_BY_USERS
    """Metrics in table and picture."""

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """All points of the variable, several runs each."""
        return cells_at(points_of(self.variable, options), amount_of(options).runs)

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``values.<value of the variable>.<configuration>.<metric>``: median and range over the runs."""
        return {"variable": self.variable, **world_of(rows), "values": by_value(rows, self.variable)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Targets of table 6.4 for the variable."""
        return targets_of(summary)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One row per value of the variable and configuration."""
        for value, tiers, one in leaves(summary["values"], 2):
            metrics = {_HEADINGS[name]: shown(name, one[name]) for name in self.shown}
            yield {self.variable: value, "configuration": NAMES[tiers], **metrics, "no answer": one["failed"]}

    def draw(self, results: Results) -> Picture:
        """Draw one panel per metric."""
        return draw(results.metrics, self.shown)


def cells_at(
    points: Sequence[OperatingPoint], runs: int, unknown_share: float = UNKNOWN_SHARE
) -> list[dict[str, Any]]:
    """One cell per point and run."""
    return [_cell(point, run, unknown_share) for run in range(1, runs + 1) for point in points]


def _cell(point: OperatingPoint, run: int, unknown_share: float) -> dict[str, Any]:
    return {"point": point, "unknown_share": unknown_share, "run": run}


def world_of(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Conditions of the rows from their provenance: ``on``, ``costs``, ``smoke``; and their accuracy.

    ``worst`` is given for the testbed only: the largest errors of the link, and the largest delay of photos.
    """
    configuration = json.loads(rows[0].get("configuration") or "{}")
    chosen = {name: configuration.get(name, "") for name in ("on", "costs")}
    checked = [name for name in ("link_off_ms", "link_off_percent", "late_p99_ms") if name in rows[0]]
    worst = {name: max(float(row[name] or 0.0) for row in rows) for name in checked}
    return {
        **chosen,
        "smoke": bool(configuration.get("smoke")),
        **({"worst": worst} if chosen["on"] == TESTBED else {}),
    }


def by_value(rows: Sequence[StoredRow], variable: str) -> dict[str, Any]:
    """Medians and ranges over the runs, by value of the variable and configuration."""
    found = nested(rows, (variable, "tiers"), numbers)
    values = sorted(found, key=_BY_SPEED.index if variable == NETWORK else int)
    return {
        value: {tiers: found[value][tiers] for tiers in ORDER if tiers in found[value]} for value in values
    }


def numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """All metrics of the runs of one configuration at one point."""
    found: dict[str, Any] = {
        name: _range([float(row[name]) for row in rows if row[name] != ""]) for name in METRICS
    }
    found[TRAFFIC] = _range([sum(float(row[name]) for name in BANDWIDTH) for row in rows])
    counts = {name: sum(int(row[name]) for row in rows) for name in ("requests", "failed")}
    return {**found, **counts, "runs": len(rows)}


def _range(values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return dict.fromkeys(("median", "min", "max"))
    return {
        "median": round(float(np.median(values)), 6),
        "min": round(min(values), 6),
        "max": round(max(values), 6),
    }


def shown(name: str, value: Mapping[str, Any]) -> str:
    """Format a median for a table."""
    median = value["median"]
    if median is None:
        return "-"
    if name in _PERCENT:
        return f"{100 * median:.2f} %"
    return f"{median:.3f}" if name in ACCURACY else f"{median:.1f}"


class Figure6x4(ScaleFigure):
    """Over the number of visitors: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.4"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    variable: ClassVar[str] = VISITORS


class Figure6x5(Figure6x4):
    """Over the number of visitors: CPU of edge and cloud; uses the rows of fig6.4."""

    name: ClassVar[str] = "fig6.5"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x6(Figure6x4):
    """Over the number of visitors: recall, precision, and answering tiers; uses the rows of fig6.4."""

    name: ClassVar[str] = "fig6.6"
    source: ClassVar[str] = "Cachier dissertation, 6.3"
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x7(ScaleFigure):
    """Over the number of sections: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.7"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    variable: ClassVar[str] = SECTIONS


class Figure6x8(Figure6x7):
    """Over the number of sections: CPU of edge and cloud; uses the rows of fig6.7."""

    name: ClassVar[str] = "fig6.8"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x9(Figure6x7):
    """Over the number of sections: recall, precision, and answering tiers; uses the rows of fig6.7."""

    name: ClassVar[str] = "fig6.9"
    source: ClassVar[str] = "Cachier dissertation, 6.4"
    shown: ClassVar[tuple[str, ...]] = _RIGHT


class Figure6x10(ScaleFigure):
    """Over the number of classes: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.10"
    source: ClassVar[str] = "Cachier dissertation, 6.5"
    variable: ClassVar[str] = CLASSES


class Figure6x11(Figure6x10):
    """Over the number of classes: CPU of edge and cloud; uses the rows of fig6.10."""

    name: ClassVar[str] = "fig6.11"
    source: ClassVar[str] = "Cachier dissertation, 6.5"
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x12(ScaleFigure):
    """Over networks to the cloud: latency, its parts, and bandwidth; six configurations."""

    name: ClassVar[str] = "fig6.12"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    variable: ClassVar[str] = NETWORK


class Figure6x13(Figure6x12):
    """Over networks to the cloud: CPU of edge and cloud; uses the rows of fig6.12."""

    name: ClassVar[str] = "fig6.13"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    shown: ClassVar[tuple[str, ...]] = CPU


class Figure6x14(Figure6x12):
    """Over networks to the cloud: recall, precision, and answering tiers; uses the rows of fig6.12."""

    name: ClassVar[str] = "fig6.14"
    source: ClassVar[str] = "Cachier dissertation, 6.6"
    shown: ClassVar[tuple[str, ...]] = _RIGHT
