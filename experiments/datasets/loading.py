"""One entry to every layout: `load_dataset` for a data set, `load_datasets` also for a folder of several."""

from __future__ import annotations

import os
from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets import labelled_folder, stanford
from nearsight.experiments.datasets.dataset import Dataset, listed
from nearsight.experiments.datasets.folders import require_folder, subfolders
from nearsight.experiments.datasets.labelled_folder import is_labelled_folder, load_labelled_folder
from nearsight.experiments.datasets.stanford import is_category, load_category

_EXPECTED = f"expected {labelled_folder.LAYOUT}; or {stanford.LAYOUT}"


def load_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Read the one data set that lies in ``folder``, in whichever known layout.

    Raises
    ------
    NotFound, InvalidArgument
        Says what is missing or malformed and what was expected.
    """
    path = Path(folder)
    require_folder(path)
    if is_labelled_folder(path):
        return load_labelled_folder(path)
    if is_category(path):
        return load_category(path)
    inside = _members(path)
    if inside:
        raise InvalidArgument(
            f"{path} holds several data sets: {listed(sub.name for sub in inside)}",
            advice="name one of them, or load them together with load_datasets",
        )
    raise NotFound(f"{path} holds no known data set", advice=_EXPECTED)


def load_datasets(folder: str | os.PathLike[str]) -> tuple[Dataset, ...]:
    """Read the data set in ``folder``, or all those in its sub-folders.

    Object ids of several data sets get the sub-folder's name before them (``book_covers/001``), so that all
    fit in one catalogue.

    Raises
    ------
    NotFound, InvalidArgument
        As `load_dataset`.
    """
    path = Path(folder)
    require_folder(path)
    if is_labelled_folder(path) or is_category(path):
        return (load_dataset(path),)
    members = _members(path)
    if not members:
        raise NotFound(f"{path} holds no known data set", advice=_EXPECTED)
    return tuple(load_dataset(member).with_prefix(member.name) for member in members)


def _members(folder: Path) -> tuple[Path, ...]:
    return tuple(sub for sub in subfolders(folder) if is_labelled_folder(sub) or is_category(sub))
