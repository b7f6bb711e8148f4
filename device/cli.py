"""``nearsight device`` runs the daemon, ``nearsight recognize`` asks about photos from a shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import (
    AnnounceOption,
    ConfigOption,
    KeyOption,
    SetOption,
    flag_overrides,
)
from nearsight.common.command_line.terminal import print_line
from nearsight.common.errors import InvalidArgument, NearsightError

if TYPE_CHECKING:
    from nearsight.device.recognition import Recognition
    from nearsight.device.recognizer import Recognizer
    from nearsight.device.settings import DeviceSettings

UNKNOWN = 6
"""Exit code of ``nearsight recognize`` if all photos were answered, and one of them with "unknown"."""

app = typer.Typer(add_completion=False)
recognize_app = typer.Typer(add_completion=False)

EdgeOption = Annotated[
    str | None, typer.Option("--edge", metavar="ENDPOINT", help="Asked first, e.g. tcp://127.0.0.1:7100.")
]
CloudOption = Annotated[
    str | None, typer.Option("--cloud", metavar="ENDPOINT", help="Asked if the edge cannot answer.")
]
CatalogueOption = Annotated[
    str | None, typer.Option("--catalogue", metavar="NAME", help="Catalogue to recognise. Default: museum.")
]
PrefetchOption = Annotated[
    bool | None,
    typer.Option("--prefetch/--no-prefetch", help="Recognise on the device what the edge predicts."),
]
EdgeKeyOption = Annotated[
    str | None,
    typer.Option("--edge-key", metavar="KEY", help="Public key of the edge, or a file that holds it."),
]
CloudKeyOption = Annotated[
    str | None,
    typer.Option("--cloud-key", metavar="KEY", help="Public key of the cloud, or a file that holds it."),
]


@app.command()
def device(  # noqa: PLR0917  typer calls it by name
    edge: EdgeOption = None,
    cloud: CloudOption = None,
    catalogue: CatalogueOption = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ENDPOINT", help="Local endpoint. Default: tcp://127.0.0.1:7200."),
    ] = None,
    config: ConfigOption = None,
    prefetch: PrefetchOption = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="FILE", help="Of nearsight profile --device.")
    ] = None,
    key: KeyOption = None,
    edge_key: EdgeKeyOption = None,
    cloud_key: CloudKeyOption = None,
    assignments: SetOption = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the SDK as a daemon, for applications in other languages (see docs/sdk.md)."""
    from nearsight.common.operation.daemon import run_daemon
    from nearsight.device.daemon import DeviceDaemon

    others = {
        **_keys(key, edge_key, cloud_key),
        "server.listen": listen,
        "recognizer.prefetch.enabled": prefetch,
        "recognizer.prefetch.profile": profile,
    }
    settings = _settings(config, assignments, edge, cloud, catalogue, others)
    run_daemon("device", settings, lambda metrics: DeviceDaemon(settings, metrics), announce=announce)


@recognize_app.command()
def recognize(  # noqa: PLR0917  typer calls it by name
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTO", help="JPEG, PNG or WebP files.")],
    edge: EdgeOption = None,
    cloud: CloudOption = None,
    catalogue: CatalogueOption = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="For each photo.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one entry per photo.")] = False,
    draw: Annotated[
        Path | None,
        typer.Option(
            "--draw",
            metavar="OUT.png",
            help="Write the photo with outline and label; for several photos, the folder to write to.",
        ),
    ] = None,
    key: KeyOption = None,
    edge_key: EdgeKeyOption = None,
    cloud_key: CloudKeyOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Say what photos show.

    The tiers come from the flags, or from the table "device" of the settings
    file. Exit code 0: every photo shows a known object; 6: every photo was
    answered, but one or more with "unknown"; others as in `nearsight --help`.
    """
    from nearsight.common.command_line.terminal import print_error, print_json
    from nearsight.common.logging import configure_logging
    from nearsight.device.report import json_report, text_report

    configure_logging(level="ERROR")  # each photo's outcome says which tiers failed, and why

    # Nothing to prefetch for: the photos are here, and each is asked about once.
    others = {
        **_keys(key, edge_key, cloud_key),
        "recognizer.timeout_s": timeout_s,
        "recognizer.prefetch.enabled": False,
    }
    settings = _settings(config, assignments, edge, cloud, catalogue, others)
    drawings = _drawings(photos, draw)
    outcomes: list[Recognition | NearsightError] = []
    with settings.new_recognizer() as recognizer:
        for photo, drawing in zip(photos, drawings, strict=True):
            outcome = _ask(recognizer, photo, drawing)
            outcomes.append(outcome)
            if as_json:
                continue
            if isinstance(outcome, NearsightError):
                print_error(f"{photo}: {outcome}")
            else:
                for line in text_report(str(photo), outcome):
                    print_line(line)
    if as_json:
        reports = zip(photos, outcomes, strict=True)
        print_json([json_report(str(photo), outcome) for photo, outcome in reports])
    raise typer.Exit(_exit_code(outcomes))


def _keys(key: Path | None, edge_key: str | None, cloud_key: str | None) -> Mapping[str, object]:
    return {
        "security.secret_key_file": key,
        "edge.public_key": edge_key,
        "cloud.public_key": cloud_key,
    }


def _settings(
    config: Path | None,
    assignments: Sequence[str] | None,
    edge: str | None,
    cloud: str | None,
    catalogue: str | None,
    others: Mapping[str, object],
) -> DeviceSettings:
    from nearsight.common.config.base import load_settings
    from nearsight.device.settings import DeviceSettings

    named = {"edge.endpoint": edge, "cloud.endpoint": cloud, "catalogue": catalogue, **others}
    return load_settings(DeviceSettings, "device", config, flag_overrides(assignments, named)).settings


def _drawings(photos: Sequence[Path], draw: Path | None) -> list[Path | None]:
    """Where each photo's drawing goes: the file itself, or numbered files in a folder."""
    if draw is None:
        return [None] * len(photos)
    if len(photos) == 1 and not draw.is_dir():
        return [draw]
    if draw.suffix.lower() == ".png":
        raise InvalidArgument(
            f"--draw {draw} is one file, but there are {len(photos)} photos",
            advice="give a folder, e.g. --draw drawn/",
        )
    return [draw / f"{number:03d}_{photo.stem}.png" for number, photo in enumerate(photos, start=1)]


def _ask(recognizer: Recognizer, photo: Path, drawing: Path | None) -> Recognition | NearsightError:
    from nearsight.device.drawing import draw_recognition

    try:
        recognition = recognizer.recognize_blocking(photo)
        if drawing is not None:
            _write(drawing, draw_recognition(photo.read_bytes(), recognition))
    except NearsightError as error:
        return error
    return recognition


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InvalidArgument(
            f"cannot write {path}: {error.strerror}", advice="give --draw a writable place"
        ) from error


def _exit_code(outcomes: Sequence[Recognition | NearsightError]) -> int:
    errors: Iterator[NearsightError] = (o for o in outcomes if isinstance(o, NearsightError))
    first = next(errors, None)
    if first is not None:
        return first.exit_code
    known = all(not isinstance(outcome, NearsightError) and outcome.known for outcome in outcomes)
    return 0 if known else UNKNOWN
