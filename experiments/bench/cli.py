"""The command ``nearsight bench``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import JsonOption
from nearsight.common.command_line.terminal import output_console, print_json, print_line
from nearsight.common.errors import NearsightError, NotFound
from nearsight.common.files import check_writable
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.experiments.bench.benchmark import Benchmark

    Run = Callable[[Callable[[str], None]], Benchmark]
    """Runs a benchmark; called with a function that takes the current step."""

app = typer.Typer(
    callback=lambda: require_experiments("bench"),
    no_args_is_help=True,
    help="Run benchmarks against other libraries on this machine. Baselines are measured in the same run on "
    "the same data; results are medians with their spread.",
)

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", file_okay=False, help="Folder for the JSON file and the table."),
]
QuickOption = Annotated[bool, typer.Option("--quick", help="Run for seconds: fewer objects and repetitions.")]


@app.command()
def classifier(
    objects: Annotated[
        list[int] | None, typer.Option("--objects", min=1, help="Size of the catalogue; may be repeated.")
    ] = None,
    backends: Annotated[
        list[str] | None, typer.Option("--backend", help="Only this one; may be repeated.")
    ] = None,
    query_features: Annotated[
        int | None,
        typer.Option("--query-features", metavar="N", min=50, max=10_000, help="Features per photo."),
    ] = None,
    photos: Annotated[
        Path | None, typer.Option("--photos", metavar="DIR", help="A data set instead of a generated museum.")
    ] = None,
    out: OutOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Match and verify: every backend against OpenCV's FLANN-LSH."""
    options = {"objects": objects, "backends": backends, "query_features": query_features, "folder": photos}
    given = {name: value for name, value in options.items() if value}
    _run([partial(_benchmark("classifier", quick), **given)], out, as_json)


_QUICK = {
    "rpc": "Echo round trips: our RPC against raw pyzmq, with and without CURVE.",
    "cache-size": "Choosing k for 10,000 objects: exactly, in a loop, and by local search.",
    "markov": "The Markov model of 10,000 objects, a million transitions: memory, and time of a prediction.",
    "twin": "The simulation: speed with 100 devices, and time and memory with 10,000 devices at 100 edges.",
    "result-cache": "Lookups among 100,000 results, for each approximation: against scikit-learn's BallTree.",
    "inference": "A warm request to a network at an edge, against the runtime alone on the same tensor.",
    "model-cache": "Requests for models that the simulator replays per second, for every eviction policy.",
}
"""Benchmarks whose only option is ``--quick``."""


def _benchmark(name: str, quick: bool) -> Callable[..., Benchmark]:
    """The function ``run`` of the module of this name, with its arguments of a quick run (``QUICK``)."""
    module = import_module(f"nearsight.experiments.bench.{name.replace('-', '_')}")
    return partial(module.run, **module.QUICK) if quick else module.run


def _add_quick(name: str, summary: str) -> None:
    def command(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
        _run([_benchmark(name, quick)], out, as_json)

    app.command(name, help=summary)(command)


for _name, _summary in _QUICK.items():
    _add_quick(_name, _summary)


@app.command()
def page(out: OutOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The visitor's page of the gateway: time to its first usable view in Chromium, and its bytes."""
    require_experiments("bench page", ("playwright", "starlette", "uvicorn"), extra="dev")
    from nearsight.experiments.bench.page import bench_page

    _run([partial(bench_page, quick)], out, as_json)


MuseumsOption = Annotated[Path, typer.Option("--museums", metavar="DIR", help="Folder of generated museums.")]
MUSEUMS = Path("results/museums")


@app.command()
def robustness(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ATTACK", help="Only this one; may be repeated.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="Repetitions of each attack.")
    ] = 1,
    museums: MuseumsOption = MUSEUMS,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attack daemons: memory, latency of other clients, refusals. Exit code 1: a target is missed."""
    from nearsight.experiments.bench.robustness import bench_robustness, select_scenarios

    _run_targets(partial(bench_robustness, select_scenarios(only or ()), rounds, museums), out, as_json)


@app.command()
def soak(
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", min=0.5, help="Duration.")] = 20.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of events and photos.")] = 1,
    museums: MuseumsOption = MUSEUMS,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run cloud, edge and applications with kills, restarts and bursts. Exit code 1: a law is broken."""
    from nearsight.experiments.bench.soak import bench_soak

    _run_targets(partial(bench_soak, 60 * minutes, seed, museums), out, as_json)


def _run_targets(
    run: Callable[[Path, Callable[[str], None]], Benchmark], out: Path | None, as_json: bool
) -> None:
    """Run a benchmark that writes logs; exit code 1 if it misses a target."""
    with _logs(out) as logs:
        (finished,) = _run([partial(run, logs)], out, as_json)
    if not all(row["reached"] for row in finished.rows):
        raise typer.Exit(1)


@contextmanager
def _logs(out: Path | None) -> Iterator[Path]:
    """A folder for logs: in ``out``, or a temporary one. An error may name a log, so it keeps the folder."""
    if out:
        yield out / "logs"
        return
    folder = Path(mkdtemp(prefix="nearsight-bench-"))
    try:
        yield folder
    except NearsightError:
        with suppress(OSError):
            folder.rmdir()  # only if it is empty
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@app.command()
def gateway(
    only: Annotated[
        str | None, typer.Option("--only", metavar="PART", help="Run only answers or streams.")
    ] = None,
    streams: Annotated[
        int, typer.Option("--streams", metavar="N", min=1, help="Number of concurrent streams.")
    ] = 100,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=10, help="Duration of streams.")
    ] = 60.0,
    museums: MuseumsOption = MUSEUMS,
    out: OutOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """The gateway before an edge: latency that it adds, compared with Gabriel's server; many live streams."""
    require_experiments("bench gateway", ("starlette", "uvicorn", "websockets"), extra="web")
    from nearsight.experiments.bench.gateway import bench_answers
    from nearsight.experiments.bench.gateway_streams import bench_streams

    with _logs(out) as logs:
        parts = {
            "answers": partial(bench_answers, quick, museums, logs),
            "streams": partial(bench_streams, quick, streams, seconds, museums, logs),
        }
        if only is not None and only not in parts:
            raise NotFound(f"there is no part {only!r}", advice=f"choose among {', '.join(parts)}")
        _run([run for name, run in parts.items() if only in {None, name}], out, as_json)


@app.command("all")
def all_benchmarks(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", file_okay=False, help="Folder for results.")
    ] = Path("results/bench"),
    photos: Annotated[
        list[Path] | None,
        typer.Option("--photos", metavar="DIR", help="Real photos to evaluate as well; may be repeated."),
    ] = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the benchmarks, and recognition on a generated museum; write a JSON file each, and tables.txt.

    Not included are page, gateway, robustness and soak.
    """
    require_experiments("bench all", ("onnx",), extra="inference")
    from nearsight.experiments.bench.museum import bench_datasets, bench_museum
    from nearsight.experiments.datasets.evaluation import datasets_in

    datasets = datasets_in(photos) if photos else ()  # unusable photos fail before the measurements
    benchmarks: list[Run] = [
        *(_benchmark(name, quick) for name in ("classifier", *_QUICK)),
        partial(bench_museum, out, quick),
    ]
    if datasets:
        benchmarks.append(lambda _tell: bench_datasets(datasets, "photos", "Real photos"))
    _run(benchmarks, out, as_json)


def _run(benchmarks: Sequence[Run], out: Path | None, as_json: bool) -> list[Benchmark]:
    from nearsight.experiments.bench.benchmark import write_results

    if out is not None:  # an unwritable folder fails before the measurement, not after it
        check_writable(out / "tables.txt")
    finished: list[Benchmark] = []
    for run in benchmarks:
        with _status() as report_step:
            finished.append(run(report_step))
        if not as_json:
            output_console().print(finished[-1].table())
        if out is not None:
            write_results(finished, out)
    if as_json:
        contents = {one.name: one.content() for one in finished}
        print_json(contents if len(contents) > 1 else finished[0].content())
    if out is not None:
        print_line(f"written to {out}", err=True)
    return finished


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Show the current step on standard error; nothing without a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
