"""Recognition as a benchmark: on a generated museum, and on the user's photos."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep
from nearsight.experiments.datasets.dataset import Dataset
from nearsight.experiments.datasets.evaluation import (
    datasets_in,
    evaluate_together,
    reports_to_json,
    table_of,
)
from nearsight.experiments.museum.generation import generate_museum
from nearsight.experiments.museum.settings import MuseumSettings

_MUSEUM = MuseumSettings(objects=500, photos_per_object=1, unknown_photos=100)
_QUICK_MUSEUM = MuseumSettings(objects=60, photos_per_object=1, unknown_photos=20)


def bench_museum(folder: Path, quick: bool, report_step: ReportStep) -> Benchmark:
    """Recall and precision on a generated museum, with photos of objects outside the catalogue."""
    settings = _QUICK_MUSEUM if quick else _MUSEUM
    report_step(f"museum: painting {settings.objects} exhibits")
    museum = folder / f"museum-{settings.objects}"
    generate_museum(museum, settings, workers=os.cpu_count() or 1)
    report_step(f"museum: recognising {settings.objects + settings.unknown_photos} photos")
    return bench_datasets(
        datasets_in([museum]), "museum", f"A generated museum of {settings.objects} objects"
    )


def bench_datasets(datasets: Sequence[Dataset], name: str, title: str) -> Benchmark:
    """Recall and precision on data sets, all in one catalogue."""
    reports = evaluate_together(datasets, RecognitionSettings())
    columns, rows = table_of(reports)
    formats = {column: f"{{{column}}}" for column in columns}
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    return Benchmark(name, title, formats, table, reports_to_json(reports))
