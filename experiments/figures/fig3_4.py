"""Figure 3.4: latency, recall and precision of recognition over the number of objects (dissertation, 3.3.1).

The paper compares LSH with brute force on two data sets; here also FAISS's exact search and the default
backend. Fits are in table3.1 and table3.2, which use the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nearsight.experiments.figures.experiment import Target
from nearsight.experiments.figures.offline_analysis import (
    BACKENDS,
    OURS,
    TITLES,
    OfflineAnalysis,
    slope_ratio,
)
from nearsight.experiments.figures.result_files import ResultFolder
from nearsight.experiments.figures.style import STYLE, plain_logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_PRECISION = 0.9
MOST_OF_LSH = 0.1
LOOKS = {
    "flann-lsh": ("#c2571a", "s"),
    "brute-force": ("#8a8a8a", "^"),
    "exact": ("#e0a33a", "D"),
    "auto": ("#1f6f8b", "o"),
}
"""Colour and marker of each algorithm, the same in all pictures."""


class Figure(OfflineAnalysis):
    """Latency, recall and precision over k."""

    name: ClassVar[str] = "fig3.4"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return (slope_target(summary), precision_target(summary))

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                TITLES[algorithm],
                point["k"],
                *(
                    f"{point[name]:.{digits}f} ± {point[f'{name}_std']:.{digits}f}"
                    for name, digits in (("lookup_ms", 2), ("recall", 3), ("precision", 3))
                ),
            )
            for algorithm, found in summary["algorithms"].items()
            for point in found["points"]
        ]
        return ("algorithm", "k", "f(k) [ms]", "recall", "precision"), rows

    def plot(self, folder: Path) -> Path:  # noqa: D102
        import matplotlib as mpl  # noqa: PLC0415  measuring needs no drawing
        from matplotlib.figure import Figure as Picture  # noqa: PLC0415

        found = self.metrics(ResultFolder(folder).rows())
        with mpl.rc_context(STYLE):
            picture = Picture(figsize=(10.5, 3.9), layout="constrained")
            latency, recall, precision = picture.subplots(1, 3)
            for axes, name in ((latency, "lookup_ms"), (recall, "recall"), (precision, "precision")):
                draw(axes, found, name)
            latency.set(title="Time to recognise", ylabel="f(k) [ms], one thread", yscale="log")
            plain_logarithmic(latency.yaxis)
            for axes, title in ((recall, "Recall"), (precision, "Precision")):
                axes.set(title=title, ylim=(0.5, 1.02))
            picture.suptitle(
                f"{found['objects']} objects; means of random subsets of k, and their deviation; CPU "
                "times of one thread, after extraction",
                fontsize=8,
                color="#555555",
            )
            handles, labels = latency.get_legend_handles_labels()
            picture.legend(handles, labels, loc="outside lower center", ncols=4)
            path = folder / f"{self.name}.png"
            picture.savefig(path, dpi=160)
        return path


def slope_target(summary: Mapping[str, Any]) -> Target:
    """What the default backend must be better at than FLANN's LSH."""
    ratio = slope_ratio(summary)
    return Target("f's slope per object, default over LSH: at most 0.1", ratio, ratio <= MOST_OF_LSH)


def precision_target(summary: Mapping[str, Any]) -> Target:
    """The paper: "precision is constantly high (>90%) across cache sizes"."""
    lowest = min(point["precision"] for point in summary["algorithms"][OURS]["points"])
    return Target("default, lowest mean precision of any k: over 0.90", lowest, lowest > LEAST_PRECISION)


def draw(axes: Axes, found: Mapping[str, Any], name: str) -> None:
    """Mean and deviation over the subsets of each size."""
    for algorithm in [one for one in BACKENDS if one in found["algorithms"]]:
        points = found["algorithms"][algorithm]["points"]
        colour, marker = LOOKS[algorithm]
        axes.errorbar(
            [point["k"] for point in points],
            [point[name] for point in points],
            [point[f"{name}_std"] for point in points],
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.5,
            elinewidth=0.8,
            capsize=2,
            label=TITLES[algorithm],
        )
    axes.set(xlabel="objects in the cache, k", xlim=(0, None))
