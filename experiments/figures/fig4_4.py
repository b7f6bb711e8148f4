"""Figure 4.4: latency, recall and precision on a device, by number of features (dissertation, 4.5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nearsight.experiments.figures.experiment import Target
from nearsight.experiments.figures.feature_tradeoff import FEATURE_COUNTS, FeatureTradeoff
from nearsight.experiments.figures.result_files import ResultFolder
from nearsight.experiments.figures.style import SEQUENCE, STYLE

MARKERS = ("s", "D", "^", "o")


class Figure(FeatureTradeoff):
    """The trade-off over k."""

    name: ClassVar[str] = "fig4.4"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tradeoff_targets(summary)

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                features,
                point["k"],
                *(
                    f"{point[name]:.{digits}f} ± {point[f'{name}_std']:.{digits}f}"
                    for name, digits in (("device_ms", 2), ("recall", 3), ("precision", 3))
                ),
            )
            for features, found in summary["features"].items()
            for point in found["points"]
        ]
        return ("features", "k", "f_D(k) [ms]", "recall", "precision"), rows

    def plot(self, folder: Path) -> Path:  # noqa: D102
        import matplotlib as mpl  # noqa: PLC0415  measuring needs no drawing
        from matplotlib.figure import Figure as Picture  # noqa: PLC0415

        summary = self.metrics(ResultFolder(folder).rows())
        found = summary["features"]
        with mpl.rc_context(STYLE):
            picture = Picture(figsize=(10.5, 3.9), layout="constrained")
            latency, recall, precision = picture.subplots(1, 3)
            for axes, name in ((latency, "device_ms"), (recall, "recall"), (precision, "precision")):
                for features, one in found.items():
                    _draw(axes, int(features), one["points"], name)
                axes.set(xlabel="objects in the cache, k", xlim=(0, None))
            latency.set(title="Time to recognise", ylabel="f_D(k) [ms], extraction included", ylim=(0, None))
            for axes, title in ((recall, "Recall"), (precision, "Precision")):
                axes.set(title=title, ylim=(0.5, 1.02))
            picture.suptitle(
                f"{summary['objects']} objects; means of random subsets of k, and their deviation; CPU "
                "times of one thread of this machine",
                fontsize=8,
                color="#555555",
            )
            handles, labels = latency.get_legend_handles_labels()
            picture.legend(handles, labels, loc="outside lower center", ncols=4)
            path = folder / f"{self.name}.png"
            picture.savefig(path, dpi=160)
        return path


def tradeoff_targets(summary: Mapping[str, Any]) -> tuple[Target, ...]:
    """The shape of the paper's curves: the fewest features are the fastest, the most find the most."""
    fewest, most = (summary["features"][key] for key in (min(summary["features"], key=int), _most(summary)))
    last_fewest, last_most = fewest["points"][-1], most["points"][-1]
    faster = last_fewest["device_ms"] / last_most["device_ms"]
    ahead = last_most["recall"] - last_fewest["recall"]
    return (
        Target("largest k: f_D of the fewest features over that of the most, below 1", faster, faster < 1),
        Target("largest k: recall of the most features minus that of the fewest, over 0", ahead, ahead > 0),
    )


def colour_of(features: int) -> str:
    """The same in all pictures; numbers of features of a data set of one's own are in the list."""
    return SEQUENCE[FEATURE_COUNTS.index(features)]


def _most(summary: Mapping[str, Any]) -> str:
    return str(max(summary["features"], key=int))


def _draw(axes: Any, features: int, points: Sequence[Mapping[str, float]], name: str) -> None:
    axes.errorbar(
        [point["k"] for point in points],
        [point[name] for point in points],
        [point[f"{name}_std"] for point in points],
        color=colour_of(features),
        marker=MARKERS[FEATURE_COUNTS.index(features)],
        markersize=4,
        linewidth=1.5,
        elinewidth=0.8,
        capsize=2,
        label=f"{features} features",
    )
