"""Reads data sets from disk: `load_dataset` reads one, `load_datasets` also a folder of several.

The plain layout, which `nearsight museum` also writes::

    DIR/references/0001.jpg         one image per object, the file's stem is its id
    DIR/references/0001__2.jpg      a second view of the same object
    DIR/queries/any-name.jpg
    DIR/labels.csv                  columns query,object_id; an empty id: not in the catalogue
    DIR/objects.csv                 optional: object_id,label and any further columns

Without ``labels.csv``, file names label the photos: ``0001.jpg``, ``0001_02.jpg`` and ``0001/any.jpg`` show
object 0001, and ``unknown_01.jpg`` an object that is not in the catalogue. Without photos, and in a folder of
pictures only, the references are also used as queries.

The layout of Stanford Mobile Visual Search (Chandrasekhar et al., MMSys 2011) has one folder per category.
``Reference/`` holds the clean images; every other sub-folder holds photos of one camera (``Query/``,
``E63/``, ``Canon/``, …). Files with the same number show the same object. A photo whose number has no
reference shows an object that is not in the catalogue; so does every photo of a category without
``Reference/``.

Names of folders and files are compared without regard to case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path

from nearsight.common.catalogue.reference_folder import (
    Reference,
    child_named,
    images_in,
    read_reference_folder,
)
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, Query, listed
from nearsight.experiments.datasets.tables import read_rows

_PLAIN = "references/*.jpg, queries/*.jpg and optionally labels.csv with the columns query,object_id"
_STANFORD = "Reference/001.jpg and photos of the same number in Query/, Canon/, Droid/, E63/, Palm/, …"
_HOW_TO_LABEL = (
    "labels.csv beside references/ and queries/, with the columns query,object_id, labels all photos"
)
_SEPARATORS = "_-. "
_UNKNOWN = "unknown"
_EXPECTED = f"expected {_PLAIN}; or {_STANFORD}"
_STANFORD_PHOTOS = frozenset({"query", "queries", "canon", "droid", "e63", "palm", "5800", "iphone", "nexus"})
_NUMBER = re.compile(r"\d+")


def load_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Read the only data set in ``folder``, in any known layout.

    Raises
    ------
    NotFound, InvalidArgument
        If files are missing or malformed. The message describes the expected layout.
    """
    path = Path(folder)
    if not path.exists():
        raise NotFound(f"there is no folder {path}", advice="check the path")
    if not path.is_dir():
        raise InvalidArgument(f"{path} is a file", advice="name the folder that holds the data set")
    if _is_plain(path):
        return _load_plain(path)
    if _is_stanford(path):
        return _load_stanford(path)
    if inside := _members(path):
        raise InvalidArgument(
            f"{path} holds several data sets: {listed(sub.name for sub in inside)}",
            advice="name one of them, or load them together with load_datasets",
        )
    if images_in(path):
        return _load_plain(path)
    raise NotFound(f"{path} holds no known data set", advice=_EXPECTED)


def load_datasets(folder: str | os.PathLike[str]) -> tuple[Dataset, ...]:
    """Read the data set in ``folder``, or all data sets in its sub-folders.

    Object ids of several data sets are prefixed by the sub-folder's name (``book_covers/001``), so that all
    fit in one catalogue.

    Raises
    ------
    NotFound, InvalidArgument
        As `load_dataset`.
    """
    path = Path(folder)
    members = _members(path) if path.is_dir() else ()
    if not members or _is_plain(path) or _is_stanford(path):
        return (load_dataset(path),)
    return tuple(load_dataset(member).with_prefix(member.name) for member in members)


def _members(folder: Path) -> tuple[Path, ...]:
    return tuple(sub for sub in _subfolders(folder) if _is_plain(sub) or _is_stanford(sub))


def _is_plain(folder: Path) -> bool:
    """Whether ``folder`` has a part of the plain layout, complete or not."""
    return any(child_named(folder, name) is not None for name in ("labels.csv", "references"))


def _load_plain(folder: Path) -> Dataset:
    photos, labels = child_named(folder, "queries"), child_named(folder, "labels.csv")
    needed = ("references", "queries") if labels is not None else ("references",) if photos else ()
    for part in needed:
        found = child_named(folder, part)
        if found is None or not found.is_dir():
            raise NotFound(f"{folder} has no {part}", advice=f"expected {_PLAIN}")
    name, references = folder.resolve().name, read_reference_folder(folder)[0]
    if photos is not None and labels is not None:
        return Dataset(name, references, _queries(photos, labels))
    if photos is not None and photos.is_dir():
        return Dataset(name, references, *_named_queries(photos, {ref.object_id for ref in references}))
    return Dataset(
        name,
        references,
        tuple(Query(path, reference.object_id) for reference in references for path in reference.paths),
        f"{folder} has no photos: the references are used as queries, which detects pictures with too few "
        f"features and similar pairs; {_HOW_TO_LABEL}",
    )


def _named_queries(folder: Path, object_ids: Set[str]) -> tuple[tuple[Query, ...], str]:
    """Queries from photos that are named after objects, and a remark about them.

    Raises
    ------
    InvalidArgument
        If no photo is named after an object.
    """
    found: list[Query] = []
    nameless = 0
    for sub in _subfolders(folder):
        if sub.name in object_ids:
            found += (Query(path, sub.name) for path in images_in(sub))
        else:
            nameless += len(images_in(sub))
    for path in images_in(folder):
        object_id = _named_object(path.stem, object_ids)
        if object_id is None and not path.stem.lower().startswith(_UNKNOWN):
            nameless += 1
        else:
            found.append(Query(path, object_id))
    if not any(query.object_id for query in found):
        raise InvalidArgument(f"no photo in {folder} has the name of an object", advice=_HOW_TO_LABEL)
    remark = f"no labels.csv: {len(found)} photos are labelled by their names"
    if nameless:
        remark += f", {nameless} others are left out"
    return tuple(found), f"{remark}; {_HOW_TO_LABEL}"


def _named_object(stem: str, object_ids: Set[str]) -> str | None:
    """The object after which a photo is named: the longest id that equals or starts its name."""
    ends = [len(stem), *(place for place, letter in enumerate(stem) if letter in _SEPARATORS)]
    return next((stem[:end] for end in sorted(ends, reverse=True) if stem[:end] in object_ids), None)


def _queries(folder: Path, labels_csv: Path) -> tuple[Query, ...]:
    labels: dict[Path, str | None] = {}
    missing = []
    for row in read_rows(labels_csv, (("query", "object_id"),)):
        name = row.values["query"].strip()
        path = next((p for p in (folder / name, labels_csv.parent / name) if name and p.is_file()), None)
        if path is None:
            missing.append(f"{name!r} (line {row.line})")
        elif path in labels:
            raise InvalidArgument(
                f"{labels_csv}, line {row.line}: {name} has a label already", advice="keep one row per photo"
            )
        else:
            labels[path] = row.values["object_id"].strip() or None
    if missing:
        raise NotFound(
            f"{labels_csv} names photos that are not in {folder}: {listed(missing)}",
            advice="add the photos or remove the rows",
        )
    unlabelled = [path.name for path in images_in(folder) if path not in labels]
    if unlabelled:
        raise InvalidArgument(
            f"{labels_csv} has no row for {listed(unlabelled)}",
            advice="add a row per photo; leave object_id empty if the object is not in the catalogue",
        )
    return tuple(Query(path, object_id) for path, object_id in labels.items())


def _is_stanford(folder: Path) -> bool:
    """Whether ``folder`` has a ``Reference`` folder, or at least a well-known folder of photos."""
    names = {sub.name.lower() for sub in _subfolders(folder)}
    return "reference" in names or bool(names & _STANFORD_PHOTOS)


def _load_stanford(folder: Path) -> Dataset:
    reference_folder = child_named(folder, "reference")
    references: dict[int, Reference] = {}
    for path in images_in(reference_folder) if reference_folder else ():
        number = _number(path)
        if number in references:
            raise InvalidArgument(
                f"{path} has the number of {references[number].paths[0].name}",
                advice="one reference per number",
            )
        references[number] = Reference(path.stem, path.stem, (path,))
    if reference_folder and not references:
        raise NotFound(f"{reference_folder} holds no images", advice=f"expected {_STANFORD}")
    photos = [path for sub in _subfolders(folder) if sub != reference_folder for path in images_in(sub)]
    if not photos:
        raise NotFound(f"{folder} holds no photos to recognise", advice=f"expected {_STANFORD}")
    shown = {number: reference.object_id for number, reference in references.items()}
    return Dataset(
        folder.resolve().name,
        tuple(references.values()),
        tuple(Query(path, shown.get(_number(path)) if shown else None) for path in photos),
    )


def _number(path: Path) -> int:
    match = _NUMBER.search(path.stem)
    if match is None:
        raise InvalidArgument(f"{path} has no number in its name", advice=f"expected {_STANFORD}")
    return int(match[0])


def _subfolders(folder: Path) -> tuple[Path, ...]:
    """Visible sub-folders, sorted by name."""
    return tuple(
        sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    )
