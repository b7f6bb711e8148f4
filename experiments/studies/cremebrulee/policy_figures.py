"""Figures 7 and 8 of CremeBrulee: the model load delay of eviction policies.

Figure 7 is the testbed: one thread with a queue, 26 models without correlation. Figure 8 is the simulation,
in which no time passes, with 2,408 models. The paper calls its association "quantiles-r" and describes it in
two different ways; here both are simulated. Its models take more memory than the average of the 26, which
suggests that its popular models are costly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import (
    grouped,
    leaves,
    mean_and_spread,
    mean_in_words,
    nested,
    values,
)
from nearsight.experiments.model_serving.simulation import replay, serve_in_turn, simulate
from nearsight.experiments.studies.cremebrulee.workloads import RUNS, SIMULATION, TESTBED, workload
from nearsight.experiments.traces.model_requests import Association

COLOURS = {
    "random": "#8a8a8a",
    "popularity": "#e0a33a",
    "cremebrulee": "#c2571a",
    "belady-min": "#1f6f8b",
    "cremebrulee-oracle": "#24415c",
}
_COSTLY, _CHEAP = Association.POPULAR_AND_COSTLY, Association.POPULAR_AND_CHEAP
_QUANTILES = (50, 60, 70, 75, 80, 85, 90, 95, 99)
_THIRD = 1 / 3
_PAIRS = (
    *(("cremebrulee", worse) for worse in ("popularity", "random")),
    *(("cremebrulee-oracle", worse) for worse in ("belady-min", "random")),
)


class _Policies(Experiment):
    """Load delays of policies at several memory sizes."""

    timed: ClassVar[bool] = False
    associations: ClassVar[Sequence[Association]]
    policies: ClassVar[Sequence[str]]
    scale: ClassVar[str]
    """Scale of the workload. The testbed serves with one thread; in the simulation no time passes."""
    sizes_gb: ClassVar[Sequence[int]]
    smoke_sizes_gb: ClassVar[Sequence[int]]

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per association, run and size."""
        return [
            {"association": association, "run": run, "size_gb": size_gb}
            for association in self.associations
            for run in range(1 if options.smoke else RUNS)
            for size_gb in (self.smoke_sizes_gb if options.smoke else self.sizes_gb)
        ]

    def run(self, options: RunOptions, association: Association, run: int, size_gb: int) -> Iterator[Row]:
        """One row per policy, all with the same requests and the same initial cache."""
        serve = serve_in_turn if self.scale == TESTBED else replay
        share = 0.2 if options.smoke and self.scale == SIMULATION else 1.0
        drawn = workload(self.scale, association, options, run, share)
        budget_bytes = round(share * size_gb * 1e9)
        for policy in self.policies:
            served = simulate(drawn, policy, budget_bytes, run, serve)
            delays = np.percentile(served.load_ms, _QUANTILES) / 1e3
            yield {
                "association": association,
                "run": run,
                "size_gb": size_gb,
                "policy": policy,
                "load_s": served.load_ms_per_request / 1e3,
                "load_per_miss_s": served.load_ms_per_miss / 1e3,
                "hit_ratio": served.hit_ratio,
                **{f"p{at}_s": float(delay) for at, delay in zip(_QUANTILES, delays, strict=True)},
            }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``associations.<name>.<GB>.<policy>``, and ``gains`` of pairs of policies in the same runs."""
        return {
            "associations": nested(rows, ("association", "size_gb", "policy"), _summary),
            "gains": {
                association: {size: _gains(group) for size, group in grouped(of, "size_gb").items()}
                for association, of in grouped(rows, "association").items()
            },
        }

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per association and size: load delays."""
        for association, size_gb, one in leaves(summary["associations"], 2):
            delays = {f"{name} [s]": mean_in_words(one[name]["load_s"], 3) for name in self.policies}
            yield {"association": association, "GB": size_gb, **delays}


class TestbedPolicies(_Policies):
    """Load delays of random, CremeBrulee and its oracle from 16 to 21 GB, 26 models (figure 7)."""

    name: ClassVar[str] = "cremebrulee-policies"
    source: ClassVar[str] = "CremeBrulee, 6.2.2"
    associations: ClassVar[Sequence[Association]] = (Association.UNIFORM,)
    policies: ClassVar[Sequence[str]] = ("random", "cremebrulee", "cremebrulee-oracle")
    scale: ClassVar[str] = TESTBED
    sizes_gb: ClassVar[Sequence[int]] = range(16, 22)
    smoke_sizes_gb: ClassVar[Sequence[int]] = (16, 20)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The order of the curves."""
        by_size = summary["associations"]["uniform"]
        return tuple(
            Target.at_most(
                f"{better} over {worse}: the largest ratio of load delays from 16 to 21 GB",
                max(_ratio(one, better, worse) for one in by_size.values()),
                1.0,
                digits=3,
            )
            for better, worse in (("cremebrulee", "random"), ("cremebrulee-oracle", "cremebrulee"))
        )

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the mean delays, and the tail of their distribution."""
        by_size = results.metrics["associations"]["uniform"]
        picture = drawing.new_picture(10.0, 3.6)
        means, tail = picture.subplots(1, 2)
        _draw_lines(means, by_size, self.policies)
        means.set(title="7a: mean load delay", xlabel="memory [GB]", ylabel="load delay [s]", ylim=(0, None))
        size_gb = next(iter(by_size))
        for policy in self.policies:
            delays = [by_size[size_gb][policy][f"p{at}_s"]["mean"] for at in _QUANTILES]
            tail.plot(delays, _QUANTILES, "o-", color=COLOURS[policy], markersize=3, label=policy)
        tail.set(title=f"7b: load delays at {size_gb} GB", xlabel="load delay [s]", ylabel="percentile")
        drawing.legend_below(picture, means)
        return picture


class SimulationPolicies(_Policies):
    """Load delays of five policies from 4 to 2,048 GB, 2,408 models (figure 8)."""

    name: ClassVar[str] = "cremebrulee-simulation"
    source: ClassVar[str] = "CremeBrulee, 6.3"
    associations: ClassVar[Sequence[Association]] = (_COSTLY, _CHEAP)
    policies: ClassVar[Sequence[str]] = tuple(COLOURS)
    scale: ClassVar[str] = SIMULATION
    sizes_gb: ClassVar[Sequence[int]] = tuple(2**power for power in range(2, 12))
    smoke_sizes_gb: ClassVar[Sequence[int]] = (128, 1024)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The paper's gains, compared with those of popular-and-costly models."""
        by_size = summary["gains"][_COSTLY]
        paper = {
            "cremebrulee/popularity": ("16.62 % at 128 GB, 7.6 % on average", 0.10),
            "cremebrulee/random": ("36.34 %", _THIRD),
            "cremebrulee-oracle/belady-min": ("12.15 % at 128 GB, 6.19 % on average", 0.0),
        }
        targets = []
        for pair, (said, least) in paper.items():
            better, worse = pair.split("/")
            gains = {size: one[pair]["mean"] for size, one in by_size.items()}
            best = max(gains, key=gains.__getitem__)
            mean = float(np.mean([*gains.values()]))
            note = f"at {best} GB; {percent(gains['128'], 1)} at 128 GB, {percent(mean, 1)} on average"
            text = f"{better} below {worse} at its best point, at least {least:.2g}; in the paper {said}"
            targets.append(Target.at_least(text, gains[best], least, note, digits=4))
        return tuple(targets)

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figure 8 for both correlations, and below it the gains over the policies without penalties."""
        picture = drawing.new_picture(11.0, 6.4)
        panels = picture.subplots(2, 2, sharex=True, height_ratios=[1.5, 1])
        for column, association in enumerate(self.associations):
            above, below = panels[:, column]
            by_size = results.metrics["associations"][association]
            _draw_lines(above, by_size, self.policies)
            above.set(title=f"8: {association}", ylabel="load delay [s]", xscale="log", ylim=(0, None))
            gains = results.metrics["gains"][association]
            for pair, look in (("cremebrulee/popularity", "o-"), ("cremebrulee-oracle/belady-min", "s-")):
                better = pair.partition("/")[0]
                at, reach = drawing.error_bars([one[pair] for one in gains.values()])
                sizes = [float(size) for size in gains]
                below.errorbar(
                    sizes, 100 * at, 100 * reach, fmt=look, color=COLOURS[better], markersize=3, label=pair
                )
            below.axhline(0, color="#8a8a8a", linewidth=0.8)
            below.set(xlabel="memory [GB]", ylabel="gain [%]")
            below.set_xticks([float(size) for size in gains], [*gains])
            below.minorticks_off()
            below.set_ylim(top=1.3 * below.get_ylim()[1])
            below.legend(loc="upper left", ncols=2)
        drawing.legend_below(picture, panels[0, 0])
        drawing.caption(picture, "Mean load delay per request; mean of runs, whiskers: range")
        return picture


def _summary(rows: Sequence[StoredRow]) -> dict[str, Any]:
    columns = ("load_s", "load_per_miss_s", "hit_ratio", *(f"p{at}_s" for at in _QUANTILES))
    return {what: mean_and_spread(values(rows, what)) for what in columns}


def _gains(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Relative reduction of the load delay by CremeBrulee, run by run; 0 where nothing is loaded."""
    delays = {
        policy: {row["run"]: float(row["load_s"]) for row in of}
        for policy, of in grouped(rows, "policy").items()
    }
    return {
        f"{better}/{worse}": mean_and_spread(
            [1 - delays[better][run] / delay if delay else 0.0 for run, delay in delays[worse].items()]
        )
        for better, worse in _PAIRS
        if {better, worse} <= delays.keys()
    }


def _ratio(one: Mapping[str, Any], better: str, worse: str) -> float:
    delay = one[worse]["load_s"]["mean"]
    return float(one[better]["load_s"]["mean"] / delay) if delay else math.nan


def _draw_lines(axes: Any, by_size: Mapping[str, Any], policies: Sequence[str]) -> None:
    sizes = [float(size) for size in by_size]
    for policy in policies:
        at, reach = drawing.error_bars([one[policy]["load_s"] for one in by_size.values()])
        axes.errorbar(sizes, at, reach, color=COLOURS[policy], marker="o", markersize=3, label=policy)
