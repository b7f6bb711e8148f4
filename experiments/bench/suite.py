"""The benchmarks as one suite: each by its name, with its JSON, its table and where it was measured.

`nearsight bench all` also evaluates recognition on a generated museum, and on photos that the person has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.bench import cache_size, markov, twin
from nearsight.experiments.bench.classifier import (
    ClassifierBenchOptions,
    classifier_table,
    run_classifier_bench,
)
from nearsight.experiments.bench.evaluation_table import evaluation_table
from nearsight.experiments.bench.rpc import rpc_table, run_rpc_bench
from nearsight.experiments.datasets.evaluation import datasets_in, evaluate_together, reports_to_json
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.museum.generation import generate_museum
from nearsight.experiments.museum.settings import MuseumSettings

Tell = Callable[[str], None]
TABLE_WIDTH = 120
QUICK_OBJECTS = (50,)
QUICK_MUSEUM = MuseumSettings(objects=60, photos_per_object=1, unknown_photos=20)
MUSEUM = MuseumSettings(objects=500, photos_per_object=1, unknown_photos=100)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One finished benchmark.

    Attributes
    ----------
    name : str
        Of the file: ``NAME.json``.
    content : dict
        Rows or figures, and the environment.
    table : Table
        The same for a person.
    """

    name: str
    content: dict[str, object]
    table: Table


def bench_classifier(options: ClassifierBenchOptions, tell: Tell) -> Benchmark:
    """Every classifier backend against OpenCV's FLANN-LSH."""
    result = run_classifier_bench(options, progress=tell)
    return Benchmark("classifier", _with_environment(result.to_json()), classifier_table(result))


def bench_rpc(quick: bool, tell: Tell) -> Benchmark:
    """Echo round trips against raw pyzmq."""
    result = run_rpc_bench(rounds=3, calls=30, progress=tell) if quick else run_rpc_bench(progress=tell)
    return Benchmark("rpc", _with_environment(result), rpc_table(result))


def bench_cache_size(quick: bool, tell: Tell) -> Benchmark:
    """The choice of k for 10,000 objects."""
    tell("cache size: choosing k for 10,000 objects")
    rows = cache_size.run(repeats=30) if quick else cache_size.run()
    table = Table(title="Choosing k for 10,000 objects")
    columns = ("method", "k", "E[L] ms", "median ms", "quartiles ms")
    for column in columns:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        quartiles = f"{row.p25_ms:.3f} … {row.p75_ms:.3f}"
        table.add_row(row.method, str(row.k), f"{row.expected_ms:.2f}", f"{row.median_ms:.3f}", quartiles)
    content: dict[str, object] = {"rows": cache_size.rows_as_json(rows)}
    return Benchmark("cache-size", _with_environment(content), table)


def bench_markov(quick: bool, tell: Tell) -> Benchmark:
    """Memory and times of the Markov model at the size of a large catalogue."""
    size = {"objects": 500, "transitions": 20_000, "repeats": 50} if quick else {}
    tell("markov: learning transitions between the objects of a large catalogue")
    rows = markov.run(**size)
    first = rows[0]
    table = Table(
        title=f"Markov model, {first.objects:,} objects, {first.transitions:,} transitions: "
        f"{first.model_mib:.0f} MiB"
    )
    for column in ("operation", "median ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for row in rows:
        table.add_row(row.operation, f"{row.median_ms:.3f}", f"{row.p99_ms:.3f}")
    return Benchmark("markov", _with_environment({"rows": markov.rows_as_json(rows)}), table)


def bench_twin(quick: bool, tell: Tell) -> Benchmark:
    """How fast the simulation is, and how much memory a large one takes."""
    tell("twin: simulating devices and edges")
    rows = twin.run(twin.QUICK_SIZES if quick else twin.SIZES)
    table = Table(title="Twin, one core: simulated device-seconds per second")
    columns = ("configuration", "devices", "edges", "photos", "warming s", "replay s", "device s / s", "MiB")
    for column in columns:
        table.add_column(column, justify="left" if column == "configuration" else "right")
    for row in rows:
        table.add_row(
            row.configuration,
            *(f"{count:,}" for count in (row.devices, row.edges, row.requests)),
            *(f"{seconds:.1f}" for seconds in (row.warming_s, row.replay_s)),
            f"{row.device_seconds_per_s:,.0f}",
            f"{row.memory_mib:.0f}",
        )
    return Benchmark("twin", _with_environment({"rows": twin.rows_as_json(rows)}), table)


def bench_museum(folder: Path, quick: bool, tell: Tell) -> Benchmark:
    """Recall and precision on a generated museum, with photos of what is not in the catalogue."""
    settings = QUICK_MUSEUM if quick else MUSEUM
    tell(f"museum: painting {settings.objects} exhibits")
    museum = folder / f"museum-{settings.objects}"
    generate_museum(museum, settings, workers=os.cpu_count() or 1)
    tell(f"museum: recognising {settings.objects + settings.unknown_photos} photos")
    return bench_photos([museum], "museum", f"A generated museum of {settings.objects} objects")


def bench_photos(folders: Sequence[Path], name: str, title: str) -> Benchmark:
    """Recall and precision on data sets, all in one catalogue."""
    reports = evaluate_together(datasets_in(folders), RecognitionSettings())
    return Benchmark(name, _with_environment(reports_to_json(reports)), evaluation_table(reports, title))


def keep(benchmarks: Sequence[Benchmark], folder: Path) -> None:
    """Write ``NAME.json`` of each, and all tables to ``tables.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in benchmarks:
        (folder / f"{one.name}.json").write_text(json.dumps(one.content, indent=2) + "\n")
    with (folder / "tables.txt").open("w", encoding="utf-8") as file:
        console = Console(file=file, width=TABLE_WIDTH)
        for one in benchmarks:
            console.print(one.table)


def _with_environment(content: dict[str, object]) -> dict[str, object]:
    """The content, its environment completed by machine, versions, commit and time."""
    own = content.get("environment")
    return {**content, "environment": {**describe_environment(), **(own if isinstance(own, dict) else {})}}
