"""Tables 3.1 and 3.2: straight lines fitted to the offline analysis, beside those of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework.drawing import Picture, new_picture
from nearsight.experiments.framework.experiment import Results
from nearsight.experiments.studies.cachier.fig3_4 import LOOKS
from nearsight.experiments.studies.cachier.offline_analysis import BACKENDS, TITLES, OfflineAnalysis, line

_WIDEST = 3.8

Line = tuple[float, float]
"""a and b of a + b k."""


class FittedTable(OfflineAnalysis):
    """One quantity of the offline analysis.

    Attributes
    ----------
    quantity : str
        Which.
    what : str
        Its name, with the unit.
    digits : int
        Of the slope.
    paper : mapping
        By algorithm, by data set: the paper's lines.
    """

    same_rows_as: ClassVar[str] = "fig3.4"
    quantity: ClassVar[str]
    what: ClassVar[str]
    digits: ClassVar[int]
    paper: ClassVar[Mapping[str, Mapping[str, Line]]]

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        sets = list(dict.fromkeys(name for lines in self.paper.values() for name in lines))
        rows = []
        for algorithm, found in summary["algorithms"].items():
            fit = found[self.quantity]
            published = self.paper.get(algorithm, {})
            rows.append(
                (
                    TITLES[algorithm],
                    found["points"][-1]["k"],
                    line(fit, self.digits),
                    f"± {fit['b_std']:.{self.digits}f} k",
                    *(self._published(published.get(name)) for name in sets),
                )
            )
        return (
            "algorithm",
            "k up to",
            self.what,
            "between subsets",
            *(f"paper, {name}" for name in sets),
        ), rows

    def draw(self, results: Results) -> Picture:
        """Measurements of every subset, the fitted lines, and the lines of the paper."""
        rows = results.rows
        found = self.metrics(rows)
        picture = new_picture(8.4, 4.2)
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
            width = _WIDEST - 0.7 * place  # a line that another one covers still shows at its sides
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
        """Scales and limits of the quantity."""

    def _published(self, values: Line | None) -> str:
        return "" if values is None else line({"a": values[0], "b": values[1]}, self.digits)
