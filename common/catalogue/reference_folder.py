"""Reads a folder of reference images: one object per image, with a table of labels and metadata.

::

    DIR/references/mona-lisa.jpg       the stem is the object's id; DIR may hold the images directly, too
    DIR/references/mona-lisa__2.jpg    a second view of the same object
    DIR/objects.csv                    optional, here or beside the images: object_id,label and any columns
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unicodedata import normalize

from nearsight.common.errors import InvalidArgument, NotFound, SetupError

_IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".heic", ".avif"}
)
"""Suffixes of files treated as images. Some cannot be decoded; these are reported instead of ignored."""

_VIEW = re.compile(r"(?P<object_id>.+)__(?P<view>\d+)")
_composed = partial(normalize, "NFC")
"""Text with composed letters: macOS decomposes the letters of file names, spreadsheets do not."""
_LAYOUT = "give a folder of images, or one with a subfolder references/ of images"


@dataclass(frozen=True, slots=True)
class Reference:
    """One object of the catalogue with its reference images."""

    object_id: str
    """Unique within the folder."""
    label: str
    """Name of the object for users; the id if the table has none."""
    paths: tuple[Path, ...]
    """One image per view; at least one."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Further columns of ``objects.csv``, such as artist and year."""


def read_reference_folder(folder: Path) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    """List the objects of a folder without opening an image.

    Returns
    -------
    objects, without_image
        The objects in the order of their ids, and the ids in ``objects.csv`` that have no image.

    Raises
    ------
    NotFound
        If the folder does not exist or has no image.
    InvalidArgument
        If the path is a file, two files are the same view of one object, or ``objects.csv`` is malformed.
    SetupError
        If the folder, or ``objects.csv``, may not be read.
    """
    try:
        return _read(folder)
    except PermissionError as error:
        raise SetupError(f"cannot read {error.filename}", advice="give access to it") from error


def _read(folder: Path) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    if not folder.is_dir():
        if folder.exists():
            raise InvalidArgument(f"{folder} is a file", advice=_LAYOUT)
        raise NotFound(f"there is no folder {folder}", advice="check the path")
    inner = child_named(folder, "references")
    images, above = (
        (inner, folder) if inner is not None and inner.is_dir() else (folder, folder.absolute().parent)
    )
    paths = _object_paths(images)
    table = child_named(images, "objects.csv")
    if table is None:
        with suppress(PermissionError):  # the folder above need not be readable
            table = child_named(above, "objects.csv")
    details = _read_table(table) if table else {}
    objects = tuple(_reference(object_id, paths[object_id], details) for object_id in sorted(paths))
    return objects, tuple(sorted(details.keys() - set(map(_composed, paths))))


def _object_paths(images: Path) -> dict[str, tuple[Path, ...]]:
    views: dict[str, dict[int, Path]] = {}
    for path in images_in(images):
        match = _VIEW.fullmatch(path.stem)
        object_id, view = (match["object_id"], int(match["view"])) if match else (path.stem, 1)
        taken = views.setdefault(object_id, {})
        if view in taken:
            raise InvalidArgument(
                f"{taken[view].name} and {path.name} in {images} are the same view of {object_id!r}",
                advice="name further views of one object ID__2.jpg, ID__3.jpg, …",
            )
        taken[view] = path
    if not views:
        raise NotFound(f"there are no images in {images}", advice=_LAYOUT)
    return {object_id: tuple(path for _, path in sorted(taken.items())) for object_id, taken in views.items()}


def _reference(
    object_id: str, paths: tuple[Path, ...], details: Mapping[str, Mapping[str, str]]
) -> Reference:
    row = details.get(_composed(object_id), {})
    metadata = {name: value for name, value in row.items() if name not in {"object_id", "label"} and value}
    return Reference(object_id, row.get("label") or object_id, paths, metadata)


def child_named(folder: Path, name: str) -> Path | None:
    """The entry called ``name``, compared without regard to case, or None."""
    return next((entry for entry in sorted(folder.iterdir()) if entry.name.lower() == name), None)


def images_in(folder: Path) -> list[Path]:
    """Visible image files directly in a folder, sorted by name; other files are ignored."""
    return [
        path
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and path.suffix.lower() in _IMAGE_SUFFIXES and path.is_file()
    ]


def _read_table(path: Path) -> dict[str, dict[str, str]]:
    """Rows of ``objects.csv`` by object id, composed."""
    rows: dict[str, dict[str, str]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, ())]
            _check_header(header, f"{path}, line 1")
            for fields in reader:
                values = [value.strip() for value in fields]
                if not any(values):  # spreadsheets write such rows at the end
                    continue
                where = f"{path}, line {reader.line_num}"
                if len(values) != len(header):
                    raise InvalidArgument(
                        f"{where}: {len(values)} fields, but the header has {len(header)}",
                        advice="give each line as many, and write a value that contains a comma in quotes",
                    )
                row = dict(zip(header, values, strict=True))
                object_id = _composed(row["object_id"])
                if not object_id:
                    raise InvalidArgument(f"{where}: object_id is empty", advice="give the stem of its image")
                if object_id in rows:
                    raise InvalidArgument(
                        f"{where}: {object_id!r} occurs twice", advice="write one line per object"
                    )
                rows[object_id] = row
    except PermissionError:
        raise
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        advice = "save it as CSV in UTF-8, and check its quotes"
        raise InvalidArgument(f"cannot read {path}: {error}", advice=advice) from error
    return rows


def _check_header(header: Sequence[str], where: str) -> None:
    if "object_id" not in header:
        raise InvalidArgument(
            f"{where}: there is no column object_id",
            advice="begin with a header of columns separated by commas, such as object_id,label",
        )
    if twice := sorted(name for name, count in Counter(header).items() if name and count > 1):
        raise InvalidArgument(
            f"{where}: the column {twice[0]!r} occurs twice", advice="give each column its own name"
        )
