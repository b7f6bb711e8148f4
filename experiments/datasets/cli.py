"""The command ``nearsight evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.terminal import print_json, print_line, print_table, progress_bar

if TYPE_CHECKING:
    from nearsight.experiments.datasets.evaluation import EvaluationReport

app = typer.Typer()


@app.command()
def evaluate(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER",
            help="references/ and queries/ with labels.csv or photos named after their objects; "
            "references alone; or Stanford Mobile Visual Search.",
        ),
    ],
    backend: Annotated[str, typer.Option("--backend", help="Classifier backend.")] = "auto",
    query_features: Annotated[
        int | None,
        typer.Option("--query-features", metavar="N", min=50, max=10_000, help="Features per photo."),
    ] = None,
    serving: Annotated[
        bool, typer.Option("--serving", help="Use the default settings of the daemons.")
    ] = False,
    failures: Annotated[bool, typer.Option("--failures", help="List missed and wrong photos too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Train the references, recognise the queries: recall, precision, wrong answers and times.

    All folders share one catalogue. Only recognition is measured, without network and cache; times are
    medians. A photo of an object that is not in the catalogue should be answered "unknown".

    By default, twice as many features are trained per picture as in a daemon, for a high recall; --serving
    measures with the settings of the cloud.
    """
    from nearsight.common.recognition.object_recognizer import ObjectRecognizer
    from nearsight.common.recognition.settings import RecognitionSettings
    from nearsight.experiments.datasets.evaluation import (
        datasets_in,
        evaluate_together,
        reports_to_json,
        steps,
        table_of,
    )

    datasets = datasets_in(folders)
    settings = (
        RecognitionSettings(backend=backend) if serving else RecognitionSettings.thorough(backend=backend)
    )
    # Fails here if the backend is not installed, not after the training.
    ObjectRecognizer.build((), settings)
    if query_features is not None:
        settings = settings.model_copy(update={"query_features": query_features})
    with progress_bar("recognising", steps(datasets)) as advance:
        reports = evaluate_together(datasets, settings, progress=advance)
    for dataset in datasets:
        if dataset.remark:
            print_line(f"note: {dataset.remark}", err=True, hang=2)
    for line in dict.fromkeys(line for report in reports for line in report.unreadable):
        print_line(f"left out: {line}", err=True)
    if failures:
        _list_failures(reports)
    if as_json:
        print_json(reports_to_json(reports))
    else:
        columns, rows = table_of(reports)
        print_table(columns, rows, right=columns[1:])


def _list_failures(reports: Sequence[EvaluationReport]) -> None:
    for report in reports:
        for one in report.outcomes:
            if one.answered != one.expected:
                kind = "missed" if one.answered is None else "wrong "
                said = "" if one.answered is None else f", answered {one.answered}"
                print_line(f"{kind} {one.path}: shows {one.expected or 'an unknown object'}{said}", err=True)
