"""Figure 3.4, tables 3.1 and 3.2: recognition over the number of objects (dissertation, 3.3.1).

The paper compares LSH with brute force on two data sets. Here FAISS's exact search and the default backend
are added. The tables are straight lines fitted to the figure's rows, next to those of the paper. The paper's
times were measured on a PC of its time, ours on one thread of this machine. Slopes can be compared within a
run, not with the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Results, Table, Target, table_of
from nearsight.experiments.studies.cachier.offline_analysis import (
    BACKENDS,
    LSH,
    OURS,
    TITLES,
    OfflineAnalysis,
    Series,
    draw_analysis,
    line,
    point_rows,
)

LEAST_PRECISION = 0.9
_TOLERANCE = 0.02
MOST_OF_LSH = 0.1
_TINY = 1e-9
LOOKS = {
    "flann-lsh": ("#c2571a", "s"),
    "brute-force": ("#8a8a8a", "^"),
    "exact": ("#e0a33a", "D"),
    "auto": ("#1f6f8b", "o"),
}
"""Colour and marker of each algorithm, the same in all pictures."""
_WIDEST = 3.8

Line = tuple[float, float]
"""(a, b) of a + b k."""


class Figure(OfflineAnalysis):
    """Latency, recall and precision over the cache size, for LSH, brute force and our backends."""

    name: ClassVar[str] = "fig3.4"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Speed relative to LSH, and precision."""
        return (slope_target(summary), precision_target(summary))

    def table(self, summary: Mapping[str, Any]) -> Table:
        """One line per algorithm and size."""
        rows = [
            row
            for algorithm, found in summary["algorithms"].items()
            for row in point_rows(TITLES[algorithm], found["points"], "lookup_ms")
        ]
        return ("algorithm", "k", "f(k) [ms]", "recall", "precision"), rows

    def draw(self, results: Results) -> drawing.Picture:
        """Draw latency, recall and precision over k."""
        found = results.metrics["algorithms"]
        series = [
            Series(TITLES[name], *LOOKS[name], found[name]["points"]) for name in BACKENDS if name in found
        ]
        text = (
            f"{results.metrics['objects']} objects; means of random subsets of k, and their deviation; CPU "
            "times of one thread, after extraction; curves of recall and precision are shifted slightly"
        )
        return draw_analysis(series, "lookup_ms", "f(k) [ms], one thread", text, logarithmic=True)


def slope_target(summary: Mapping[str, Any]) -> Target:
    """Target for the slope of the default backend over that of FLANN's LSH."""
    slopes = {name: one["lookup_ms"]["b"] for name, one in summary["algorithms"].items()}
    ratio = float(slopes[OURS] / max(slopes[LSH], _TINY))
    return Target.at_most("f's slope per object, default over LSH: at most 0.1", ratio, MOST_OF_LSH)


def precision_target(summary: Mapping[str, Any]) -> Target:
    """The paper's statement: "precision is constantly high (>90%) across cache sizes"."""
    lowest = min(point["precision"] for point in summary["algorithms"][OURS]["points"])
    return Target("default, lowest mean precision of any k: over 0.90", lowest, lowest > LEAST_PRECISION)


class FittedTable(OfflineAnalysis):
    """Straight lines fitted to one quantity of the offline analysis."""

    same_rows_as: ClassVar[str] = "fig3.4"
    quantity: ClassVar[str]
    """Column of the quantity in the rows."""
    what: ClassVar[str]
    """Its name, with the unit."""
    digits: ClassVar[int]
    """Decimals of the slope."""
    paper: ClassVar[Mapping[str, Mapping[str, Line]]]
    """The paper's lines, by algorithm and data set."""

    def table(self, summary: Mapping[str, Any]) -> Table:
        """One line per algorithm, with the lines of the paper."""
        sets = dict.fromkeys(name for lines in self.paper.values() for name in lines)
        return table_of(
            {
                "algorithm": TITLES[algorithm],
                "k up to": found["points"][-1]["k"],
                self.what: line(found[self.quantity], self.digits),
                "between subsets": f"± {found[self.quantity]['b_std']:.{self.digits}f} k",
                **{
                    f"paper, {name}": self._published(self.paper.get(algorithm, {}).get(name))
                    for name in sets
                },
            }
            for algorithm, found in summary["algorithms"].items()
        )

    def draw(self, results: Results) -> drawing.Picture:
        """Draw measurements of every subset, the fitted lines, and the lines of the paper."""
        rows, found = results.rows, results.metrics
        picture = drawing.new_picture(8.4, 4.2)
        axes = picture.subplots()
        k = np.linspace(1, found["objects"], 200)
        for place, algorithm in enumerate(one for one in BACKENDS if one in found["algorithms"]):
            colour, marker = LOOKS[algorithm]
            mine = [row for row in rows if row["algorithm"] == algorithm]
            x = np.array([int(row["k"]) for row in mine])
            y = np.array([float(row[self.quantity]) for row in mine])
            axes.plot(x, y, marker, color=colour, markersize=3, alpha=0.45, markeredgewidth=0)
            fit = found["algorithms"][algorithm][self.quantity]
            inside = k[k <= x.max()]
            limit = f", k ≤ {x.max()}" if x.max() < found["objects"] else ""
            label = f"{TITLES[algorithm]}: {line(fit, self.digits)}{limit}"
            width = _WIDEST - 0.7 * place  # wider lines first, so that overlapping lines stay visible
            axes.plot(inside, fit["a"] + fit["b"] * inside, color=colour, linewidth=width, label=label)
            self._draw_paper(axes, algorithm, k, colour)
        self._finish(axes)
        axes.set(xlabel="objects in the cache, k", ylabel=self.what, xlim=(0, None))
        axes.set_title(f"{self.what}: points are random subsets, lines are fitted")
        picture.legend(loc="outside right upper", fontsize=8)
        return picture

    def _draw_paper(self, axes: Any, algorithm: str, k: np.ndarray[Any, Any], colour: str) -> None:
        styles = (":", (0, (4, 2)))
        for style, (name, (a, b)) in zip(styles, self.paper.get(algorithm, {}).items(), strict=False):
            label = f"paper, {name}, {TITLES[algorithm].split()[0]}: {self._published((a, b))}"
            axes.plot(k, a + b * k, linestyle=style, color=colour, linewidth=1.0, alpha=0.8, label=label)

    def _finish(self, axes: Any) -> None:
        """Set scales and limits for the quantity; nothing by default."""

    def _published(self, values: Line | None) -> str:
        return "" if values is None else line({"a": values[0], "b": values[1]}, self.digits)


class Table3x1(FittedTable):
    """recall(k), fitted; uses the rows of fig3.4."""

    name: ClassVar[str] = "table3.1"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1.3"
    quantity: ClassVar[str] = "recall"
    what: ClassVar[str] = "recall(k)"
    digits: ClassVar[int] = 5
    paper: ClassVar[Mapping[str, Mapping[str, Line]]] = {
        "flann-lsh": {"Stanford": (0.90, -0.00014), "UMiss": (0.88, -0.00013)},
        "brute-force": {"Stanford": (0.66, -0.00013), "UMiss": (0.78, -0.00021)},
    }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Recall relative to that of LSH, and precision."""
        at_all = {name: one["points"][-1]["recall"] for name, one in summary["algorithms"].items()}
        ahead = at_all[OURS] - at_all[LSH]
        text = "all objects: recall of the default minus that of LSH, at least -0.02"
        return (Target.at_least(text, ahead, -_TOLERANCE), precision_target(summary))

    def _finish(self, axes: Any) -> None:
        axes.set_ylim(0.4, 1.02)


class Table3x2(FittedTable):
    """f(k), fitted; uses the rows of fig3.4."""

    name: ClassVar[str] = "table3.2"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1.4"
    quantity: ClassVar[str] = "lookup_ms"
    what: ClassVar[str] = "f(k) [ms]"
    digits: ClassVar[int] = 4
    paper: ClassVar[Mapping[str, Mapping[str, Line]]] = {
        "flann-lsh": {"Stanford": (51.14, 1.87), "UMiss": (6.18, 2.21)},
        "brute-force": {"Stanford": (60.52, 10.42), "UMiss": (21.88, 11.77)},
    }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Speed relative to LSH."""
        return (slope_target(summary),)

    def _finish(self, axes: Any) -> None:
        axes.set_yscale("log")
        drawing.plain_logarithmic(axes.yaxis)
