"""Table 4.1: f_D(k) and recall_D(k) as straight lines, by number of features (dissertation, 4.5.3).

The picture shows times as multiples of those with 800 features and one object: the paper's device is a
Nexus 7, ours one thread of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework.drawing import Picture, new_picture
from nearsight.experiments.framework.experiment import Results, Target
from nearsight.experiments.studies.cachier.feature_tradeoff import FeatureTradeoff
from nearsight.experiments.studies.cachier.fig4_4 import colour_of, tradeoff_targets
from nearsight.experiments.studies.cachier.offline_analysis import line

PAPER = {
    200: ((170.34, 0.70), (0.81, -0.00619)),
    400: ((221.24, 1.13), (0.87, -0.00324)),
    600: ((265.01, 1.74), (0.88, -0.00119)),
    800: ((310.99, 2.05), (0.87, -0.00146)),
}
"""By number of features: a and b of f_D in ms, and of recall_D."""


class Figure(FeatureTradeoff):
    """f_D(k) and recall_D(k), fitted; uses the rows of fig4.4."""

    name: ClassVar[str] = "table4.1"
    source: ClassVar[str] = "Cachier dissertation, 4.5.3"
    same_rows_as: ClassVar[str] = "fig4.4"

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tradeoff_targets(summary)

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        most = summary["features"][max(summary["features"], key=int)]["device_ms"]["a"]
        rows = []
        for features, found in summary["features"].items():
            time, recall = PAPER[int(features)]
            rows.append(
                (
                    features,
                    f"{found['extraction_ms']['mean']:.2f} ± {found['extraction_ms']['std']:.2f}",
                    line(found["device_ms"], 4),
                    line({"a": time[0], "b": time[1]}, 2),
                    f"{found['device_ms']['a'] / most:.2f}",
                    f"{time[0] / PAPER[max(PAPER)][0][0]:.2f}",
                    line(found["recall"], 5),
                    line({"a": recall[0], "b": recall[1]}, 5),
                )
            )
        columns = (
            "features",
            "extraction [ms]",
            "f_D(k) [ms]",
            "paper, Nexus 7",
            "f_D(0) of most's",
            "paper",
            "recall_D(k)",
            "paper",
        )
        return columns, rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        rows = results.rows
        found = results.metrics["features"]
        largest = max(int(row["k"]) for row in rows)
        picture = new_picture(9.0, 4.2)
        times, recalls = picture.subplots(1, 2)
        k = np.linspace(1, largest, 200)
        most = found[max(found, key=int)]["device_ms"]
        unit, paper_unit = most["a"] + most["b"], sum(PAPER[max(PAPER)][0])
        for features, one in found.items():
            colour = colour_of(int(features))
            time, recall = PAPER[int(features)]
            fit = one["device_ms"]
            label = f"{features} features"
            times.plot(k, (fit["a"] + fit["b"] * k) / unit, color=colour, label=label)
            times.plot(k, (time[0] + time[1] * k) / paper_unit, "--", color=colour, linewidth=1)
            fit = one["recall"]
            recalls.plot(k, fit["a"] + fit["b"] * k, color=colour)
            recalls.plot(k, recall[0] + recall[1] * k, "--", color=colour, linewidth=1)
            points = one["points"]
            x = [point["k"] for point in points]
            times.plot(x, [point["device_ms"] / unit for point in points], "o", color=colour, markersize=3)
            recalls.plot(x, [point["recall"] for point in points], "o", color=colour, markersize=3)
        times.set(title="f_D(k)", ylabel="multiple of 800 features, one object", ylim=(0, None))
        recalls.set(title="recall_D(k)", ylim=(0, 1.02))
        for axes in (times, recalls):
            axes.set(xlabel="objects in the cache, k", xlim=(0, None))
        handles, labels = times.get_legend_handles_labels()
        from matplotlib.lines import Line2D  # noqa: PLC0415

        dashed = Line2D([], [], linestyle="--", color="#555555", linewidth=1)
        picture.legend(
            [*handles, dashed], [*labels, "paper"], loc="outside lower center", ncols=len(handles) + 1
        )
        return picture
