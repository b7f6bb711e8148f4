"""A catalogue in the application's own process: from a folder of reference images, or a cloud's database.

The models trained from a folder are stored in it, in a database like that of a cloud. Only new or changed
images are trained again, and objects that left the folder are removed. The folder takes precedence over its
index: a damaged index is renamed and created again, and an index that cannot be written is replaced by a
temporary copy.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.background.progress import Progress, at_intervals
from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.ingestion import IngestionReport, ingest_folder
from nearsight.common.catalogue.live_catalogue import LiveCatalogue
from nearsight.common.catalogue.reference_folder import read_reference_folder
from nearsight.common.catalogue.schema import FORMAT
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import choose_catalogue
from nearsight.common.clock import Clock
from nearsight.common.database.files import copy_database
from nearsight.common.database.places import set_aside
from nearsight.common.errors import (
    ConfigurationError,
    CorruptStore,
    ForeignStore,
    InvalidArgument,
    NearsightError,
    NotFound,
    Unavailable,
)
from nearsight.common.folder_lock import locked
from nearsight.common.logging import get_logger
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.recognizer_settings import LocalSettings

INDEX_NAME = ".nearsight.db"
"""File name of the index in its folder."""
_IN_INDEX = "references"
"""Name of the only catalogue in the index."""
_MOST_PROBLEMS = 20
"""Maximum number of unusable images that are logged one by one."""

_log = get_logger("device.local_catalogue")


@dataclass(frozen=True, slots=True)
class LocalCatalogue:
    """All objects of a catalogue, indexed; it does not change any more."""

    recognizer: ObjectRecognizer
    revision: int
    """Revision of the catalogue in its database."""


def from_database(path: Path, catalogue: str, settings: RecognitionSettings) -> LocalCatalogue:
    """Load a catalogue from a cloud's database.

    Raises
    ------
    NotFound, InvalidArgument
        If there is no such file or catalogue, or none is named and there are several.
    CorruptStore, ConfigurationError
        If the file cannot be used.
    """
    with CatalogueStore(path, create=False, or_read_only=True) as store:
        name = choose_catalogue(catalogue, [info.name for info in store.catalogues()])
        live = LiveCatalogue(name, store, settings)
        live.load()
        try:
            return LocalCatalogue(live.recognizer, live.content.revision)
        finally:
            live.stop()


def from_folder(
    folder: Path, index: Path | None, settings: LocalSettings, clock: Clock, progress: Progress | None
) -> LocalCatalogue:
    """Load a folder of reference images; images that are missing in its index are trained.

    Parameters
    ----------
    folder : Path
        In the layout of `nearsight.common.catalogue.reference_folder`.
    index : Path, optional
        The database of trained models. Default: `INDEX_NAME` in the folder.
    settings : LocalSettings
        Settings of the training.
    clock : Clock
        Measures the duration.
    progress : callable, optional
        Called in this thread with the number of processed objects and their total. Without it, progress is
        logged.

    Raises
    ------
    NotFound, InvalidArgument
        If the folder cannot be used, or none of its images can.
    ForeignStore, ConfigurationError
        If the given index belongs to another program or a newer version, is a folder, or its folder does not
        exist.
    """
    read_reference_folder(folder)  # check the folder before a database is created in it
    place = index or folder / INDEX_NAME
    if place.is_dir():
        raise ConfigurationError(f"{place} is a folder", advice="name a file for the index, such as index.db")
    if not place.parent.is_dir():
        raise ConfigurationError(f"there is no folder {place.parent}", advice=f"mkdir -p {place.parent}")
    with locked(folder), ExitStack() as stack:
        store = stack.enter_context(_opened(place, stack, own=index is None))
        try:
            return _trained(folder, store, settings, clock, progress)
        except Unavailable as error:  # such as a disk that has become full
            store = stack.enter_context(_temporary(place, stack, error.message))
            return _trained(folder, store, settings, clock, progress)


def _trained(
    folder: Path, store: CatalogueStore, settings: LocalSettings, clock: Clock, progress: Progress | None
) -> LocalCatalogue:
    """Update an index from its folder, and load it."""
    started_s = clock.monotonic()
    with closing(DatabaseCatalogue(store, _IN_INDEX, settings.recognition)) as catalogue:
        removed = _remove_deleted(folder, store, catalogue)
        report = ingest_folder(
            folder,
            catalogue,
            threads=os.cpu_count() or 1,
            allow_similar=settings.allow_similar,
            progress=progress or at_intervals(_log_training, clock),
        )
        if report.interrupted:
            raise KeyboardInterrupt
        _log_problems(report)
        live: LiveCatalogue | None = None
        with suppress(NotFound):  # no image was ever accepted
            live = catalogue.live()
        if live is None or not live.recognizer.models:
            first = report.problems[0]
            raise InvalidArgument(
                f"no image in {folder} can be used: {first.path or first.object_id}: {first.reason}"
            )
        _log.info(
            "the catalogue is ready",
            folder=str(folder),
            objects=len(live.recognizer),
            trained=len(report.added) + len(report.replaced),
            removed=removed,
            seconds=round(clock.monotonic() - started_s, 1),
        )
        return LocalCatalogue(live.recognizer, live.content.revision)


def _opened(place: Path, stack: ExitStack, *, own: bool) -> CatalogueStore:
    """The index; a temporary copy if it cannot be written.

    Our ``own`` file in the folder can always be created again. A file that the application named may belong
    to another program.
    """
    try:
        return CatalogueStore(place)
    except CorruptStore as error:
        if isinstance(error, ForeignStore) and not own:
            raise
        reason = error.message
        with suppress(OSError):  # from a disk that cannot be written
            aside = set_aside(place, "damaged")
            _log.warning("the index cannot be used and is created again", error=reason, kept=str(aside))
            return CatalogueStore(place)
    except (ConfigurationError, Unavailable) as error:
        reason = error.message
    return _temporary(place, stack, reason)


def _temporary(place: Path, stack: ExitStack, reason: str) -> CatalogueStore:
    """A temporary copy of the index, for this process only."""
    _log.warning(
        "the index cannot be stored: new images in the folder are trained at each start",
        error=reason,
        advice="give index=PATH on a disk that can be written",
    )
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nearsight-"))) / place.name
    with suppress(NearsightError):  # it may not exist or not be readable
        copy_database(place, copy, FORMAT)
    return CatalogueStore(copy)


def _remove_deleted(folder: Path, store: CatalogueStore, catalogue: DatabaseCatalogue) -> int:
    """Remove objects that are no longer in the folder; returns their number.

    Called before new objects are added: an object that was refused as too similar to a removed one can be
    added now.
    """
    if _IN_INDEX not in [info.name for info in store.catalogues()]:
        return 0
    objects, _ = read_reference_folder(folder)
    gone = {item.object_id for item in catalogue.objects()} - {item.object_id for item in objects}
    return len(catalogue.remove(sorted(gone)).removed) if gone else 0


def _log_training(done: int, total: int) -> None:
    _log.info("training", objects=done, of=total)


def _log_problems(report: IngestionReport) -> None:
    for problem in report.problems[:_MOST_PROBLEMS]:
        _log.warning(
            "an object is rejected" if problem.rejected else "an image is not used",
            object_id=problem.object_id,
            path=str(problem.path or ""),
            reason=problem.reason,
        )
    left = len(report.problems) - _MOST_PROBLEMS
    if left > 0:
        _log.warning("further images are not used", images=left)
