"""The command ``nearsight experiment report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearsight.experiments.framework.extra import require_experiments

RESULTS = Path("results/experiments")


def report(
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Folder with a folder per result.")
    ] = RESULTS,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html", help="Default: report.html in the folder of results."),
    ] = None,
) -> None:
    """Write one HTML file of all results: pictures, tables, targets, rows, and what the papers say.

    It needs no network. Experiments without results are listed with the command that makes them.
    """
    require_experiments("experiment report")
    from nearsight.common.command_line.terminal import progress_bar
    from nearsight.experiments.framework.registry import experiments
    from nearsight.experiments.report.building import write_report
    from nearsight.experiments.report.distinct_targets import reached_in_words

    entries = experiments()
    with progress_bar("report", len(entries)) as advance:
        written = write_report(
            results, out or results / "report.html", entries, begin=lambda _name: advance(1)
        )
    collection = written.collection
    counted = [result for result in collection.results if not result.smoke]
    for one in collection.unusable:
        typer.echo(f"{one.folder.name}: {one.why}" + (f": {one.command}" if one.command else ""), err=True)
    missing = len(entries) - len({result.experiment for result in counted})
    typer.echo(
        f"{reached_in_words(counted)} targets reached, by {len(counted)} results; "
        f"{missing} experiments without results"
    )
    if smoke := len(collection.results) - len(counted):
        typer.echo(f"{smoke} smoke runs are shown, but not counted")
    typer.echo(f"Report: {written.path}, {written.size_bytes / 1e6:.1f} MB")
