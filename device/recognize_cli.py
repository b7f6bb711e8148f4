"""The command ``nearsight recognize``: recognises photos, or folders of them, from a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import ConfigOption, KeyOption, SetOption
from nearsight.common.command_line.terminal import print_error, print_json, print_line, progress_bar
from nearsight.common.errors import ConfigurationError, InvalidArgument, NearsightError, NotFound, SetupError
from nearsight.common.files import write_atomically
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.device.cli import (
    CatalogueOption,
    CloudKeyOption,
    CloudOption,
    EdgeKeyOption,
    EdgeOption,
    device_settings,
    key_flags,
)

if TYPE_CHECKING:
    from nearsight.device.recognition import Recognition
    from nearsight.device.recognizer import Recognizer
    from nearsight.device.settings import DeviceSettings

UNKNOWN = 6
"""Exit code if all photos were answered, and at least one with "unknown"."""

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_EMPTY_TIMEOUT_S = 1.0

app = typer.Typer(add_completion=False)


@app.command()
def recognize(  # noqa: PLR0917  typer calls it by name
    photos: Annotated[
        list[Path],
        typer.Argument(metavar="PHOTO", help="JPEG, PNG or WebP files, or folders of them."),
    ],
    edge: EdgeOption = None,
    cloud: CloudOption = None,
    catalogue: CatalogueOption = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.001, max=86_400, help="Timeout per photo. Default: 5."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one entry per photo.")] = False,
    draw: Annotated[
        Path | None,
        typer.Option(
            "--draw",
            metavar="OUT.png",
            help="Write the photo with outline and label. For several photos or a folder: the folder to "
            "write to.",
        ),
    ] = None,
    key: KeyOption = None,
    edge_key: EdgeKeyOption = None,
    cloud_key: CloudKeyOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Recognise photos: a few lines for one photo; for several, a line for each and a summary.

    The tiers come from the flags, or from the table "device" of the settings
    file, or are those of this machine. Exit code 0: every photo shows a known
    object; 6: every photo was answered, but one or more with "unknown"; others
    as in `nearsight --help`.
    """
    from nearsight.common.logging import configure_logging
    from nearsight.device.report import json_report, line_report, summary, text_report

    configure_logging(level="ERROR")  # each photo's outcome contains the failed tiers and their errors

    # No prefetching: each of these photos is requested only once.
    others = {
        **key_flags(key, edge_key, cloud_key),
        "recognizer.timeout_s": timeout_s,
        "recognizer.prefetch.enabled": False,
    }
    settings = device_settings(config, assignments, edge, cloud, catalogue, others)
    if key is not None and not any(tier.public_key for tier in settings.next_tiers()):
        raise ConfigurationError(
            "--key is given, but the public key of no tier: nothing would be encrypted",
            advice="give a tier with its key, such as --edge tcp://HOST:PORT --edge-key FILE",
        )
    files = photos_in(photos)
    drawings = _drawings(photos, files, draw)
    outcomes: list[Recognition | NearsightError] = []
    with settings.new_recognizer() as recognizer, _progress(len(files)) as advance:
        for photo, drawing in zip(files, drawings, strict=True):
            outcome = _ask(recognizer, photo, drawing)
            outcomes.append(outcome)
            advance(1)
            if as_json:
                continue
            if isinstance(outcome, NearsightError):
                print_error(f"{photo}: {outcome}")
            else:
                lines = text_report if len(files) == 1 else line_report
                for line in lines(str(photo), outcome):
                    print_line(line, hang=4)
    if as_json:
        reports = zip(files, outcomes, strict=True)
        print_json([json_report(str(photo), outcome) for photo, outcome in reports])
    else:
        if len(files) > 1:
            print_line(summary(outcomes), hang=4)
        if why := _why_edge_is_empty(settings, outcomes):
            print_line(f"  why not the edge: {why}", hang=4)
    raise typer.Exit(_exit_code(outcomes))


def photos_in(paths: Sequence[Path]) -> list[Path]:
    """The photos that arguments name: files as they are, and all photos in folders, sorted by name.

    Raises
    ------
    NotFound
        If there is no photo in a folder.
    """
    photos: list[Path] = []
    for path in paths:
        if not path.is_dir():
            photos.append(path)
            continue
        # Unlike rglob(), os.walk() skips folders that vanish or may not be read.
        below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        inside = sorted(
            one
            for one in below
            if one.suffix.lower() in _SUFFIXES and not one.name.startswith(".") and one.is_file()
        )
        if not inside:
            raise NotFound(f"there are no photos in {path}", advice="name JPEG, PNG or WebP files")
        photos += inside
    return photos


@contextmanager
def _progress(photos: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, if there are several photos."""
    if photos == 1 or not sys.stderr.isatty():
        yield lambda _photos: None
        return
    with progress_bar("recognising", photos) as advance:
        yield advance


def _drawings(given: Sequence[Path], photos: Sequence[Path], draw: Path | None) -> list[Path | None]:
    """Output path of each photo's drawing: ``draw`` itself, or numbered files in this folder."""
    if draw is None:
        return [None] * len(photos)
    is_file = bool(draw.suffix) or (draw.exists() and not draw.is_dir())  # such as /dev/stdout
    if len(given) == 1 and not given[0].is_dir() and is_file and not draw.is_dir():
        if draw.suffix.lower() not in {"", ".png"}:
            raise InvalidArgument(f"--draw {draw} is not a PNG file", advice="end the name in .png")
        drawings = [draw]
    elif draw.suffix.lower() == ".png":
        what = f"there are {len(photos)} photos" if len(given) > 1 else f"{given[0]} is a folder"
        raise InvalidArgument(
            f"--draw {draw} is one file, but {what}", advice="give a folder, e.g. --draw drawn/"
        )
    elif draw.is_file():
        raise InvalidArgument(f"--draw {draw} is a file", advice="give a folder, e.g. --draw drawn/")
    else:
        drawings = [draw / f"{number:03d}_{photo.stem}.png" for number, photo in enumerate(photos, start=1)]
    read = {photo.resolve() for photo in photos}
    for drawing in drawings:
        if drawing.resolve() in read:
            raise InvalidArgument(f"--draw would replace the photo {drawing}", advice="choose another place")
    return [*drawings]


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
        write_atomically(path, data)
    except OSError as error:
        raise SetupError(
            f"cannot write {path}: {error.strerror}", advice="give --draw a writable place"
        ) from error


def _exit_code(outcomes: Sequence[Recognition | NearsightError]) -> int:
    errors: Iterator[NearsightError] = (o for o in outcomes if isinstance(o, NearsightError))
    first = next(errors, None)
    if first is not None:
        return first.exit_code
    known = all(not isinstance(outcome, NearsightError) and outcome.known for outcome in outcomes)
    return 0 if known else UNKNOWN


def _why_edge_is_empty(settings: DeviceSettings, outcomes: Sequence[Recognition | NearsightError]) -> str:
    """The edge's reason why its cache is empty; empty if it is not, or the edge was not called."""
    from nearsight.common.operation.status import ask_status

    last = next((one for one in reversed(outcomes) if not isinstance(one, NearsightError)), None)
    if last is None or last.answered_by != "cloud" or "edge" not in {hop.tier for hop in last.hops}:
        return ""
    edge, keys = [settings.edge.endpoint or DEFAULT_ENDPOINTS["edge"]], settings.client_security().edge
    (status,) = ask_status(edge, timeout_s=_EMPTY_TIMEOUT_S, security=keys)
    return dict(status.details).get(f"{settings.catalogue}: why empty", "")
