"""The plain layout: ``references/``, ``queries/`` and ``labels.csv``; also what `nearsight museum` writes.

::

    DIR/references/0001.jpg         one image per object, the file's stem is its id
    DIR/references/0001__2.jpg      a second view of the same object
    DIR/queries/any-name.jpg
    DIR/labels.csv                  columns query,object_id; an empty id: not in the catalogue
    DIR/objects.csv                 optional: object_id,label and any further columns
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, Query, Reference, listed
from nearsight.experiments.datasets.folders import child, images

LAYOUT = "references/*.jpg, queries/*.jpg and labels.csv with the columns query,object_id"
_VIEW = re.compile(r"^(?P<object_id>.+)__(?P<view>\d+)$")


def is_labelled_folder(folder: Path) -> bool:
    """Whether ``folder`` seems meant to have this layout, complete or not."""
    return child(folder, "labels.csv") is not None or child(folder, "references") is not None


def load_labelled_folder(folder: Path) -> Dataset:
    """Read a folder of this layout.

    Raises
    ------
    NotFound
        If a part of the layout is missing, or a label names a file that does not exist.
    InvalidArgument
        If a table is malformed, or a photo has no label.
    """
    parts = {}
    for name in ("references", "queries", "labels.csv"):
        part = child(folder, name)
        if part is None or part.is_dir() != (name != "labels.csv"):
            raise NotFound(f"{folder} has no {name}", advice=f"expected {LAYOUT}")
        parts[name] = part
    return Dataset(
        folder.resolve().name,
        _references(parts["references"], child(folder, "objects.csv")),
        _queries(parts["queries"], parts["labels.csv"]),
    )


def _references(folder: Path, objects_csv: Path | None) -> tuple[Reference, ...]:
    views: dict[str, list[tuple[int, Path]]] = {}
    for path in images(folder):
        match = _VIEW.match(path.stem)
        object_id, view = (match["object_id"], int(match["view"])) if match else (path.stem, 1)
        views.setdefault(object_id, []).append((view, path))
    if not views:
        raise NotFound(f"{folder} holds no images", advice=f"expected {LAYOUT}")
    for object_id, numbered in views.items():
        if len({view for view, _ in numbered}) < len(numbered):
            raise InvalidArgument(
                f"{folder} has two images of the same view of {object_id!r}",
                advice="further views of one object are named ID__2.jpg, ID__3.jpg, …",
            )
    details = _object_details(objects_csv) if objects_csv else {}
    return tuple(
        _reference(object_id, tuple(path for _, path in sorted(numbered)), details.get(object_id, {}))
        for object_id, numbered in sorted(views.items())
    )


def _reference(object_id: str, paths: tuple[Path, ...], details: Mapping[str, str]) -> Reference:
    metadata = {name: value for name, value in details.items() if name not in {"object_id", "label"}}
    return Reference(object_id, details.get("label") or object_id, paths, metadata)


def _object_details(path: Path) -> dict[str, Mapping[str, str]]:
    return {row.values["object_id"]: row.values for row in _rows(path, ("object_id", "label"))}


def _queries(folder: Path, labels_csv: Path) -> tuple[Query, ...]:
    labels: dict[Path, str | None] = {}
    missing = []
    for row in _rows(labels_csv, ("query", "object_id")):
        name = row.values["query"]
        path = next((p for p in (folder / name, labels_csv.parent / name) if name and p.is_file()), None)
        if path is None:
            missing.append(f"{name!r} (line {row.line})")
        elif path in labels:
            raise InvalidArgument(
                f"{labels_csv}, line {row.line}: {name} has a label already", advice="keep one row per photo"
            )
        else:
            labels[path] = row.values["object_id"] or None
    if missing:
        raise NotFound(
            f"{labels_csv} names photos that are not in {folder}: {listed(missing)}",
            advice="add the photos or remove the rows",
        )
    unlabelled = [path.name for path in images(folder) if path not in labels]
    if unlabelled:
        raise InvalidArgument(
            f"{labels_csv} has no row for {listed(unlabelled)}",
            advice="add a row per photo; leave object_id empty if the object is not in the catalogue",
        )
    return tuple(Query(path, object_id) for path, object_id in labels.items())


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    values: Mapping[str, str]


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    expected = f"expected the columns {','.join(columns)}"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not set(columns) <= set(reader.fieldnames or ()):
                raise InvalidArgument(f"{path}, line 1: no header with {','.join(columns)}", advice=expected)
            for row in reader:
                if None in row or None in row.values():
                    raise InvalidArgument(
                        f"{path}, line {reader.line_num}: the number of fields differs from the header's",
                        advice=expected,
                    )
                yield _Row(reader.line_num, {name: value.strip() for name, value in row.items()})
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path} is not a CSV table in UTF-8: {error}", advice=expected) from error
