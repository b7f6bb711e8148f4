"""``nearsight bench`` and ``nearsight evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.terminal import output_console, print_json, progress_bar
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.experiments.bench.suite import Benchmark
    from nearsight.experiments.datasets.evaluation import EvaluationReport

bench_app = typer.Typer(
    callback=lambda: require_experiments("bench"),
    no_args_is_help=True,
    help="Compare with other libraries on this machine. Peers are measured in the same run on the same data; "
    "figures are medians with their spread.",
)
evaluate_app = typer.Typer()

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for the JSON file and the table.")
]
QuickOption = Annotated[bool, typer.Option("--quick", help="Fewer objects and repetitions: seconds.")]
BackendOption = Annotated[str, typer.Option("--backend", help="Classifier backend.")]
FeaturesOption = Annotated[
    int | None, typer.Option("--query-features", metavar="N", min=50, help="Features per photo.")
]


@evaluate_app.command()
def evaluate(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...",
            help="references/, queries/ and labels.csv, or Stanford Mobile Visual Search.",
        ),
    ],
    backend: BackendOption = "auto",
    query_features: FeaturesOption = None,
    serving: Annotated[
        bool, typer.Option("--serving", help="With the default settings of the daemons.")
    ] = False,
    failures: Annotated[bool, typer.Option("--failures", help="List missed and wrong photos too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn the references, ask the queries: recall, precision, wrong answers and times.

    All folders share one catalogue. Only recognition is measured, without network and cache; times are
    medians. A photo of something that is not in the catalogue should be answered "unknown".

    Set for high recall, with twice the features learnt per picture; --serving measures what the cloud does.
    """
    from nearsight.common.recognition.object_recognizer import ObjectRecognizer
    from nearsight.common.recognition.settings import RecognitionSettings
    from nearsight.experiments.bench.evaluation_table import evaluation_table
    from nearsight.experiments.datasets.evaluation import (
        datasets_in,
        evaluate_together,
        reports_to_json,
        steps,
    )

    datasets = datasets_in(folders)
    settings = (
        RecognitionSettings(backend=backend) if serving else RecognitionSettings.thorough(backend=backend)
    )
    ObjectRecognizer.build((), settings)  # a backend that is not there fails now, not after the training
    if query_features is not None:
        settings = settings.model_copy(update={"query_features": query_features})
    with progress_bar("recognising", steps(datasets)) as advance:
        reports = evaluate_together(datasets, settings, progress=advance)
    _complain(reports)
    if failures:
        _list_failures(reports)
    if as_json:
        print_json(reports_to_json(reports))
    else:
        output_console().print(evaluation_table(reports, ""))


def _complain(reports: Sequence[EvaluationReport]) -> None:
    for line in dict.fromkeys(line for report in reports for line in report.unreadable):
        typer.echo(f"left out: {line}", err=True)


def _list_failures(reports: Sequence[EvaluationReport]) -> None:
    for report in reports:
        for one in report.outcomes:
            if one.answered != one.expected:
                kind = "missed" if one.answered is None else "wrong "
                said = "" if one.answered is None else f", answered {one.answered}"
                typer.echo(f"{kind} {one.path}: shows {one.expected or 'nothing known'}{said}", err=True)


@bench_app.command()
def classifier(
    objects: Annotated[
        list[int] | None, typer.Option("--objects", min=1, help="Size of the catalogue; may be repeated.")
    ] = None,
    backends: Annotated[
        list[str] | None, typer.Option("--backend", help="Only this one; may be repeated.")
    ] = None,
    query_features: FeaturesOption = None,
    photos: Annotated[
        Path | None, typer.Option("--photos", metavar="DIR", help="A data set instead of a generated museum.")
    ] = None,
    out: OutOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Match and verify: every backend against OpenCV's FLANN-LSH."""
    from nearsight.experiments.bench.classifier import ClassifierBenchOptions
    from nearsight.experiments.bench.suite import QUICK_OBJECTS, bench_classifier

    defaults = ClassifierBenchOptions()
    options = ClassifierBenchOptions(
        objects=tuple(objects) if objects else QUICK_OBJECTS if quick else defaults.objects,
        backends=tuple(backends or ()),
        photos=10 if quick else defaults.photos,
        unknown_photos=4 if quick else defaults.unknown_photos,
        query_features=query_features or defaults.query_features,
        folder=photos,
    )
    _run([lambda tell: bench_classifier(options, tell)], out, as_json)


@bench_app.command()
def rpc(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Echo round trips: our RPC against raw pyzmq, with and without CURVE."""
    from nearsight.experiments.bench.suite import bench_rpc

    _run([lambda tell: bench_rpc(quick, tell)], out, as_json)


@bench_app.command("cache-size")
def cache_size(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Choosing k for 10,000 objects: exactly, in a loop, and by local search."""
    from nearsight.experiments.bench.suite import bench_cache_size

    _run([lambda tell: bench_cache_size(quick, tell)], out, as_json)


@bench_app.command()
def markov(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The Markov model of 10,000 objects and a million transitions: memory, and time of a prediction."""
    from nearsight.experiments.bench.suite import bench_markov

    _run([lambda tell: bench_markov(quick, tell)], out, as_json)


@bench_app.command()
def twin(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The simulation: speed with 100 devices, and time and memory with 10,000 devices at 100 edges."""
    from nearsight.experiments.bench.suite import bench_twin

    _run([lambda tell: bench_twin(quick, tell)], out, as_json)


@bench_app.command("all")
def all_benchmarks(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for results.")] = Path(
        "results/bench"
    ),
    photos: Annotated[
        list[Path] | None,
        typer.Option("--photos", metavar="DIR", help="Real photos to evaluate as well; may be repeated."),
    ] = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Every benchmark, and recognition on a generated museum; a JSON file each, and tables.txt."""
    from nearsight.experiments.bench.classifier import ClassifierBenchOptions
    from nearsight.experiments.bench.suite import (
        QUICK_OBJECTS,
        bench_cache_size,
        bench_classifier,
        bench_markov,
        bench_museum,
        bench_photos,
        bench_rpc,
        bench_twin,
    )

    options = ClassifierBenchOptions()
    if quick:
        options = ClassifierBenchOptions(objects=QUICK_OBJECTS, photos=10, unknown_photos=4)
    benchmarks: list[Callable[[Callable[[str], None]], Benchmark]] = [
        lambda tell: bench_classifier(options, tell),
        lambda tell: bench_rpc(quick, tell),
        lambda tell: bench_cache_size(quick, tell),
        lambda tell: bench_markov(quick, tell),
        lambda tell: bench_twin(quick, tell),
        lambda tell: bench_museum(out, quick, tell),
    ]
    if photos:
        benchmarks.append(lambda _tell: bench_photos(photos, "photos", "Real photos"))
    _run(benchmarks, out, as_json)


def _run(
    benchmarks: Sequence[Callable[[Callable[[str], None]], Benchmark]], out: Path | None, as_json: bool
) -> None:
    from nearsight.experiments.bench.suite import keep

    finished: list[Benchmark] = []
    for run in benchmarks:
        with _status() as tell:
            finished.append(run(tell))
        if not as_json:
            output_console().print(finished[-1].table)
        if out is not None:
            keep(finished, out)
    if as_json:
        single = finished[0].content if len(finished) == 1 else {one.name: one.content for one in finished}
        print_json(single)
    if out is not None:
        typer.echo(f"written to {out}", err=True)


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is going on; nothing where there is no terminal."""
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
