"""``nearsight models``: the neural networks of a cloud, and which of them are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nearsight.common.command_line.options import (
    ConfigOption,
    JsonOption,
    KeyOption,
    ServerKeyOption,
    TimeoutOption,
    flag_overrides,
)
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.common.errors import InvalidArgument, NearsightError, NotFound

if TYPE_CHECKING:
    from nearsight.common.inference.manifest import Manifest, Pixels
    from nearsight.common.inference.measurement import Cycle, Measurement
    from nearsight.common.inference.repository import ModelRepository
    from nearsight.common.inference.settings import ModelSettings
    from nearsight.protos.inference_pb2 import GetEvictionsResponse, ListModelsResponse, ModelSummary

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Add, list, measure and remove the neural networks of a cloud.\n\n"
    "They are files in the format ONNX, in the folder that the cloud serves (its setting models.folder). A "
    "running cloud takes changes over within a second, and edges fetch what they are asked for.",
)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Folder of networks. Default: the cloud's, models."),
]
DaemonOption = Annotated[
    str | None,
    typer.Option("--from", metavar="ENDPOINT", help="Ask a running cloud or edge: tcp://127.0.0.1:7100"),
]


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A network in the format ONNX, in one file.")],
    *,
    name: Annotated[
        str,
        typer.Option("--name", help="The catalogue that applications name. Default: the file's stem."),
    ] = "",
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="One line per class, in the order of its output."),
    ] = None,
    pixels: Annotated[
        str,
        typer.Option(
            "--pixels",
            metavar="RANGE",
            help="What it expects of photos: 0..255, 0..1, -1..1, imagenet (mean and spread) or caffe.",
        ),
    ] = "0..1",
    least_confidence: Annotated[
        float,
        typer.Option("--least-confidence", min=0, max=1, help="A label with less is answered as unknown."),
    ] = 0.5,
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", min=0, max=1, help="Of its answers, where it was tested.")
    ] = None,
    stands_in_for: Annotated[
        str,
        typer.Option(
            "--stands-in-for",
            metavar="NAME",
            help="It may answer for this network while that is loaded, see models.accuracy_loss.",
        ),
    ] = "",
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Add a network, or replace the one of the same name. It is loaded and executed first, to measure it."""
    from nearsight.common.inference.repository import manifest_of_file
    from nearsight.common.operation.status import format_bytes

    settings = models_settings(config, folder)
    manifest = replace(
        manifest_of_file(file, name or file.stem),
        labels=_labels(labels),
        pixels=cast("Pixels", pixels),  # the manifest checks it
        least_confidence=least_confidence,
        accuracy=accuracy,
        stands_in_for=stands_in_for,
    )
    with TemporaryDirectory() as place:
        prepared = Path(place) / "prepared"
        measured, _ = _measure(file, manifest.name, settings, prepared, cycles=3, executions=10)
        takes = _check_use(file, manifest, settings)
        repository = _repository(settings)
        before = repository.manifests().get(manifest.name)
        added = repository.add(file, replace(manifest, measured=measured), prepared=prepared)
    done = "added" if before is None else "unchanged" if before.version == added.version else "replaced"
    print_line(f"{done} {added.name}, version {added.version}, in {repository.folder}: {takes}")
    print_line(
        f"{format_bytes(added.size_bytes)} in its file, {format_bytes(measured.memory_bytes)} in memory; "
        f"loads in {measured.load_ms:.0f} ms, executes in {measured.execution_ms:.1f} ms"
    )


@app.command("list")
def list_models(
    endpoint: DaemonOption = None,
    folder: FolderOption = None,
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List networks and what they cost: in a folder, or of a running cloud or edge."""
    if endpoint is not None:
        response: ListModelsResponse = _ask(endpoint, "ListModels", timeout_s, key, server_key)
        rows = [_row_of(one) for one in response.models]
        problems: dict[str, str] = {one.name: one.problem for one in response.models if one.problem}
    else:
        repository = _repository(models_settings(config, folder))
        rows = [_row_of_manifest(one) for one in repository.manifests().values()]
        problems = repository.problems
    columns = ("network", "version", "file MB", "memory MB", "load ms", "execution ms", "in memory", "labels")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows, right=columns[1:6])
    else:
        print_line("no networks; `nearsight models add` adds one")
    for name, why in problems.items():
        print_line(f"{name} cannot be used: {why}", err=True)


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="Names of networks.")],
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove networks. Edges drop them as well."""
    repository = _repository(models_settings(config, folder))
    for name in names:
        repository.remove(name)
        print_line(f"removed {name}")


@app.command()
def log(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Of an edge or a cloud.")],
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which networks were evicted from memory, and why; the newest eviction comes last.

    The score is what the policy thought a network worth when it chose: the lowest goes first.
    """
    response: GetEvictionsResponse = _ask(endpoint, "GetEvictions", timeout_s, key, server_key)
    columns = ("s ago", "evicted", "score", "memory MB", "load ms", "made room for")
    rows = [
        (
            f"{one.age_s:.1f}",
            one.model,
            f"{one.score:.4g}",
            f"{one.size_bytes / 1e6:.1f}",
            f"{one.load_ms:.0f}",
            one.made_room_for or "(the budget shrank)",
        )
        for one in response.evictions
    ]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows, right=("s ago", "score", "memory MB", "load ms"))
    else:
        print_line("nothing was evicted")


@app.command()
def profile(
    network: Annotated[str, typer.Argument(help="A name in the folder, or a file.")],
    cycles: Annotated[int, typer.Option(min=1, max=1000, help="Loads and unloads.")] = 20,
    executions: Annotated[int, typer.Option(min=1, max=1000, help="In each of them.")] = 10,
    folder: FolderOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a network: load, first and later executions, and memory after each step.

    A process of its own loads, executes and unloads it again and again. The papers have 50 (CremeBrulee) and
    20 (mCache) cycles of 10 executions. A network of the folder is served with the new numbers.
    """
    settings = models_settings(config, folder)
    repository = _repository(settings)
    manifest = repository.manifests().get(network)
    path = repository.checked_path(manifest) if manifest is not None else Path(network)
    if not path.is_file():
        raise NotFound(f"there is no network {network!r} in {settings.folder}, and no such file")
    prepared = repository.path(manifest, "prepared") if manifest is not None else None
    measured, measurements = _measure(
        path, path.stem, settings, prepared, cycles=cycles, executions=executions
    )
    if manifest is not None:
        repository.note_measured(manifest, measured)
    if as_json:
        print_json([one._asdict() for one in measurements])
        return
    columns = ("", "median", "least", "most")
    print_table(columns, _steps(measurements), title=f"{path.name}: {cycles} cycles", right=columns[1:])


def _steps(measurements: Sequence[Cycle]) -> list[tuple[str, ...]]:
    from statistics import median

    later = [ms for one in measurements for ms in one.later_ms]
    named: dict[str, Sequence[float]] = {
        "load ms": [one.load_ms for one in measurements],
        "first execution ms": [one.first_ms for one in measurements],
        "later executions ms": later,
        "memory after the load, MB": [one.loaded_bytes / 1e6 for one in measurements],
        "after the executions, MB": [one.executed_bytes / 1e6 for one in measurements],
        "after the unload, MB": [one.unloaded_bytes / 1e6 for one in measurements],
    }
    return [
        (name, *(f"{number:.1f}" for number in (median(values), min(values), max(values))))
        for name, values in named.items()
        if values
    ]


def models_settings(config: Path | None, folder: Path | None) -> ModelSettings:
    """What the cloud would serve."""
    from nearsight.cloud.settings import CloudSettings
    from nearsight.common.config.base import load_settings

    named = {"models.folder": str(folder) if folder else None}
    return load_settings(CloudSettings, "cloud", config, flag_overrides(None, named)).settings.models


def _repository(settings: ModelSettings) -> ModelRepository:
    from nearsight.common.inference.repository import ModelRepository

    return ModelRepository(settings.folder)


def _measure(
    path: Path, name: str, settings: ModelSettings, prepared: Path | None, *, cycles: int, executions: int
) -> tuple[Measurement, list[Cycle]]:
    from nearsight.common.inference.measurement import measure

    within_s = settings.load_limit_s * cycles
    return measure(
        path,
        name,
        threads=settings.threads,
        cycles=cycles,
        executions=executions,
        within_s=within_s,
        prepared=prepared,
    )


def _check_use(path: Path, manifest: Manifest, settings: ModelSettings) -> str:
    """What the network takes and gives, for a person; `InvalidArgument` if its labels do not fit."""
    from nearsight.common.inference.classification import image_layout
    from nearsight.common.inference.runtime import Runtime

    runtime = Runtime(settings.threads)
    try:
        network = runtime.load(path, manifest.name)
        inputs, outputs = network.inputs, network.outputs
        network.close()
    finally:
        runtime.close()
    classes = outputs[0].shape[-1] if outputs[0].shape else None
    if manifest.labels:
        if len(inputs) != 1:
            raise InvalidArgument(
                f"{path} has {len(inputs)} inputs, so it takes no photos", advice="leave out --labels"
            )
        image_layout(inputs[0])
        if classes not in (None, len(manifest.labels)):
            raise InvalidArgument(
                f"{path} tells {classes} classes apart, and there are {len(manifest.labels)} labels",
                advice="give one line per class",
            )
    takes = ", ".join(f"{one.name!r} {one}" for one in inputs)
    use = f"names {len(manifest.labels)} classes in photos" if manifest.labels else "takes tensors only"
    return f"{use}; input {takes}"


def _labels(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read the labels in {path}: {error}", advice="check the path") from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise InvalidArgument(f"there is no label in {path}", advice="write one per line")
    return labels


def _ask(endpoint: str, method: str, timeout_s: float, key: Path | None, server_key: str | None) -> Any:
    """The answer of one daemon."""
    from nearsight.common.inference.service import ModelsService
    from nearsight.common.operation.inquiry import ask_all
    from nearsight.common.rpc.security import client_security
    from nearsight.protos import inference_pb2

    def failed(_: str, error: NearsightError) -> NearsightError:
        return error

    (answer,) = ask_all(
        [endpoint],
        ModelsService.descriptor.methods_by_name[method],
        getattr(inference_pb2, f"{method}Request")(),
        lambda _, response: response,
        failed,
        timeout_s=timeout_s,
        security=client_security(key, server_key),
    )
    if isinstance(answer, NearsightError):
        raise answer
    return answer


def _row_of(one: ModelSummary) -> tuple[str, ...]:
    from nearsight.common.inference.manifest import Manifest

    costs = (one.memory_bytes, one.load_ms, one.execution_ms) if one.memory_bytes else None
    return _row(Manifest.from_json(one.manifest), costs, "yes" if one.resident else "no")


def _row_of_manifest(one: Manifest) -> tuple[str, ...]:
    measured = one.measured
    costs = (measured.memory_bytes, measured.load_ms, measured.execution_ms) if measured else None
    return _row(one, costs, "")


def _row(one: Manifest, costs: tuple[int, float, float] | None, resident: str) -> tuple[str, ...]:
    memory, load, execution = ("not measured", "", "")
    if costs is not None:
        memory, load, execution = f"{costs[0] / 1e6:.1f}", f"{costs[1]:.0f}", f"{costs[2]:.1f}"
    size_mb = f"{one.size_bytes / 1e6:.1f}"
    return one.name, str(one.version), size_mb, memory, load, execution, resident, str(len(one.labels))
