"""The workloads of CremeBrulee, generated anew, and its Table II.

The testbed has 26 models with their real names and 1,000 requests in an hour; the simulation has 2,408 models
and 16,765 requests. Functions are drawn from the paper's rates. In the simulation, those above the 95th
percentile are left out, as in the paper's scripts. Their number is chosen to give the paper's number of
models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import (
    leaves,
    mean_and_spread,
    mean_in_words,
    nested,
    rank_correlation,
    values,
)
from nearsight.experiments.model_serving.workloads import Recipe, Workload
from nearsight.experiments.model_serving.zoo import cremebrulee_models
from nearsight.experiments.traces.arrivals import CREMEBRULEE, Poisson
from nearsight.experiments.traces.model_requests import Association

TESTBED, SIMULATION = "testbed", "simulation"
RUNS = 5
_PAPER = {TESTBED: (1_000, 26, 21.7), SIMULATION: (16_765, 2_408, 2_862.0)}
"""Number of requests, number of models, and memory of all models [GB]."""
_QUANTILES_R = (Association.POPULAR_AND_COSTLY, Association.POPULAR_AND_CHEAP)
"""The two readings of the paper's quantiles-r, the only workload of its simulation."""
_FUNCTIONS = {TESTBED: 20_000, SIMULATION: 7_200}
_NEAR = 0.05
_CORRELATED = 0.5


def workload(scale: str, association: str, options: RunOptions, run: int, share: float = 1.0) -> Workload:
    """Draw a workload of one of the paper's scales.

    ``share`` reduces the numbers of functions and requests, for small runs.
    """
    requests, _, _ = _PAPER[scale]
    recipe = Recipe(
        Poisson(),
        Association(association),
        functions=round(share * _FUNCTIONS[scale]),
        requests=round(share * requests),
        marginals=CREMEBRULEE,
        quantile=0.95 if scale == SIMULATION else 0.9,
        own_names=scale == SIMULATION,
    )
    return recipe.draw(cremebrulee_models(), options.rng("cremebrulee", scale, association, run))


class Table2(Experiment):
    """Requests, models, memory, and correlation of popularity and cost in the generated workloads."""

    name: ClassVar[str] = "cremebrulee-table2"
    source: ClassVar[str] = "CremeBrulee, 6"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per scale, association and run."""
        runs = range(1 if options.smoke else RUNS)
        return [
            {"scale": scale, "association": association, "run": run}
            for scale in _PAPER
            for association in Association
            for run in runs
        ]

    def run(self, options: RunOptions, scale: str, association: Association, run: int) -> list[Row]:
        """One row per cell."""
        drawn = workload(scale, association, options, run)
        counts = drawn.requests.counts()
        load_ms = [drawn.costs[name].load_ms for name in drawn.requests.names]
        return [
            {
                "scale": scale,
                "association": association,
                "run": run,
                "requests": len(drawn.requests),
                "models": len(drawn.requests.names),
                "memory_gb": drawn.size_bytes / 1e9,
                "correlation": rank_correlation(counts, load_ms),
                "most_popular": float(counts.max() / counts.sum()),
            }
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``workloads.<scale>.<association>``."""
        return {"workloads": nested(rows, ("scale", "association"), _summary)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Sizes as in the paper, and correlations as named by the associations."""
        found = summary["workloads"]
        costly, cheap = found[SIMULATION]["popular-and-costly"], found[TESTBED]["popular-and-cheap"]
        targets = []
        for what, wanted in zip(("requests", "models"), _PAPER[SIMULATION], strict=False):
            value = costly[what]["mean"]
            text = f"the simulation's {what}: {wanted:,} in the paper, within 5 %"
            targets.append(Target(text, value, abs(value / wanted - 1) <= _NEAR))
        memory_gb = costly["memory_gb"]["mean"]
        return (
            *targets,
            Target.at_least(
                "the simulation's memory [GB], 2,862 in the paper: above 2,408 models of average size",
                memory_gb,
                2_408 * 21.7 / 26,
                "the paper's sizes are not published; here they are in proportion to weight files",
            ),
            Target.at_least(
                f"popular-and-costly: rank correlation of requests and load time, at least {_CORRELATED:g}",
                costly["correlation"]["mean"],
                _CORRELATED,
            ),
            Target.at_most(
                f"popular-and-cheap: rank correlation of requests and load time, at most {-_CORRELATED:g}",
                cheap["correlation"]["mean"],
                -_CORRELATED,
            ),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per workload; the paper's simulation has only quantiles-r, in one of its two readings."""
        for scale, association, one in leaves(summary["workloads"], 2):
            known = scale != SIMULATION or association in _QUANTILES_R
            said = [f" ({number:,})" if known else "" for number in _PAPER[scale]]
            yield {
                "scale": scale,
                "association": association,
                "requests (paper)": f"{mean_in_words(one['requests'], 0)}{said[0]}",
                "models (paper)": f"{mean_in_words(one['models'], 0)}{said[1]}",
                "memory [GB] (paper)": f"{mean_in_words(one['memory_gb'], 1)}{said[2]}",
                "rank correlation": mean_in_words(one["correlation"], 2),
                "most popular model": percent(one["most_popular"]["mean"], 1),
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the correlation and the share of the most popular model, for each association."""
        picture = drawing.new_picture(9.0, 3.2)
        panels = picture.subplots(1, 2)
        places = np.arange(len(Association))
        for shift, (scale, found) in zip((-0.2, 0.2), results.metrics["workloads"].items(), strict=True):
            colour = drawing.SEQUENCE[2 if scale == TESTBED else 0]
            for axes, what in zip(panels, ("correlation", "most_popular"), strict=True):
                at, reach = drawing.error_bars([found[one][what] for one in Association])
                axes.bar(places + shift, at, 0.38, yerr=reach, color=colour, label=scale)
        for axes, title in zip(
            panels,
            ("Rank correlation of requests and load time", "Share of the most popular model"),
            strict=True,
        ):
            axes.set_title(title)
            axes.set_xticks(places, [one.replace("-and-", "\nand ") for one in Association])
        drawing.legend_below(picture, panels[0])
        return picture


def _summary(rows: Sequence[StoredRow]) -> dict[str, Any]:
    columns = ("requests", "models", "memory_gb", "correlation", "most_popular")
    return {what: mean_and_spread(values(rows, what)) for what in columns}
