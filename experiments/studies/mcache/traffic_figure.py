"""Figures 1 and 2 of mCache, figure 2 of CremeBrulee: generated functions and the papers' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import counted, mean_and_spread, nested, values
from nearsight.experiments.traces.arrivals import CREMEBRULEE, MCACHE

MARGINALS = {"mCache": MCACHE, "CremeBrulee": CREMEBRULEE}
_FUNCTIONS, _RUNS, _BUCKETS, _REPEATS = 20_000, 5, 100, 1_000
_LOWEST, _HIGHEST = -5.0, 3.0
"""Ends of the buckets as powers of ten."""
_QUANTILES = (1, 2, 5, 10, 20, 50, 100, 150, 200)
_PAPER = {"mCache": {"1": 0.0117}, "CremeBrulee": {"1": 0.0063, "0.1": 0.0235}}
"""Share of the functions that are called more often than this [1/s]."""
_MOST_HZ = {"mCache": 15.0, "CremeBrulee": 20.0}
"""Upper end of the calls of 200 functions of all quantiles in both figures 2 [1/s]."""
_NINETIETH = {"CremeBrulee": "about 1"}
"""90th percentile of the rates [1/min]; mCache does not state it."""
_COLOURS = {"mCache": "#1f6f8b", "CremeBrulee": "#c2571a"}


class Figure(Experiment):
    """Rates of generated functions, and calls of functions of all quantiles, and those of both papers."""

    name: ClassVar[str] = "mcache-traffic"
    source: ClassVar[str] = "mCache, 3.1"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per paper and draw."""
        return [
            {"paper": paper, "run": run}
            for paper in MARGINALS
            for run in range(1 if options.smoke else _RUNS)
        ]

    def run(self, options: RunOptions, paper: str, run: int) -> Iterator[Row]:
        """One row per bucket of rates, and one per number of quantiles."""
        rng = options.rng(self.name, paper, run)
        rates = np.sort(MARGINALS[paper].draw(_FUNCTIONS, rng))
        ends = np.logspace(_LOWEST, _HIGHEST, _BUCKETS + 1)
        counts = np.histogram(rates, ends)[0]
        shares = {"1": np.mean(rates > 1.0), "0.1": np.mean(rates > 0.1), "90th": np.quantile(rates, 0.9)}
        common: Row = {"paper": paper, "run": run}
        for end, count in zip(ends, counts, strict=False):
            yield {**common, "kind": "bucket", "at": float(end), "value": int(count)}
        for at, one in shares.items():
            yield {**common, "kind": "share", "at": at, "value": float(one)}
        for quantiles in _QUANTILES:
            groups = np.array_split(rates, quantiles)
            calls = np.sum([rng.choice(group, _REPEATS) for group in groups], axis=0)
            yield {**common, "kind": "memory", "at": quantiles, "value": float(np.mean(calls))}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<paper>.<kind>.<at>``: mean and spread over draws."""
        return nested(rows, ("paper", "kind", "at"), lambda group: mean_and_spread(values(group, "value")))

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The shares that the papers state, and the curves of their figures 2."""
        found = []
        for paper, kinds in summary.items():
            shares = kinds["share"]
            for at, said in _PAPER[paper].items():
                share = shares[at]["mean"]
                text = f"{paper}: functions called more than {at}/s, {percent(said, 2)} in the paper"
                found.append(Target(text, share, abs(share - said) <= 0.1 * said))
            ninetieth = 60.0 * shares["90th"]["mean"]
            text = f"{paper}: 90th percentile [1/min], about 1 in CremeBrulee"
            found.append(Target(text, ninetieth, abs(ninetieth - 1.0) <= 0.1))
            calls = kinds["memory"]["200"]
            spread = f"{calls['min']:.1f} to {calls['max']:.1f} over {counted(calls['runs'], 'draw')}"
            text = f"{paper}: calls per second of 200 functions of all quantiles, 1 GB each"
            found.append(Target.at_most(text, calls["mean"], _MOST_HZ[paper], spread, 2))
        return tuple(found)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per paper and number."""

        def line(paper: str, number: str, generated: str, said: str) -> dict[str, object]:
            return {"paper": paper, "number": number, "generated": generated, "paper's": said}

        for paper, kinds in summary.items():
            shares, said = kinds["share"], _PAPER[paper]
            for at in ("1", "0.1"):
                share = percent(said[at], 2) if at in said else ""
                yield line(paper, f"above {at}/s", percent(shares[at]["mean"], 2), share)
            ninetieth, calls = 60 * shares["90th"]["mean"], kinds["memory"]["200"]["mean"]
            yield line(paper, "90th percentile [1/min]", f"{ninetieth:.2f}", _NINETIETH.get(paper, ""))
            yield line(paper, "200 functions [1/s]", f"{calls:.1f}", f"below {_MOST_HZ[paper]:.0f}")

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figure 1 and figure 2."""
        picture = drawing.new_picture(9.6, 3.8)
        rates, memory = picture.subplots(1, 2)
        for paper, kinds in results.metrics.items():
            _draw_rates(rates, paper, kinds["bucket"])
            calls = kinds["memory"]
            x = [int(at) for at in calls]
            means, ends = drawing.error_bars([*calls.values()])
            memory.errorbar(
                x, means, ends, color=_COLOURS[paper], marker="o", markersize=3, label=paper, capsize=2
            )
            most = _MOST_HZ[paper]
            memory.axhline(most, color=_COLOURS[paper], linestyle=":", linewidth=1)
            memory.annotate(
                f"{paper}: below {most:.0f}", (2, most), xytext=(0, 3), textcoords="offset points"
            )
        rates.axvline(1.0, color="#8a8a8a", linestyle=":", linewidth=1)
        rates.set(
            title="Functions by mean rate (figure 1; 2a)",
            xscale="log",
            yscale="log",
            xlabel="calls per second",
            ylabel="functions in a bucket, of 20,000",
        )
        memory.set(
            title="Functions of all quantiles (figure 2; 2b)",
            xlabel="memory [GB] = functions",
            ylabel="calls per second of all",
            ylim=(0, 26),
        )
        memory.legend(loc="upper left", bbox_to_anchor=(0.0, 0.55))
        draws = counted(len({row["run"] for row in results.rows}), "draw")
        drawing.caption(
            picture, f"Drawn rates; 100 buckets; dotted: the papers' values; bars: range of {draws}"
        )
        return picture


def _draw_rates(axes: Axes, paper: str, buckets: Mapping[str, Mapping[str, float]]) -> None:
    label = f"{paper}: {percent(_PAPER[paper]['1'], 2)} above 1/s"
    counts = [one["mean"] for one in buckets.values()]
    axes.step([float(at) for at in buckets], counts, where="post", color=_COLOURS[paper], label=label)
    axes.legend(loc="upper right")
