"""Fewer features per photo: faster, but with less recall (dissertation, 4.5.2); figure 4.4 and table 4.1.

The method is that of the edge's offline analysis, with the default backend, for each number of features that
is extracted from a photo. The models stay the same, and all numbers of features use the same subsets and
photos. f_D(k) is the whole time on a device: decoding and extraction, matching and verification, as CPU time
of one thread of this machine. The paper measured on a Nexus 7, so ratios can be compared and times cannot.
Therefore the picture of the table shows times as multiples of those with 800 features and one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.lines import Line2D

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.profiling.analysis import FEATURE_COUNTS, quick_pipeline
from nearsight.experiments.profiling.measuring import (
    PreparedData,
    extraction_time,
    measure,
    no_progress,
    prepare,
)
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

_LOOKS = dict(zip(FEATURE_COUNTS, zip(drawing.SEQUENCE, ("s", "D", "^", "o"), strict=True), strict=True))
"""Colour and marker of each number of features, the same in both pictures."""
_SMOKE_FEATURE_COUNTS = (200, 800)
_TIMED_PHOTOS = 60
_SIZES = (1, 5, 10, 20, 40, 60, 80, 100)
"""Cache sizes; a device prefetches tens of objects, not hundreds."""
PAPER = {
    200: ((170.34, 0.70), (0.81, -0.00619)),
    400: ((221.24, 1.13), (0.87, -0.00324)),
    600: ((265.01, 1.74), (0.88, -0.00119)),
    800: ((310.99, 2.05), (0.87, -0.00146)),
}
"""By number of features: (a, b) of f_D [ms], and (a, b) of recall_D."""


class Figure4x4(OnDataSet):
    """Latency, recall and precision on a device, for several numbers of features."""

    name: ClassVar[str] = "fig4.4"
    source: ClassVar[str] = "Cachier dissertation, 4.5.2"

    def __init__(self) -> None:
        self._prepared: dict[int, PreparedData] = {}

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per subset and number of features."""
        counts = _SMOKE_FEATURE_COUNTS if options.smoke else FEATURE_COUNTS
        return [{"subset": subset, "features": count} for subset in subsets_of(options) for count in counts]

    def run(self, options: RunOptions, subset: int, features: int) -> Iterator[Row]:
        """Measure one number of features on a random subset of each size; one row per size."""
        settings = quick_pipeline(RecognitionSettings(), features)
        dataset = dataset_of(options, museum_of(options))
        data = self._data(dataset, features)
        sizes = [size for size in _SIZES if size <= len(data.models)]
        plan = subset_plan(options, "feature trade-off", subset, sizes)
        extraction_ms = extraction_time(_photos(dataset, subset, options), settings)
        for row in measure(data, plan, settings, no_progress):
            yield {
                "features": features,
                "objects": len(data.models),
                **asdict(replace(row, subset=subset)),
                "extraction_ms": extraction_ms,
                "device_ms": extraction_ms + row.lookup_ms,
            }

    def _data(self, dataset: Dataset, features: int) -> PreparedData:
        """Prepare a data set; models are trained once, photos are read once per number of features."""
        if features not in self._prepared:
            settings = RecognitionSettings()
            before = next(iter(self._prepared.values()), None) or prepare(dataset, settings, no_progress)
            pipeline = quick_pipeline(settings, features)
            self._prepared[features] = prepare(dataset, pipeline, no_progress, before.models)
        return self._prepared[features]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per number of features: points over k, and a + b · k for f_D, recall_D and precision."""
        groups = numbers.grouped(rows, "features")
        found = {features: _trade_off(groups[features]) for features in sorted(groups, key=int)}
        return {"objects": int(rows[0]["objects"]), "features": found}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The shape of the paper's curves: more features take longer and have a higher recall."""
        ordered = sorted(summary["features"], key=int)
        fewest, most = (summary["features"][one]["points"][-1] for one in (ordered[0], ordered[-1]))
        faster = fewest["device_ms"] / most["device_ms"]
        yield Target(
            "largest k: f_D of the fewest features over that of the most, below 1", faster, faster < 1
        )
        ahead = most["recall"] - fewest["recall"]
        yield Target(
            "largest k: recall of the most features minus that of the fewest, over 0", ahead, ahead > 0
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per number of features and size."""
        for features, found in summary["features"].items():
            yield from point_lines({"features": features}, found["points"], "device_ms", "f_D(k) [ms]")

    def draw(self, results: Results) -> drawing.Picture:
        """Draw latency, recall and precision over k."""
        series = [
            Series(f"{features} features", *_LOOKS[int(features)], one["points"])
            for features, one in results.metrics["features"].items()
        ]
        text = (
            f"{results.metrics['objects']} objects; means of random subsets of k, and their deviation; CPU "
            "times of one thread of this machine; curves of recall and precision are shifted slightly"
        )
        label = "f_D(k) [ms], extraction included"
        return draw_analysis(series, "device_ms", label, text, logarithmic=False)


def _photos(dataset: Dataset, subset: int, options: RunOptions) -> list[Path]:
    """Choose some photos, the same for every number of features."""
    order = options.rng("extraction", subset).permutation(len(dataset.queries))
    return [dataset.queries[index].path for index in order[:_TIMED_PHOTOS].tolist()]


def _trade_off(rows: Sequence[StoredRow]) -> dict[str, Any]:
    # On a device the whole time counts, f_D, instead of the time of a lookup alone.
    extraction_ms = numbers.mean_and_spread(sorted(set(numbers.values(rows, "extraction_ms"))))
    return {"extraction_ms": extraction_ms, **analysed(rows, "device_ms")}


class Table4x1(Figure4x4):
    """f_D(k) and recall_D(k), fitted; uses the rows of fig4.4."""

    name: ClassVar[str] = "table4.1"
    source: ClassVar[str] = "Cachier dissertation, 4.5.3"

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per number of features, with those of the paper."""
        most = summary["features"][max(summary["features"], key=int)]["device_ms"]["a"]
        for features, found in summary["features"].items():
            time, recall = PAPER[int(features)]
            yield {
                "features": features,
                "extraction [ms]": numbers.mean_in_words(found["extraction_ms"], 2),
                "f_D(k) [ms]": line(found["device_ms"], 4),
                "paper, Nexus 7": line({"a": time[0], "b": time[1]}, 2),
                "f_D(0) over largest": f"{found['device_ms']['a'] / most:.2f}",
                "paper, f_D(0) over largest": f"{time[0] / PAPER[max(PAPER)][0][0]:.2f}",
                "recall_D(k)": line(found["recall"], 5),
                "paper, recall_D(k)": line({"a": recall[0], "b": recall[1]}, 5),
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw measured points, fitted lines, and the lines of the paper."""
        found = results.metrics["features"]
        picture = drawing.new_picture(9.0, 4.2)
        times, recalls = picture.subplots(1, 2)
        k = np.linspace(1, max(numbers.values(results.rows, "k")), 200)
        most = found[max(found, key=int)]["device_ms"]
        unit, paper_unit = most["a"] + most["b"], sum(PAPER[max(PAPER)][0])
        for features, one in found.items():
            colour, _marker = _LOOKS[int(features)]
            for axes, name, paper, ours, theirs in (
                (times, "device_ms", PAPER[int(features)][0], unit, paper_unit),
                (recalls, "recall", PAPER[int(features)][1], 1.0, 1.0),
            ):
                fit, (a, b) = one[name], paper
                axes.plot(k, (fit["a"] + fit["b"] * k) / ours, color=colour, label=f"{features} features")
                axes.plot(k, (a + b * k) / theirs, "--", color=colour, linewidth=1)
                at = [point["k"] for point in one["points"]]
                axes.plot(
                    at, [point[name] / ours for point in one["points"]], "o", color=colour, markersize=3
                )
        times.set(title="f_D(k)", ylabel="multiple of 800 features, one object", ylim=(0, None))
        recalls.set(title="recall_D(k)", ylim=(0, 1.02))
        for axes in (times, recalls):
            axes.set(xlabel="objects in the cache, k", xlim=(0, None))
        dashed = Line2D([], [], linestyle="--", color="#555555", linewidth=1)
        drawing.legend_below(picture, times, paper=dashed)
        return picture
