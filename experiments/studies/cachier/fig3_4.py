"""Figure 3.4, tables 3.1 and 3.2: recognition over the number of objects (dissertation, 3.3.1).

The paper compares LSH with brute force on two data sets. Here FAISS's exact search and the default backend
are added. All algorithms use the same pipeline (ratio test, votes, verification), subsets and photos, and
differ only in the search for nearest neighbours. The tables are straight lines fitted to the figure's rows,
next to those of the paper. The paper does not state the machine of its times; ours were measured on one
thread of this machine, after extraction. Slopes can be compared within a run, not with the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import nested
from nearsight.experiments.profiling.measuring import PreparedData, measure, no_progress, prepare
from nearsight.experiments.studies.cachier.offline_analysis import (
    Series,
    analysed,
    draw_analysis,
    line,
    point_lines,
    subset_plan,
    subsets_of,
)
from nearsight.experiments.studies.museums import OnDataSet, dataset_of, museum_of

LSH, BRUTE_FORCE, OURS, EXACT = "flann-lsh", "brute-force", "auto", "exact"
TITLES = {
    LSH: "LSH (FLANN)",
    BRUTE_FORCE: "BF (OpenCV)",
    EXACT: "exact (FAISS)",
    OURS: "default (multihash)",
}
"""Names of the algorithms in pictures and tables."""
LOOKS = {
    LSH: ("#c2571a", "s"),
    BRUTE_FORCE: ("#8a8a8a", "^"),
    EXACT: ("#e0a33a", "D"),
    OURS: ("#1f6f8b", "o"),
}
"""Colour and marker of each algorithm, the same in all pictures."""
_PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
_BRUTE_FORCE_UP_TO = 50
"""Largest size for brute force; beyond, it would take longer than all others, and its f(k) is a straight
line."""
LEAST_PRECISION = 0.9
_TOLERANCE = 0.02
MOST_OF_LSH = 0.1
_TINY = 1e-9
_WIDEST = 3.8

Line = tuple[float, float]
"""(a, b) of a + b k."""


class Figure(OnDataSet):
    """Latency, recall and precision over the cache size, for LSH, brute force and our backends."""

    name: ClassVar[str] = "fig3.4"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1"

    def __init__(self) -> None:
        self._prepared: PreparedData | None = None

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per subset and algorithm, subset by subset: a busy period slows all algorithms equally."""
        return [{"subset": subset, "backend": name} for subset in subsets_of(options) for name in TITLES]

    def run(self, options: RunOptions, subset: int, backend: str) -> list[Row]:
        """Measure one algorithm on a random subset of each size; one row per size."""
        settings = RecognitionSettings(backend=backend)
        if self._prepared is None:
            self._prepared = prepare(dataset_of(options, museum_of(options)), settings, no_progress)
        data = self._prepared
        plan = subset_plan(options, "offline analysis", subset, _sizes(len(data.models), backend))
        return [
            {"algorithm": backend, "objects": len(data.models), **asdict(replace(row, subset=subset))}
            for row in measure(data, plan, settings, no_progress)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per algorithm: points over k, and a + b · k for f, recall and precision."""
        found = nested(rows, ("algorithm",), lambda some: analysed(some, "lookup_ms"))
        return {"objects": int(rows[0]["objects"]), "algorithms": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Speed relative to LSH, and precision."""
        return (slope_target(summary), precision_target(summary))

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per algorithm and size."""
        for algorithm, found in summary["algorithms"].items():
            named = {"algorithm": TITLES[algorithm]}
            yield from point_lines(named, found["points"], "lookup_ms", "f(k) [ms]")

    def draw(self, results: Results) -> drawing.Picture:
        """Draw latency, recall and precision over k."""
        found = results.metrics["algorithms"]
        series = [
            Series(TITLES[name], *LOOKS[name], found[name]["points"]) for name in LOOKS if name in found
        ]
        text = (
            f"{results.metrics['objects']} objects; means of random subsets of k, and their deviation; CPU "
            "times of one thread, after extraction; curves of recall and precision are shifted slightly"
        )
        return draw_analysis(series, "lookup_ms", "f(k) [ms], one thread", text, logarithmic=True)


def _sizes(objects: int, backend: str) -> tuple[int, ...]:
    most = _BRUTE_FORCE_UP_TO if backend == BRUTE_FORCE else objects
    sizes = {1, *(max(1, round(objects * part)) for part in _PARTS)}
    return tuple(size for size in sorted(sizes) if size <= most)


def slope_target(summary: Mapping[str, Any]) -> Target:
    """Target for the slope of the default backend over that of FLANN's LSH."""
    slopes = {name: one["lookup_ms"]["b"] for name, one in summary["algorithms"].items()}
    ratio = float(slopes[OURS] / max(slopes[LSH], _TINY))
    return Target.at_most("f's slope per object, default over LSH: at most 0.1", ratio, MOST_OF_LSH)


def precision_target(summary: Mapping[str, Any]) -> Target:
    """The paper's statement: "precision is constantly high (>90%) across cache sizes"."""
    lowest = min(point["precision"] for point in summary["algorithms"][OURS]["points"])
    return Target("default, lowest mean precision of any k: over 0.90", lowest, lowest > LEAST_PRECISION)


class FittedTable(Figure):
    """Straight lines fitted to one quantity of the figure's rows."""

    quantity: ClassVar[str]
    """Column of the quantity in the rows."""
    what: ClassVar[str]
    """Its name, with the unit."""
    digits: ClassVar[int]
    """Decimals of the slope."""
    paper: ClassVar[Mapping[str, Mapping[str, Line]]]
    """The paper's lines, by algorithm and data set."""
    limits: ClassVar[Mapping[str, Any]]
    """Scale and limits of the vertical axis."""

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per algorithm, with the lines of the paper."""
        sets = dict.fromkeys(name for lines in self.paper.values() for name in lines)
        for algorithm, found in summary["algorithms"].items():
            published = self.paper.get(algorithm, {})
            yield {
                "algorithm": TITLES[algorithm],
                "k up to": found["points"][-1]["k"],
                self.what: line(found[self.quantity], self.digits),
                "between subsets": f"± {found[self.quantity]['b_std']:.{self.digits}f} k",
                **{f"paper, {name}": self._published(published.get(name)) for name in sets},
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw measurements of every subset, the fitted lines, and the lines of the paper."""
        rows, found = results.rows, results.metrics
        picture = drawing.new_picture(8.4, 4.2)
        axes = picture.subplots()
        k = np.linspace(1, found["objects"], 200)
        for place, algorithm in enumerate(one for one in LOOKS if one in found["algorithms"]):
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
        axes.set(**self.limits)
        if axes.get_yscale() == "log":
            drawing.plain_logarithmic(axes.yaxis)
        axes.set(xlabel="objects in the cache, k", ylabel=self.what, xlim=(0, None))
        axes.set_title(f"{self.what}: points are random subsets, lines are fitted")
        picture.legend(loc="outside right upper", fontsize=8)
        return picture

    def _draw_paper(self, axes: Any, algorithm: str, k: np.ndarray[Any, Any], colour: str) -> None:
        styles = (":", (0, (4, 2)))
        for style, (name, (a, b)) in zip(styles, self.paper.get(algorithm, {}).items(), strict=False):
            label = f"paper, {name}, {TITLES[algorithm].split()[0]}: {self._published((a, b))}"
            axes.plot(k, a + b * k, linestyle=style, color=colour, linewidth=1.0, alpha=0.8, label=label)

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
        LSH: {"Stanford": (0.90, -0.00014), "UMiss": (0.88, -0.00013)},
        BRUTE_FORCE: {"Stanford": (0.66, -0.00013), "UMiss": (0.78, -0.00021)},
    }
    limits: ClassVar[Mapping[str, Any]] = {"ylim": (0.4, 1.02)}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Recall relative to that of LSH, and precision."""
        at_all = {name: one["points"][-1]["recall"] for name, one in summary["algorithms"].items()}
        ahead = at_all[OURS] - at_all[LSH]
        text = "all objects: recall of the default minus that of LSH, at least -0.02"
        return (Target.at_least(text, ahead, -_TOLERANCE), precision_target(summary))


class Table3x2(FittedTable):
    """f(k), fitted; uses the rows of fig3.4."""

    name: ClassVar[str] = "table3.2"
    source: ClassVar[str] = "Cachier dissertation, 3.3.1.4"
    quantity: ClassVar[str] = "lookup_ms"
    what: ClassVar[str] = "f(k) [ms]"
    digits: ClassVar[int] = 4
    paper: ClassVar[Mapping[str, Mapping[str, Line]]] = {
        LSH: {"Stanford": (51.14, 1.87), "UMiss": (6.18, 2.21)},
        BRUTE_FORCE: {"Stanford": (60.52, 10.42), "UMiss": (21.88, 11.77)},
    }
    limits: ClassVar[Mapping[str, Any]] = {"yscale": "log"}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Speed relative to LSH."""
        return (slope_target(summary),)
