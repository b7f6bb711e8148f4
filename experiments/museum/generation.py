"""Writes a museum to disk: references, photos, labels and catalogue data, in the layout of `load_dataset`.

The content of each file depends on the settings only. Therefore the work can be divided among processes in
any order, and an interrupted run can be resumed. Each file is written atomically, and ``museum.json`` is
written last.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

import cv2

from nearsight.common.background.progress import Progress
from nearsight.common.errors import ConfigurationError, InternalError, InvalidArgument
from nearsight.common.files import write_atomically
from nearsight.common.inference.process_memory import end_with_parent
from nearsight.experiments.datasets.tables import write_rows
from nearsight.experiments.museum.art.exhibit import random_stream, render_reference
from nearsight.experiments.museum.art.textures import Image
from nearsight.experiments.museum.camera.photograph import take_photo
from nearsight.experiments.museum.labels import catalogue_entry
from nearsight.experiments.museum.settings import UNKNOWN_FROM, VERSION, MuseumSettings

REFERENCE_QUALITY = 92


def object_id(index: int) -> str:
    """Id of the exhibit at ``index``: 0001 for index 0."""
    return f"{index + 1:04d}"


def query_name(index: int, photo: int) -> str:
    """File name of a photo of an exhibit; ``photo`` counts from 0."""
    if index >= UNKNOWN_FROM:
        return f"unknown_{index - UNKNOWN_FROM + 1:04d}.jpg"
    return f"{object_id(index)}_{photo + 1:02d}.jpg"


def render_photos(
    seed: int, index: int, photos: Iterable[int], difficulty: float, reference: Image | None = None
) -> Iterator[tuple[int, bytes]]:
    """Render the given photos of one exhibit as (photo, JPEG) pairs; the exhibit is painted at most once.

    The content of a photo does not depend on which other photos are requested. ``reference`` is the painted
    exhibit, if it is known.
    """
    for photo in photos:
        if reference is None:
            reference = render_reference(seed, index)
        yield photo, take_photo(reference, random_stream(seed, index, 2, photo), difficulty).jpeg


def generate_museum(
    out: str | os.PathLike[str],
    settings: MuseumSettings,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> None:
    """Write a museum to the folder ``out``; existing files of the same museum are kept.

    Parameters
    ----------
    out : path
        Created if it does not exist.
    settings : MuseumSettings
    workers : int
        Number of processes; the files are the same for any number.
    progress : callable, optional
        Called in this process after each exhibit.

    Raises
    ------
    InvalidArgument
        If ``workers`` is less than 1.
    ConfigurationError
        If ``out`` holds another museum or other files.
    """
    if workers < 1:
        raise InvalidArgument(f"at least one worker is needed, got {workers}")
    folder = Path(out)
    _claim(folder, settings)
    indices = [*range(settings.objects), *range(UNKNOWN_FROM, UNKNOWN_FROM + settings.unknown_photos)]
    for done, _ in enumerate(
        each_exhibit(partial(_write_exhibit, folder, settings), indices, workers), start=1
    ):
        if progress is not None:
            progress(done, len(indices))
    _write_tables(folder, settings)
    write_atomically(folder / "museum.json", _to_text(settings))
    (folder / "museum.partial.json").unlink(missing_ok=True)


def each_exhibit(task: Callable[[int], object], indices: list[int], workers: int) -> Iterator[None]:
    """Run a task for each exhibit in ``workers`` processes; yield after each one that is completed."""
    if workers == 1:
        before = cv2.getNumThreads()
        cv2.setNumThreads(1)
        try:
            for index in indices:
                task(index)
                yield
        finally:
            cv2.setNumThreads(before)
        return
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _start_worker, (os.getpid(),)) as pool:
            futures = [pool.submit(task, index) for index in indices]
            try:
                for future in as_completed(futures):
                    future.result()
                    yield
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool as error:
        raise InternalError(
            "a worker process died",
            advice="run again with one worker to see the error; finished files are kept",
        ) from error


def _start_worker(parent_pid: int) -> None:
    """Initialise a worker process: one OpenCV thread, SIGINT ignored, killed when its parent ends (Linux).

    The parent alone handles Ctrl-C.
    """
    end_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)


def _write_exhibit(folder: Path, settings: MuseumSettings, index: int) -> None:
    photos = range(settings.photos_per_object if index < UNKNOWN_FROM else 1)
    missing = [photo for photo in photos if not (folder / "queries" / query_name(index, photo)).exists()]
    path = folder / "references" / f"{object_id(index)}.jpg"
    without_reference = index < UNKNOWN_FROM and not path.exists()
    if not (missing or without_reference):
        return
    reference = render_reference(settings.seed, index)
    if without_reference:
        _, data = cv2.imencode(".jpg", reference, [cv2.IMWRITE_JPEG_QUALITY, REFERENCE_QUALITY])
        write_atomically(path, data.tobytes())
    for photo, jpeg in render_photos(settings.seed, index, missing, settings.difficulty, reference):
        write_atomically(folder / "queries" / query_name(index, photo), jpeg)


def _claim(folder: Path, settings: MuseumSettings) -> None:
    """Check that ``folder`` is empty or holds the same museum, and mark it as incomplete."""
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file", advice="name a folder")
    marks = [folder / "museum.json", folder / "museum.partial.json"]
    mark = next((path for path in marks if path.exists()), None)
    if mark is None and folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{folder} is not empty and holds no museum", advice="name another folder")
    if mark is not None:
        _require_same(folder, mark, settings)
    (folder / "references").mkdir(parents=True, exist_ok=True)
    (folder / "queries").mkdir(exist_ok=True)
    write_atomically(folder / "museum.partial.json", _to_text(settings))
    (folder / "museum.json").unlink(missing_ok=True)


def _require_same(folder: Path, mark: Path, settings: MuseumSettings) -> None:
    advice = "name another folder, or remove this one first"
    found = _parsed(mark, advice)
    for name in ("seed", "difficulty"):
        here, wanted = getattr(found, name), getattr(settings, name)
        if here != wanted:
            raise ConfigurationError(f"{folder} is a museum with {name} {here}, not {wanted}", advice=advice)
    for name in ("objects", "photos_per_object", "unknown_photos"):
        here, most = getattr(found, name), getattr(settings, name)
        if here > most:
            raise ConfigurationError(
                f"{folder} is a museum with more {name.replace('_', ' ')}: {here} instead of {most}",
                advice=f"{advice}; a museum can only grow",
            )


def _write_tables(folder: Path, settings: MuseumSettings) -> None:
    labels = [
        (query_name(index, photo), object_id(index))
        for index in range(settings.objects)
        for photo in range(settings.photos_per_object)
    ]
    labels += [(query_name(UNKNOWN_FROM + number, 0), "") for number in range(settings.unknown_photos)]
    write_rows(folder / "labels.csv", ("query", "object_id"), labels)
    rows = []
    for index in range(settings.objects):
        entry = catalogue_entry(settings.seed, index)
        rows.append((object_id(index), entry.title, entry.artist, entry.year, entry.technique))
    write_rows(folder / "objects.csv", ("object_id", "label", "artist", "year", "technique"), rows)


def _to_text(settings: MuseumSettings) -> bytes:
    return (json.dumps({"version": VERSION, **asdict(settings)}, indent=2) + "\n").encode()


def read_settings(folder: str | os.PathLike[str]) -> MuseumSettings:
    """Settings of a complete museum.

    Raises
    ------
    ConfigurationError
        If the folder is not a complete museum of this version.
    """
    path = Path(folder) / "museum.json"
    advice = "generate it with: nearsight museum generate"
    if not path.is_file():
        raise ConfigurationError(f"{folder} is not a complete museum", advice=advice)
    return _parsed(path, advice)


def _parsed(path: Path, advice: str) -> MuseumSettings:
    """The settings in a file of a museum of this version."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version = values.pop("version")
        if version == VERSION:  # another version may have other settings
            # All numbers are required: a default value would describe another museum.
            return MuseumSettings(**{field.name: values.pop(field.name) for field in fields(MuseumSettings)})
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}", advice=advice) from error
    raise ConfigurationError(f"{path.parent} is a museum of version {version}, not {VERSION}", advice=advice)
