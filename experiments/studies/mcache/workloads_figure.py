"""Figures 6 to 8 of mCache: IAM under four associations of functions and models, with decreasing memory.

A client sends its next request after the answer, so latency is load plus execution. "Random" is
`Association.UNIFORM`, "Quantile" is popular-and-costly and "Quantile-r" popular-and-cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import (
    counted,
    leaves,
    median_and_range,
    median_in_words,
    nested,
    values,
)
from nearsight.experiments.model_serving.workloads import Recipe
from nearsight.experiments.model_serving.zoo import mcache_models
from nearsight.experiments.studies.mcache.contenders import IAM, play
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES
from nearsight.experiments.traces.model_requests import Association

MEMORY = ("0.2", "0.4", "0.6", "0.8", "1.0")
_PAPER_P90_S = {"0.4": 10.0, "0.8": 3.0}
_PAPER_SHARES = {"0.8": 0.08, "0.2": 0.98}
"""Share of loading in the latency of `quantiles`, figure 7."""
_NEAR, _MODEST = 0.05, 3.0
_QUANTILES = tuple(range(50, 101))
"""Percentiles of load times that are stored."""
_RUNS = 20
_COLOURS = {
    Association.UNIFORM: "#c2571a",
    Association.ROUND_ROBIN: "#e0a33a",
    Association.POPULAR_AND_COSTLY: "#24415c",
    Association.POPULAR_AND_CHEAP: "#1f6f8b",
}


class Figure(Experiment):
    """Latency, its share of loading, and load times of IAM under four associations."""

    name: ClassVar[str] = "mcache-workloads"
    source: ClassVar[str] = "mCache, 6.2"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per association and trace."""
        return [
            {"association": association, "run": run}
            for association in Association
            for run in range(1 if options.smoke else _RUNS)
        ]

    def run(self, options: RunOptions, association: Association, run: int) -> Iterator[Row]:
        """One row per share of the memory."""
        recipe = Recipe(ARRIVAL_PROCESSES["on-off"], association)
        workload = recipe.draw(mcache_models(), options.rng(self.name, run))
        for memory in MEMORY:
            served = play(IAM, workload, float(memory))
            load_s = served.load_ms / 1e3
            latency_s = served.latency_ms / 1e3
            percentiles = np.percentile(load_s, _QUANTILES).round(4)
            yield {
                "association": association,
                "run": run,
                "memory": memory,
                "hit_ratio": round(served.hit_ratio, 5),
                "latency_s": round(float(latency_s.mean()), 5),
                "loading": round(float(load_s.sum() / latency_s.sum()), 5),
                **{f"load_p{at}_s": float(one) for at, one in zip(_QUANTILES, percentiles, strict=True)},
            }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<association>.<memory>``: medians over traces, and percentiles of load times."""
        return nested(rows, ("association", "memory"), _of_cell)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The statements of section 6.2."""
        middle = {
            name: [one[memory]["latency_s"]["median"] for memory in MEMORY[1:4]]
            for name, one in summary.items()
        }
        lowest = min(middle, key=lambda name: sum(middle[name]))
        costly = summary[Association.POPULAR_AND_COSTLY]
        found = [
            Target(
                "40 to 80 % of the memory: quantiles has the lowest mean latency of the four; "
                "its latency over that of random",
                sum(middle[Association.POPULAR_AND_COSTLY]) / sum(middle[Association.UNIFORM]),
                lowest == Association.POPULAR_AND_COSTLY,
                f"the lowest of the four is {lowest}; in the paper quantiles",
            ),
            *(
                Target.at_most(
                    f"{percent(float(memory))} of the memory: largest 90th percentile of load times [s], "
                    f"at most {most:g}",
                    max(one[memory]["load_p90_s"] for one in summary.values()),
                    most,
                )
                for memory, most in _PAPER_P90_S.items()
            ),
            *(
                Target(
                    f"quantiles, {percent(float(memory))} of the memory: share of loading, "
                    f"paper {percent(said)}, off by at most {_NEAR:g}",
                    costly[memory]["loading"]["median"],
                    abs(costly[memory]["loading"]["median"] - said) <= _NEAR,
                    f"{costly[memory]['loading']['min']:.2f} to {costly[memory]['loading']['max']:.2f}; "
                    f"the first load of each model alone: {costly['1.0']['loading']['median']:.2f}",
                )
                for memory, said in _PAPER_SHARES.items()
            ),
        ]
        for name in (Association.POPULAR_AND_COSTLY, Association.POPULAR_AND_CHEAP):
            all_, half = (summary[name][memory]["latency_s"]["median"] for memory in ("1.0", "0.6"))
            text = f"{name}: latency at 60 % of the memory over that at 100 %, at most {_MODEST:g}"
            found.append(Target.at_most(text, half / all_, _MODEST, "the paper: a modest increase", 2))
        return tuple(found)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per association and share of the memory."""
        for name, memory, one in leaves(summary, 2):
            yield {
                "association": name,
                "memory": percent(float(memory)),
                "hit ratio": f"{one['hit_ratio']['median']:.2f}",
                "latency [s]": median_in_words(one["latency_s"], 2),
                "loading": percent(one["loading"]["median"]),
                "load p90 [s]": f"{one['load_p90_s']:.1f}",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figures 6, 7 and 8."""
        picture = drawing.new_picture(12.4, 3.9)
        latency, loading, *distributions = picture.subplots(1, 4)
        for axes, number, title in (
            (latency, "latency_s", "Mean latency (figure 6)"),
            (loading, "loading", "Share of loading (figure 7)"),
        ):
            for name, by_memory in results.metrics.items():
                x = [100 * float(memory) for memory in by_memory]
                middle, ends = drawing.error_bars([one[number] for one in by_memory.values()], "median")
                axes.plot(x, middle, "o-", color=_COLOURS[Association(name)], markersize=3.5, label=name)
                low, high = middle - ends[0], middle + ends[1]
                axes.fill_between(x, low, high, color=_COLOURS[Association(name)], alpha=0.08, linewidth=0)
            axes.set(title=title, xlabel="memory [% of all models]")
        latency.set(ylabel="time [s]", yscale="log")
        drawing.plain_logarithmic(latency.yaxis)
        loading.set(ylim=(0, 1.02))
        loading.plot(
            [80, 20], [0.08, 0.98], "*", color=_COLOURS[Association.POPULAR_AND_COSTLY], markersize=9
        )
        for axes, memory in zip(distributions, _PAPER_P90_S, strict=True):
            _draw_distribution(axes, results.metrics, memory)
        drawing.legend_below(picture, latency)
        traces = counted(len({row["run"] for row in results.rows}), "trace")
        drawing.caption(
            picture,
            f"IAM, bursts of 300 functions, 7 models, 2,389 requests; medians and ranges of {traces}; "
            "stars: the paper",
        )
        return picture


def _of_cell(rows: Sequence[StoredRow]) -> dict[str, Any]:
    spread = {name: median_and_range(values(rows, name)) for name in ("hit_ratio", "latency_s", "loading")}
    percentiles = {
        f"load_p{at}_s": round(float(np.median(values(rows, f"load_p{at}_s"))), 4) for at in _QUANTILES
    }
    return {**spread, **percentiles}


def _draw_distribution(axes: Axes, summary: Mapping[str, Any], memory: str) -> None:
    for name, by_memory in summary.items():
        load_s = [by_memory[memory][f"load_p{at}_s"] for at in _QUANTILES]
        axes.plot(load_s, [at / 100 for at in _QUANTILES], color=_COLOURS[Association(name)])
    axes.plot(_PAPER_P90_S[memory], 0.9, "*", color="black", markersize=9)
    axes.set(
        title=f"Load times at {percent(float(memory))} (figure 8)",
        xlabel="load time [s]",
        ylabel="share of requests",
        ylim=(0.5, 1.01),
    )
