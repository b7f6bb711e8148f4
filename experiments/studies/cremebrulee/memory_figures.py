"""Figures 5 and 6 of CremeBrulee: parts of the latency under decreasing memory, with CremeBrulee-oracle.

Requests are served by one thread with one queue, as in the paper's testbed. The testbed's own time,
"overhead" in the paper, does not occur here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import leaves, mean_and_spread, mean_in_words, nested, values
from nearsight.experiments.model_serving.simulation import serve_in_turn, simulate
from nearsight.experiments.studies.cremebrulee.workloads import RUNS, TESTBED, workload
from nearsight.experiments.traces.model_requests import Association

_SIZES_GB = tuple(range(11, 23))
_POLICY = "cremebrulee-oracle"
_PARTS = {"execution": "#7a9e3b", "load": "#c2571a", "queue": "#9cc3d1"}
_HALF_GB, _ALL_GB = "11", "22"


class Memory(Experiment):
    """Execution, load and queue of an average request from 11 to 22 GB, for the four associations."""

    name: ClassVar[str] = "cremebrulee-memory"
    source: ClassVar[str] = "CremeBrulee, 6.2"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per association and run."""
        runs = range(1 if options.smoke else RUNS)
        return [{"association": association, "run": run} for association in Association for run in runs]

    def run(self, options: RunOptions, association: Association, run: int) -> Iterator[Row]:
        """One row per size."""
        drawn = workload(TESTBED, association, options, run)
        for size_gb in (11, 16, 22) if options.smoke else _SIZES_GB:
            served = simulate(drawn, _POLICY, size_gb * 10**9, run, serve_in_turn)
            yield {
                "association": association,
                "run": run,
                "size_gb": size_gb,
                "execution_s": served.execution_ms.mean() / 1e3,
                "load_s": served.load_ms_per_request / 1e3,
                "queue_s": served.queue_ms.mean() / 1e3,
                "load_per_miss_s": served.load_ms_per_miss / 1e3,
                "hit_ratio": served.hit_ratio,
            }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``associations.<name>.<GB>``."""
        return {"associations": nested(rows, ("association", "size_gb"), _summary)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The paper's statements about half of the memory."""
        found = summary["associations"]
        ratio = {name: _over_execution(by_size[_HALF_GB]) for name, by_size in found.items()}
        uncorrelated = max(ratio["uniform"], ratio["round-robin"])
        correlated = max(ratio["popular-and-costly"], ratio["popular-and-cheap"])
        return (
            Target.at_most(
                "correlated associations, half of the memory: load over execution; below 1 in the paper",
                correlated,
                1.0,
                "execution takes at least 6.0 % more of the latency than load in figures 5c and 5d",
                digits=3,
            ),
            Target.at_least(
                "uncorrelated associations, half of the memory: load over execution; in the paper's "
                "worst case load contributes 13.5 % more to the latency",
                uncorrelated,
                1.0,
                digits=3,
            ),
            Target.at_most(
                "the best association: execution and load at 11 GB over those at 22 GB; 1.92 in the paper "
                "(association not stated)",
                min(_slower(by_size) for by_size in found.values()),
                1.92,
                digits=3,
            ),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per association and size."""
        for association, size_gb, one in leaves(summary["associations"], 2):
            yield {
                "association": association,
                "GB": size_gb,
                **{f"{part} [s]": mean_in_words(one[f"{part}_s"], 3) for part in _PARTS},
                "load per miss [s]": mean_in_words(one["load_per_miss_s"], 2),
                "hit ratio": f"{one['hit_ratio']['mean']:.3f}",
                "load / execution": f"{_over_execution(one):.2f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figure 5 in four panels and figure 6 in one."""
        found = results.metrics["associations"]
        picture = drawing.new_picture(12.6, 5.4)
        grid = picture.add_gridspec(2, 3, width_ratios=[1, 1, 1.2])
        first = axes = picture.add_subplot(grid[0, 0])
        for place, (association, by_size) in enumerate(found.items()):
            if place:
                axes = picture.add_subplot(grid[place // 2, place % 2], sharey=first)
            below = np.zeros(len(by_size))
            for part, colour in _PARTS.items():
                means = np.array([one[f"{part}_s"]["mean"] for one in by_size.values()])
                axes.bar(list(by_size), means, bottom=below, color=colour, label=part)
                below += means
            axes.set(title=f"5: {association}", xlabel="memory [GB]", ylabel="mean time [s]")
        axes = picture.add_subplot(grid[:, 2])
        for (association, by_size), colour in zip(found.items(), drawing.SEQUENCE, strict=True):
            at, reach = drawing.error_bars([one["latency_s"] for one in by_size.values()])
            sizes = [float(size_gb) for size_gb in by_size]
            axes.errorbar(sizes, at, reach, color=colour, marker="o", markersize=3, label=association)
        axes.set(title="6: latency", xlabel="memory [GB]", ylabel="mean latency [s]", ylim=(0, None))
        axes.legend()
        drawing.legend_below(picture, first)
        drawing.caption(
            picture,
            f"{_POLICY}; 26 models, 1,000 requests in an hour, one thread; mean of runs, whiskers: range",
        )
        return picture


def _summary(rows: Sequence[StoredRow]) -> dict[str, Any]:
    columns = (*(f"{part}_s" for part in _PARTS), "load_per_miss_s", "hit_ratio")
    latency = [sum(float(row[f"{part}_s"]) for part in _PARTS) for row in rows]
    return {
        **{what: mean_and_spread(values(rows, what)) for what in columns},
        "latency_s": mean_and_spread(latency),
    }


def _over_execution(one: Mapping[str, Any]) -> float:
    return float(one["load_s"]["mean"] / one["execution_s"]["mean"])


def _slower(by_size: Mapping[str, Any]) -> float:
    """Response time without queueing at half of the memory, over that at all of it."""
    half, whole = (
        by_size[size]["execution_s"]["mean"] + by_size[size]["load_s"]["mean"] for size in (_HALF_GB, _ALL_GB)
    )
    return float(half / whole)
