"""Folders of results as a run writes them, of a very small experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from nearsight.experiments.framework.drawing import Picture, new_picture
from nearsight.experiments.framework.experiment import (
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.framework.result_files import ResultFolder

PNG = b"\x89PNG\r\n\x1a\n and the rest"
ENVIRONMENT = {
    "created": "2026-11-21T06:44:16+00:00",
    "machine": "Abacus 9000",
    "cores": 2,
    "memory_gib": 4.0,
    "system": "Linux 6",
    "python": "3.11.7",
    "versions": {"nearsight": "0.1.0", "numpy": "2.4.6"},
    "commit": "0123456789ab+",
    "load_average": [0.1, 0.2, 0.3],
}
ENTRIES = {
    "other": Entry("support.small_results", "Something else.", "beyond the Cachier dissertation's chapter 3"),
    "queue": Entry("support.small_results", "How long visitors wait.", "Cachier dissertation, 6.3"),
}
OPTIONS = {"seed": 1, "smoke": False, "visits": "", "data": ""}


class Figure(Experiment):
    """p50 by number of visitors, read from ``metrics["p50_ms"]``."""

    name: ClassVar[str] = "queue"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        return [{}]

    def run(self, options: RunOptions) -> list[Row]:
        return []

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        return {}

    def targets(self, summary: Mapping[str, Any]) -> tuple[()]:
        return ()

    def table(self, summary: Mapping[str, Any]) -> list[dict[str, object]]:
        return [{"visitors": n, "p50 ms": f"{p50:.1f}"} for n, p50 in summary["p50_ms"].items()]

    def draw(self, results: Results) -> Picture:
        return new_picture(1, 1)


def write_result(
    folder: Path,
    *,
    options: Mapping[str, Any] | None = None,
    p50_ms: Mapping[str, float] | None = None,
    targets: Sequence[Target] = (Target(text="p50 below 100 ms", value=61.25, reached=True),),
    rows: Sequence[Row] = ({"visitors": 1, "ms": 10.5}, {"visitors": 2, "ms": 20.5}),
) -> ResultFolder:
    """Write a complete run to ``folder``."""
    stored = begin_run(folder, options=options)
    stored.keep_rows(rows, {"seed": 1, "machine": "Abacus 9000"})
    metrics = {"p50_ms": p50_ms or {"1": 10.5, "2": 20.5}}
    stored.keep_summary(
        {**stored.run_information(), "metrics": metrics, "targets": [asdict(one) for one in targets]}
    )
    (folder / "queue.png").write_bytes(PNG)
    return stored


def begin_run(folder: Path, *, options: Mapping[str, Any] | None = None) -> ResultFolder:
    """Write a run without measurements to ``folder``."""
    stored = ResultFolder(folder)
    stored.begin("queue", {**OPTIONS, **(options or {})}, ENVIRONMENT)
    return stored
