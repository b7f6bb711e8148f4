"""Where the full system loses to a simpler one, and by how much: a map of operating points. No paper has it.

The dissertation varies one variable at a time around its baseline and finds the full system "the best or at
par" (6.7). Here all combinations of its four variables are played, with phones and edges of two speeds, which
it did not vary: 216 operating points on the twin, all configurations on the same traces. Some points are
played again with other traces, so that what chance does is known.

A region is put into words by a shallow decision tree (`loss_regions`); the numbers are `losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.logging import configure_logging
from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.studies.cachier.scale.configurations import NAMES
from nearsight.experiments.studies.cachier.scale.machines import machines_of
from nearsight.experiments.studies.cachier.scale.operating_point import TESTBED, Amount, OperatingPoint
from nearsight.experiments.studies.cachier.scale.scale_figure import with_machines, world_of
from nearsight.experiments.studies.cachier.scale.twin_runs import play_on_twin
from nearsight.experiments.studies.map.loss_grid import MACHINES, grid_of
from nearsight.experiments.studies.map.loss_regions import regions_of
from nearsight.experiments.studies.map.losses import METRICS, SIMPLER, Loss, Metric, Place, digits, losses_of
from nearsight.experiments.twin.session import ADAPTIVE, COOPERATIVE

FULL_SYSTEMS = (ADAPTIVE, COOPERATIVE)
"""The dissertation's, and devices that share besides (5.4)."""
CONFIGURATIONS = (*SIMPLER, *FULL_SYSTEMS)
_MOST_REGRET = 1.1
_ROUNDING = 0.01


class Figure(Experiment):
    """Where the full system loses to a simpler one, and by how much: 216 operating points."""

    style: ClassVar[Any] = {"axes.grid": False}
    name: ClassVar[str] = "map"
    source: ClassVar[str] = "beyond the Cachier dissertation's 6.7"
    takes_machines: ClassVar[bool] = True

    def completed(self, options: RunOptions, say: Callable[[str], None]) -> RunOptions:  # noqa: D102
        if TESTBED in {options.on, options.costs}:
            raise InvalidArgument(
                "the map is of machines that no testbed has", advice="leave out --on, or give --costs paper"
            )
        return with_machines(options, say)

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        return grid_of(options).cells()

    def processes(self, options: RunOptions) -> int:  # noqa: D102
        return grid_of(options).processes

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        configure_logging(level="CRITICAL")  # what simulated daemons complain of is part of the simulation
        machines, grid = machines_of(options), grid_of(options)
        rows: list[Row] = []
        for name in grid.machines:
            played = play_on_twin(
                OperatingPoint.of(cell.parameters),
                CONFIGURATIONS,
                int(cell.parameters["run"]),
                replace(machines, hardware=MACHINES[name].of(machines.hardware)),
                options.seed,
                Amount(1, grid.seconds, crowd=grid.crowd),
            )
            rows.extend({"machines": name, **row} for row in played)
        return rows

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Points and chance; and for each full system and metric what is lost, where and to whom.

        ``systems.<configuration>.<metric>``: counts of points ``lost``, ``won`` and ``level``; the loss in
        the ``middle`` of the lost points and the ``worst``; ``regions`` in words with the accuracy of the
        tree; ``against`` each simpler configuration.
        """
        return {
            **world_of(rows),
            "points": len({Place.of(row) for row in rows}),
            "sessions": len(rows),
            "systems": {
                full: {name: _summed_up(rows, full, name) for name in METRICS} for full in FULL_SYSTEMS
            },
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        mean = summary["systems"][ADAPTIVE]["mean"]
        return (
            Target(
                "operating points that were compared, at least 200",
                summary["points"],
                summary["points"] >= 200,
            ),
            Target(
                "mean latency, which the decisions minimise: full system over the best simpler one, at the "
                "worst point at most 1.1",
                mean["worst"]["ratio"],
                mean["worst"]["ratio"] <= _MOST_REGRET,
                _told(mean["worst"], METRICS["mean"]),
            ),
        )

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = []
        for full, metrics in summary["systems"].items():
            for name, one in metrics.items():
                metric = METRICS[name]
                worst = _told(one["worst"], metric) if one["worst"]["lost"] else "-"
                where = one["regions"][0]["where"] if one["regions"] else "-"
                counts = (one["lost"], one["level"], one["won"])
                rows.append((NAMES[full], metric.title, *counts, worst, where))
        columns = ("full system", "metric", "lost", "level", "won", "at the worst point", "largest region")
        return columns, rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.map.where_it_loses_picture import draw  # noqa: PLC0415

        return draw(results)


def _summed_up(rows: Sequence[StoredRow], full: str, name: str) -> dict[str, Any]:
    losses = losses_of(rows, full, name)
    lost = [one for one in losses if one.lost]
    regions = regions_of(losses)
    return {
        "lost": len(lost),
        "won": sum(one.won for one in losses),
        "level": sum(not (one.lost or one.won) for one in losses),
        "middle": round(float(np.median([one.difference for one in lost])), 4) if lost else 0.0,
        "worst": _worst(losses),
        "chance": {str(one.place.visitors): round(one.chance, 5) for one in losses},
        "regions": [{"where": one.where, "sentence": one.sentence(name)} for one in regions.regions],
        "accuracy": round(regions.accuracy, 4),
        "unseen_accuracy": round(regions.unseen_accuracy, 4),
        "always": round(regions.always, 4),
        "against": {rival: _against(rows, full, name, rival) for rival in SIMPLER},
    }


def _worst(losses: Sequence[Loss]) -> dict[str, Any]:
    worst = max(losses, key=lambda one: (one.lost, one.ratio))
    return {
        "place": asdict(worst.place),
        "full": round(worst.full, 4),
        "best": round(worst.best, 4),
        "rival": worst.rival,
        "ratio": round(worst.ratio, 4),
        "lost": worst.lost,
    }


def _against(rows: Sequence[StoredRow], full: str, name: str, rival: str) -> dict[str, Any]:
    losses = losses_of(rows, full, name, (rival,))
    return {
        "lost": sum(one.lost for one in losses),
        "won": sum(one.won for one in losses),
        "middle_ratio": round(float(np.median([one.ratio for one in losses])), 4),
    }


def _told(worst: Mapping[str, Any], metric: Metric) -> str:
    place = worst["place"]
    # Of several runs the ratio is the geometric mean of theirs, which that of the two means need not be.
    plain = worst["full"] / worst["best"] if worst["best"] else worst["ratio"]
    of_runs = "" if abs(plain / worst["ratio"] - 1.0) < _ROUNDING else " in the mean of the runs' ratios"
    return (
        f"{digits(worst['full'])} against {digits(worst['best'])} {metric.unit} "
        f"of the {NAMES[worst['rival']]} "
        f"(x{worst['ratio']:.2f}{of_runs}): {place['visitors']} visitors, {place['sections']} sections, "
        f"{place['classes']} classes, {place['network']}, {place['machines']}"
    )
