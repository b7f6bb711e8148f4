"""``nearsight models``: the neural networks of a cloud, and which of them are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nearsight.common.command_line.options import (
    ConfigOption,
    JsonOption,
    KeyOption,
    ServerKeyOption,
    TimeoutOption,
)
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.common.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from nearsight.cloud.network_intake import RemoteNetworks
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
    "running cloud applies changes within a second. Edges fetch the networks that are requested from them.",
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
        typer.Option("--name", help="Name, which applications use as a catalogue. Default: the file's stem."),
    ] = "",
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="One line per class, in the order of the output."),
    ] = None,
    pixels: Annotated[
        str,
        typer.Option(
            "--pixels",
            metavar="RANGE",
            help="Range of pixel values: 0..255, 0..1, -1..1, imagenet (mean and spread) or caffe.",
        ),
    ] = "0..1",
    least_confidence: Annotated[
        float,
        typer.Option("--least-confidence", min=0, max=1, help="Answers below this confidence are unknown."),
    ] = 0.5,
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", min=0, max=1, help="Accuracy of the network in a test.")
    ] = None,
    stands_in_for: Annotated[
        str,
        typer.Option(
            "--stands-in-for",
            metavar="NAME",
            help="Network that this one may replace during its load, see models.accuracy_loss.",
        ),
    ] = "",
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ENDPOINT", help="Send it to a running cloud: tcp://127.0.0.1:7000"),
    ] = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Add a network, or replace the one of the same name. It is first loaded and executed, to measure it.

    With --to it is sent to a running cloud, which measures it. An interrupted upload is resumed.
    """
    from nearsight.cloud.access import shell_channel
    from nearsight.cloud.network_intake import RemoteNetworks, costs_in_words, measure_and_add
    from nearsight.common.command_line.terminal import progress_bar
    from nearsight.common.inference.repository import manifest_of_file

    _check_options(to, folder, config, key, server_key)
    manifest = replace(
        manifest_of_file(file, name or file.stem),
        labels=_labels(labels),
        pixels=cast("Pixels", pixels),  # checked by the manifest
        least_confidence=least_confidence,
        accuracy=accuracy,
        stands_in_for=stands_in_for,
    )
    if to is None:
        settings = models_settings(config, folder)
        repository = _repository(settings)
        place, added = str(repository.folder), measure_and_add(repository, settings, file, manifest)
    else:
        with (
            shell_channel(to, key, server_key) as channel,
            progress_bar("sending bytes", manifest.size_bytes) as advance,
        ):
            place, added = to, RemoteNetworks(channel).add(file, manifest, advance)
    print_line(f"{added.done} {manifest.name}, version {added.manifest.version}, in {place}: {added.use}")
    print_line(costs_in_words(added.manifest))


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
    """List the networks of a folder, or of a running cloud or edge, with their costs."""
    from nearsight.common.inference.manifest import Manifest

    _check_options(endpoint, folder, config, key, server_key)
    if endpoint is not None:
        response: ListModelsResponse = _ask(endpoint, "ListModels", timeout_s, key, server_key)
        rows = [
            _row(
                Manifest.from_json(one.manifest),
                one if one.memory_bytes else None,
                "yes" if one.resident else "no",
            )
            for one in response.models
        ]
        problems: dict[str, str] = {one.name: one.problem for one in response.models if one.problem}
    else:
        repository = _repository(models_settings(config, folder))
        rows = [_row(one, one.measured, "") for one in repository.manifests().values()]
        problems = repository.problems
    columns = ("network", "version", "file MB", "memory MB", "load ms", "execution ms", "in memory", "labels")
    _show(columns, rows, columns[1:6], "no networks; `nearsight models add` adds one", as_json=as_json)
    for name, why in problems.items():
        print_line(f"{name} cannot be used: {why}", err=True)


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="Names of networks.")],
    endpoint: Annotated[
        str | None,
        typer.Option("--from", metavar="ENDPOINT", help="From a running cloud: tcp://127.0.0.1:7000"),
    ] = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    folder: FolderOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove networks, from a folder or a running cloud. Edges remove them as well."""
    from nearsight.cloud.access import shell_channel
    from nearsight.cloud.network_intake import RemoteNetworks

    _check_options(endpoint, folder, config, key, server_key)
    with ExitStack() as stack:
        place: ModelRepository | RemoteNetworks
        if endpoint is None:
            place = _repository(models_settings(config, folder))
        else:
            place = RemoteNetworks(stack.enter_context(shell_channel(endpoint, key, server_key)))
        for name in names:
            place.remove(name)
            print_line(f"removed {name}")


@app.command()
def log(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Endpoint of an edge or a cloud.")],
    timeout_s: TimeoutOption = 3.0,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which networks were evicted from memory, and why; the newest eviction comes last.

    The score is the policy's value of a network at the time of the choice: the lowest is evicted first.
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
            one.made_room_for or "(none, or one that you may not use)",
        )
        for one in response.evictions
    ]
    right = ("s ago", "score", "memory MB", "load ms")
    _show(columns, rows, right, "nothing was evicted", as_json=as_json)


@app.command()
def profile(
    network: Annotated[str, typer.Argument(help="Name of a network in the folder, or a file.")],
    cycles: Annotated[int, typer.Option(min=1, max=1000, help="Number of loads and unloads.")] = 20,
    executions: Annotated[int, typer.Option(min=1, max=1000, help="Executions in each cycle.")] = 10,
    folder: FolderOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a network: load, first and later executions, and memory after each step.

    A separate process loads, executes and unloads the network repeatedly. The papers use 50 (CremeBrulee)
    and 20 (mCache) cycles of 10 executions. If the network is in the folder, the results are stored there.
    """
    from nearsight.common.inference.measurement import measure

    settings = models_settings(config, folder)
    repository = _repository(settings)
    manifest = repository.manifests().get(network)
    path = repository.checked_path(manifest) if manifest is not None else Path(network)
    if not path.is_file():
        raise NotFound(f"there is no network {network!r} in {settings.folder}, and no such file")
    measured, measurements = measure(
        path,
        path.stem,
        threads=settings.threads,
        cycles=cycles,
        executions=executions,
        within_s=settings.load_limit_s * cycles,
        prepared=repository.path(manifest, "prepared") if manifest is not None else None,
    )
    if as_json:
        print_json([one._asdict() for one in measurements])
    else:
        columns = ("", "median", "least", "most")
        print_table(columns, _steps(measurements), title=f"{path.name}: {cycles} cycles", right=columns[1:])
    if manifest is not None:
        repository.note_measured(manifest, measured)


def _show(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    nothing: str,
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows, right=right)
    else:
        print_line(nothing)


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
    """Model settings of the cloud."""
    from nearsight.cloud.settings import CloudSettings
    from nearsight.common.config.base import load_settings

    return load_settings(CloudSettings, "cloud", config, {"models.folder": folder}).settings.models


def _repository(settings: ModelSettings) -> ModelRepository:
    from nearsight.common.inference.repository import ModelRepository

    if settings.folder.exists() and not settings.folder.is_dir():
        raise InvalidArgument(f"{settings.folder} is a file", advice="name a folder of networks")
    return ModelRepository(settings.folder)


def _labels(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NotFound(f"cannot read the labels in {path}: {why}", advice="check the path") from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise InvalidArgument(f"there is no label in {path}", advice="write one per line")
    return labels


def _check_options(
    endpoint: str | None,
    folder: Path | None,
    config: Path | None,
    key: Path | None,
    server_key: str | None,
) -> None:
    """Raise `InvalidArgument` if an option would have no effect."""
    if endpoint is None and (key is not None or server_key is not None):
        raise InvalidArgument("keys are given, but no running daemon", advice="add its endpoint")
    if endpoint is not None and (folder is not None or config is not None):
        raise InvalidArgument(
            "a running daemon is given, and also a folder or a settings file", advice="give only one of them"
        )


def _ask(endpoint: str, method: str, timeout_s: float, key: Path | None, server_key: str | None) -> Any:
    """Response of a daemon to a request of the Models service."""
    from nearsight.cloud.access import shell_channel
    from nearsight.common.inference.service import ModelsService
    from nearsight.protos import inference_pb2

    request = getattr(inference_pb2, f"{method}Request")()
    with shell_channel(endpoint, key, server_key) as channel:
        asked = ModelsService.descriptor.methods_by_name[method]
        return channel.ask(asked, request, timeout_s=timeout_s).message


def _row(one: Manifest, costs: ModelSummary | Measurement | None, resident: str) -> tuple[str, ...]:
    memory, load, execution = ("not measured", "", "")
    if costs is not None:
        memory, load = f"{costs.memory_bytes / 1e6:.1f}", f"{costs.load_ms:.0f}"
        execution = f"{costs.execution_ms:.1f}"
    size_mb = f"{one.size_bytes / 1e6:.1f}"
    return one.name, str(one.version), size_mb, memory, load, execution, resident, str(len(one.labels))
