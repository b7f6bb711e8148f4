"""Evaluation reports as a table for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from nearsight.experiments.datasets.evaluation import EvaluationReport, total


def evaluation_table(reports: Sequence[EvaluationReport], title: str) -> Table:
    """A row per data set, and the total."""
    table = Table(title=title)
    for column in ("data set", "objects", "photos", "recall", "precision", "wrong"):
        table.add_column(column, justify="left" if column == "data set" else "right")
    for column in ("extract ms", "match ms", "verify ms"):
        table.add_column(column, justify="right")
    shown = [*reports, total(reports)] if len(reports) > 1 else list(reports)
    for report in shown:
        figures = report.to_json()
        times = (f"{figures[name] or 0:.1f}" for name in ("extract_ms", "match_ms", "verify_ms"))
        table.add_row(
            report.dataset,
            str(report.objects),
            str(len(report.outcomes)),
            _ratio(report.recall),
            _ratio(report.precision),
            str(report.wrong),
            *times,
        )
    return table


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
