"""Fewer features per photo: faster, but found less often (dissertation, 4.5.2); for figure 4.4 and table 4.1.

As the offline analysis of the edge, with the default backend, for each number of features that is extracted
from a photo; the models stay the same, and all numbers of features get the same subsets and photos.
f_D(k) is the whole time on a device: decoding and extraction, match and verification, as CPU time of one
thread of this machine. The paper measured on a Nexus 7: ratios compare, times do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearsight.common.errors import InternalError
from nearsight.experiments.framework.experiment import Cell, Experiment, Row, RunOptions, StoredRow
from nearsight.experiments.framework.numbers import mean_and_spread
from nearsight.experiments.studies.cachier.museums import dataset_of, museum_of
from nearsight.experiments.studies.cachier.offline_analysis import (
    nothing,
    straight_line,
    subset_plan,
    subset_row,
    subsets_of,
)

if TYPE_CHECKING:
    from nearsight.experiments.datasets.dataset import Dataset
    from nearsight.experiments.profiling.measuring import PreparedData

FEATURE_COUNTS = (200, 400, 600, 800)
_SMOKE_FEATURE_COUNTS = (200, 800)
_TIMED_PHOTOS = 60
_SIZES = (1, 5, 10, 20, 40, 60, 80, 100)
"""A device prefetches tens of objects, not hundreds."""


class FeatureTradeoff(Experiment):
    """Measures every number of features on the same random subsets of a data set."""

    takes_data = True

    def __init__(self) -> None:
        self._dataset: Dataset | None = None
        self._prepared: dict[int, PreparedData] = {}

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        counts = _SMOKE_FEATURE_COUNTS if options.smoke else FEATURE_COUNTS
        return tuple(
            Cell(f"{subset:02d}-{features}", {"features": features, "subset": subset})
            for subset, features in product(range(subsets_of(options)), counts)
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
        from nearsight.experiments.profiling.device import quick_pipeline  # noqa: PLC0415
        from nearsight.experiments.profiling.measuring import extraction_time, measure  # noqa: PLC0415

        features, subset = int(cell.parameters["features"]), int(cell.parameters["subset"])
        settings = quick_pipeline(RecognitionSettings(), features)
        data = self._data(features, options)
        sizes = [size for size in _SIZES if size <= len(data.models)]
        plan = subset_plan(options, "feature trade-off", subset, sizes)
        extraction_ms = extraction_time(self._photos(subset, options), settings)
        rows: list[Row] = []
        for row in measure(data, plan, settings, nothing):
            measured = asdict(replace(row, subset=subset))
            extra = {"extraction_ms": extraction_ms, "device_ms": extraction_ms + row.lookup_ms}
            rows.append({"features": features, "objects": len(data.models), **measured, **extra})
        return rows

    def _data(self, features: int, options: RunOptions) -> PreparedData:
        """Models are trained once, photos read once per number of features."""
        from nearsight.common.recognition.settings import RecognitionSettings  # noqa: PLC0415
        from nearsight.experiments.profiling.device import quick_pipeline  # noqa: PLC0415
        from nearsight.experiments.profiling.measuring import extract_again, prepare  # noqa: PLC0415

        if features not in self._prepared:
            settings = RecognitionSettings()
            if self._dataset is None:
                self._dataset = dataset_of(options, museum_of(options))
            before = next(iter(self._prepared.values()), None) or prepare(self._dataset, settings, nothing)
            pipeline = quick_pipeline(settings, features)
            self._prepared[features] = extract_again(before, self._dataset, pipeline, nothing)
        return self._prepared[features]

    def _photos(self, subset: int, options: RunOptions) -> list[Path]:
        """Some photos, the same for every number of features."""
        if self._dataset is None:
            raise InternalError("the data set is read before its photos are")
        paths = [query.path for query in self._dataset.queries]
        rng = options.rng("extraction", subset)
        return [paths[index] for index in rng.permutation(len(paths))[:_TIMED_PHOTOS].tolist()]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per number of features: points over k, and a + b · k for f_D, recall_D and precision."""
        from nearsight.experiments.profiling.measuring import summarize  # noqa: PLC0415

        found: dict[str, Any] = {}
        for features in sorted({int(row["features"]) for row in rows}):
            mine = [row for row in rows if int(row["features"]) == features]
            # f_D takes the place of the lookup time: the whole time counts on a device.
            measured = [replace(subset_row(row), lookup_ms=float(row["device_ms"])) for row in mine]
            points = [point.model_dump() for point in summarize(measured)]
            for point in points:
                point["device_ms"] = point.pop("lookup_ms")
                point["device_ms_std"] = point.pop("lookup_ms_std")
            found[str(features)] = {
                "extraction_ms": mean_and_spread(sorted({float(row["extraction_ms"]) for row in mine})),
                "points": points,
                "device_ms": straight_line(measured, "lookup_ms"),
                "recall": straight_line(measured, "recall"),
                "precision": straight_line(measured, "precision"),
            }
        return {"objects": int(rows[0]["objects"]), "features": found}
