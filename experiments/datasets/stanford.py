"""The layout of Stanford Mobile Visual Search (Chandrasekhar et al., MMSys 2011).

One folder per category. ``Reference/`` holds the clean images; every other sub-folder holds photos of one
camera (``Query/``, ``E63/``, ``Canon/``, ``Droid/``, ``Palm/``, …). The same file number means the same
object. A photo whose number has no reference shows an object that is not in the catalogue, and so does every
photo of a category without ``Reference/``.
"""

from __future__ import annotations

import re
from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, Query, Reference
from nearsight.experiments.datasets.folders import child, images, subfolders

LAYOUT = "Reference/001.jpg and photos of the same number in Query/, Canon/, Droid/, E63/, Palm/, …"
QUERY_FOLDERS = frozenset({"query", "queries", "canon", "droid", "e63", "palm", "5800", "iphone", "nexus"})
_NUMBER = re.compile(r"\d+")


def is_category(folder: Path) -> bool:
    """Whether ``folder`` has a ``Reference`` folder, or at least a well-known folder of photos."""
    names = {sub.name.lower() for sub in subfolders(folder)}
    return "reference" in names or bool(names & QUERY_FOLDERS)


def load_category(folder: Path) -> Dataset:
    """Read one category.

    Raises
    ------
    NotFound
        If it holds no photos, or its ``Reference`` folder no images.
    InvalidArgument
        If a file has no number in its name, or two references have the same.
    """
    reference_folder = child(folder, "reference")
    references: dict[int, Reference] = {}
    for path in images(reference_folder) if reference_folder else ():
        number = _number(path)
        if number in references:
            raise InvalidArgument(
                f"{path} has the number of {references[number].paths[0].name}",
                advice="one reference per number",
            )
        references[number] = Reference(path.stem, path.stem, (path,))
    if reference_folder and not references:
        raise NotFound(f"{reference_folder} holds no images", advice=f"expected {LAYOUT}")
    photos = [path for sub in subfolders(folder) if sub != reference_folder for path in images(sub)]
    if not photos:
        raise NotFound(f"{folder} holds no photos to recognise", advice=f"expected {LAYOUT}")
    return Dataset(
        folder.resolve().name,
        tuple(references.values()),
        tuple(Query(path, _object_id(references, path)) for path in photos),
    )


def _object_id(references: dict[int, Reference], photo: Path) -> str | None:
    if not references:
        return None
    reference = references.get(_number(photo))
    return reference.object_id if reference else None


def _number(path: Path) -> int:
    match = _NUMBER.search(path.stem)
    if match is None:
        raise InvalidArgument(f"{path} has no number in its name", advice=f"expected {LAYOUT}")
    return int(match[0])
