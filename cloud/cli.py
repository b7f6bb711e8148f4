"""``nearsight cloud``: the daemon, and the commands for its catalogues."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import (
    AnnounceOption,
    ConfigOption,
    JsonOption,
    KeyOption,
    ServerKeyOption,
    SetOption,
    command_follows,
    flag_overrides,
)
from nearsight.common.command_line.terminal import print_json, print_line, print_table, progress_bar
from nearsight.common.errors import INTERRUPTED, InvalidArgument, NotFound

if TYPE_CHECKING:
    from nearsight.cloud.access import CatalogueAccess
    from nearsight.cloud.settings import CloudSettings
    from nearsight.common.catalogue.ingestion import IngestionReport
    from nearsight.common.catalogue.store import CatalogueStore

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    help="Run the cloud daemon, which knows every object of every catalogue.\n\n"
    "Without a command it serves the catalogues of a database until Ctrl-C or SIGTERM. The commands put "
    "images into catalogues, list and remove objects: in a database file (--database), beside a running "
    "daemon or without one, or over the network in a running cloud (--cloud).",
)
catalogues_app = typer.Typer(
    invoke_without_command=True, help="List the catalogues; `remove` removes one with all its objects."
)
app.add_typer(catalogues_app, name="catalogues")
objects_app = typer.Typer(no_args_is_help=True, help="List, add and remove the objects of a catalogue.")
app.add_typer(objects_app, name="objects")

DatabaseOption = Annotated[
    Path | None,
    typer.Option("--database", metavar="FILE", help="Database with the catalogues. Default: cloud.db"),
]
CloudOption = Annotated[
    str | None,
    typer.Option("--cloud", metavar="ENDPOINT", help="A running cloud instead: tcp://127.0.0.1:7000"),
]
SimilarOption = Annotated[
    bool,
    typer.Option(
        "--allow-similar",
        help="Accept images that the catalogue has under another id; the answer is then one of the two ids.",
    ),
]
CatalogueOption = Annotated[
    str, typer.Option("--catalogue", metavar="NAME", help="Which catalogue. Default: the only one.")
]


@app.callback()
def run_cloud(
    ctx: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ENDPOINT", help="Where to serve. Default: tcp://127.0.0.1:7000"),
    ] = None,
    database: DatabaseOption = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create an empty database if the file does not exist.")
    ] = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the daemon, unless a command follows."""
    if command_follows(ctx):
        return
    from nearsight.cloud.daemon import CloudDaemon
    from nearsight.common.operation.daemon import run_daemon

    settings = _load(config, [*(assignments or ()), *["create=true"] * create], database, listen)
    run_daemon("cloud", settings, lambda metrics: CloudDaemon(settings, metrics), announce=announce)


@app.command(
    help="Put a folder of images into a catalogue.\n\n"
    "The stem of a file is the object's id: mona-lisa.jpg; further views are mona-lisa__2.jpg and so on. An "
    "optional objects.csv (object_id,label and any columns) beside the images or one level up names the "
    "objects. Unusable images are reported and skipped. After a change or an interruption, run the command "
    "again: unchanged objects are not trained again. Ctrl-C ends it after the running batches, a second "
    "Ctrl-C at once. A picture that the catalogue has under another id is "
    "refused."
)
def ingest(
    folder: Annotated[Path, typer.Argument(help="Images, or a folder with references/ and objects.csv.")],
    *,
    catalogue: CatalogueOption = "",
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    threads: Annotated[
        int,
        typer.Option(
            min=1, max=256, show_default=False, help="Batches processed in parallel. Default: one per core."
        ),
    ] = os.cpu_count() or 1,
    allow_similar: SimilarOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a folder of images into a catalogue."""
    from nearsight.common.catalogue.ingestion import ingest_folder
    from nearsight.common.catalogue.reference_folder import read_reference_folder

    started = time.perf_counter()
    settings = _load(config, assignments, database)
    with ExitStack() as stack:
        # After Ctrl-C, a second one ends the process, also while the catalogue is closed.
        stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        if not cloud and not settings.database.exists():  # a mistake must not leave an empty database
            read_reference_folder(folder)
        access = stack.enter_context(
            _open(_Place(database, cloud, key, server_key, config, assignments), catalogue, create=True)
        )
        with _Bar() as bar:
            report = ingest_folder(
                folder,
                access,
                threads=threads,
                allow_similar=allow_similar,
                progress=bar.show,
                interrupted=bar.interrupted,
                second_interrupt=signal.SIG_DFL,
            )
        seconds = time.perf_counter() - started
        _print_report(report, folder, cloud or str(settings.database), seconds, as_json=as_json)


@catalogues_app.callback()
def list_catalogues(
    ctx: typer.Context,
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the catalogues, unless a command follows."""
    if command_follows(ctx):
        return
    with _open(_Place(database, cloud, key, server_key, config), "") as access:
        infos = access.catalogues()
    if as_json:
        print_json([asdict(info) for info in infos])
        return
    columns = ("catalogue", "objects", "revision")
    print_table(columns, [astuple(info) for info in infos], right=columns[1:])


@catalogues_app.command("remove")
def remove_catalogue(
    name: Annotated[str, typer.Argument(help="Name of the catalogue.")],
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove a catalogue with all its objects."""
    with _open(_Place(database, cloud, key, server_key, config), name) as access:
        objects = access.remove_catalogue()
    print_line(f"removed {name} with {objects} object{'s' if objects != 1 else ''}")


@app.command("log")
def show_log(
    catalogue: Annotated[
        str, typer.Option("--catalogue", metavar="NAME", help="Changes of this catalogue. Default: of all.")
    ] = "",
    last: Annotated[int, typer.Option("--last", min=1, help="Number of changes.")] = 100,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed the catalogues of a database, when and what; the newest change comes last."""
    settings = _load(config, None, database)
    with _open_store(settings, create=False) as store:
        entries = store.log(catalogue, last)
    if as_json:
        print_json([entry._asdict() for entry in entries])
        return
    columns = ("time (UTC)", "who", "public key", "catalogue", "revision", "what")
    rows = [
        (
            datetime.fromtimestamp(entry.time_s, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            entry.author,
            entry.public_key,
            entry.catalogue,
            entry.revision,
            f"{entry.action} {entry.object_id or 'the catalogue'}",
        )
        for entry in entries
    ]
    print_table(columns, rows, right=("revision",))


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The copy; it must not exist yet.")],
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy the database to a new file and check it, also while a cloud serves it.

    The copy has every acknowledged change. `cp` may miss changes in the log beside the database.
    """
    from nearsight.common.catalogue.schema import FORMAT
    from nearsight.common.database.files import copy_database
    from nearsight.common.operation.status import format_bytes

    source = _load(config, None, database).database
    copy_database(source, file, FORMAT)
    print_line(f"{source} -> {file}: {format_bytes(file.stat().st_size)}, checked")


@app.command("restore")
def restore_backup(
    file: Annotated[Path, typer.Argument(help="The backup, which stays.")],
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Check a backup and replace the database by a copy; the former database is kept under another name.

    The command does not touch a database that a running cloud uses.
    """
    from nearsight.cloud.access import restore

    target = _load(config, None, database).database
    done = restore(file, target)
    former = f"; the former database is {done.replaced}" if done.replaced else ""
    print_line(f"{file} -> {target}: {done.catalogues} catalogues, {done.objects} objects{former}")
    if done.damaged:
        print_line(f"damaged, add them again: {', '.join(done.damaged)}", err=True)


@objects_app.command("list")
def list_objects(
    catalogue: CatalogueOption = "",
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the objects of a catalogue."""
    with _open(_Place(database, cloud, key, server_key, config), catalogue) as access:
        items = access.objects()
    columns = ("object_id", "label", "version", "views", "model_bytes")
    if as_json:
        print_json([{name: getattr(item, name) for name in columns} for item in items])
        return
    print_table(columns, [[getattr(item, name) for name in columns] for item in items], right=columns[2:])


@objects_app.command("add")
def add_object(
    images: Annotated[list[Path], typer.Argument(help="One image per view of the object.")],
    *,
    object_id: Annotated[str, typer.Option("--id", help="Default: the stem of the first image.")] = "",
    label: Annotated[str, typer.Option(help="Displayed name of the object. Default: its id.")] = "",
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Shown with the answer; may be repeated."),
    ] = None,
    catalogue: CatalogueOption = "",
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    allow_similar: SimilarOption = False,
    config: ConfigOption = None,
) -> None:
    """Add one object, or replace the one of the same id. On return, a running cloud recognises it."""
    from nearsight.common.catalogue.training import NewObject, check_object
    from nearsight.common.recognition.images import read_image_file

    object_id = object_id or images[0].stem
    details = _pairs(metadata or [])
    check_object(object_id, label, details)
    item = NewObject(object_id, label or object_id, tuple(read_image_file(path) for path in images), details)
    with _open(_Place(database, cloud, key, server_key, config), catalogue, create=True) as access:
        outcome = access.put([item], allow_similar=allow_similar)
        if outcome.rejected:
            raise InvalidArgument(f"object {object_id!r} was rejected: {outcome.rejected[0].reason}")
        access.finish()
    for image in outcome.skipped:
        print_line(f"skipped {images[image.image]}: {image.reason}", err=True)
    done = "added" if outcome.added else "replaced" if outcome.replaced else "unchanged"
    print_line(f"{done} {object_id}")


@objects_app.command("remove")
def remove_objects(
    object_ids: Annotated[list[str], typer.Argument(help="Ids of the objects.")],
    catalogue: CatalogueOption = "",
    database: DatabaseOption = None,
    cloud: CloudOption = None,
    key: KeyOption = None,
    server_key: ServerKeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove objects. On return, a running cloud no longer recognises them."""
    with _open(_Place(database, cloud, key, server_key, config), catalogue) as access:
        outcome = access.remove(object_ids)
    for object_id in outcome.removed:
        print_line(f"removed {object_id}")
    if outcome.missing:
        raise NotFound(
            f"not in the catalogue: {', '.join(outcome.missing)}", advice="see `nearsight cloud objects list`"
        )


def _load(
    config: Path | None, assignments: list[str] | None, database: Path | None, listen: str | None = None
) -> CloudSettings:
    """The settings of the daemon, so that objects are trained here as the daemon would train them."""
    from nearsight.cloud.settings import CloudSettings
    from nearsight.common.config.base import load_settings

    named = {"database": database, "server.listen": listen}
    return load_settings(CloudSettings, "cloud", config, flag_overrides(assignments, named)).settings


@dataclass(frozen=True, slots=True)
class _Place:
    """Options that say where the catalogues are, and with which settings a database is opened."""

    database: Path | None
    cloud: str | None
    key: Path | None
    server_key: str | None
    config: Path | None
    assignments: list[str] | None = None


@contextmanager
def _open(place: _Place, catalogue: str, *, create: bool = False) -> Iterator[CatalogueAccess]:
    """A catalogue in a database, opened with the settings of the daemon, or in a running cloud."""
    from nearsight.cloud.access import RemoteCatalogue, shell_channel
    from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
    from nearsight.common.catalogue.training import check_catalogue_name, unknown_catalogue
    from nearsight.common.recognition.object_recognizer import pin_threads

    if place.cloud:
        local = {"--database": place.database, "--config": place.config, "--set": place.assignments}
        if given := [option for option, value in local.items() if value]:
            raise InvalidArgument(
                f"both {given[0]} and --cloud are given",
                advice="give only one of them: a running cloud has its own database and settings",
            )
        with shell_channel(place.cloud, place.key, place.server_key) as channel:
            yield RemoteCatalogue(channel, catalogue)
    elif place.key is not None or place.server_key is not None:
        raise InvalidArgument(
            "keys are given, but no running cloud", advice="add --cloud ENDPOINT; a database needs no keys"
        )
    else:
        settings = _load(place.config, place.assignments, place.database)
        if create and not settings.database.exists():  # a mistake must not leave an empty database
            if not catalogue:
                raise unknown_catalogue("", ())
            check_catalogue_name(catalogue)
        pin_threads()
        with (
            _open_store(settings, create=create) as store,
            closing(DatabaseCatalogue(store, catalogue, settings.recognition)) as opened,
        ):
            yield opened


def _open_store(settings: CloudSettings, *, create: bool) -> CatalogueStore:
    from nearsight.common.catalogue.store import CatalogueStore

    return CatalogueStore(
        settings.database, create=create, or_read_only=not create, max_catalogues=settings.max_catalogues
    )


class _Bar(ExitStack):
    """A progress bar that appears when the total is known."""

    _advance: Callable[[int], None] | None = None
    _shown = 0

    def show(self, done: int, total: int) -> None:
        if self._advance is None:
            self._advance = self.enter_context(progress_bar("ingesting", total))
        self._advance(done - self._shown)
        self._shown = done

    def interrupted(self) -> None:
        """Announce the end after the running batches."""
        self.close()  # shows the terminal's cursor again
        print_line(
            "interrupted: the running batches are finished and kept; Ctrl-C again ends at once without them",
            err=True,
        )


def _print_report(
    report: IngestionReport, folder: Path, place: str, seconds: float, *, as_json: bool
) -> None:
    for problem in report.problems:
        what = "rejected" if problem.rejected else "skipped an image of"
        where = f" ({problem.path})" if problem.path else ""
        print_line(f"{what} {problem.object_id}{where}: {problem.reason}", err=True)
    counts = {
        "added": len(report.added),
        "replaced": len(report.replaced),
        "unchanged": len(report.unchanged),
        "rejected": len(report.rejected),
    }
    if as_json:
        problems = [{**asdict(problem), "path": str(problem.path or "")} for problem in report.problems]
        facts = {"total": report.total, "interrupted": report.interrupted, "seconds": round(seconds, 3)}
        print_json({**counts, **facts, "problems": problems})
    else:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        print_line(f"{folder} -> {place}: {listed} in {seconds:.1f} s")
    if report.interrupted:
        print_line("interrupted: repeat the command to continue", err=True)
        raise typer.Exit(INTERRUPTED)
    if len(report.rejected) == report.total:
        raise InvalidArgument(f"none of the {report.total} objects of {folder} could be used")


def _pairs(assignments: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise InvalidArgument(f"--metadata {assignment}: not of the form KEY=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs
