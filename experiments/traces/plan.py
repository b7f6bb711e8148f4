"""The photos that a replay sends for one visitor, with their times; built from traces of two formats.

Visits (``visitor,exhibit,start_s,end_s``) become one photo per second of stay, drawn from the photos of a
data set. The dissertation's format (``objectID,imagePath,time_ms``) names the photos.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, listed
from nearsight.experiments.traces.requests import (
    COLUMNS as REQUEST_COLUMNS,
)
from nearsight.experiments.traces.requests import (
    PhotoRequest,
    assign_objects,
    photo_requests,
    read_requests_csv,
)
from nearsight.experiments.traces.visits import Visit, read_visits_csv

_LONGEST_REPLAY_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class PlannedPhoto:
    """One photo to send."""

    at_s: float
    """Time from the start of the replay [s]."""
    object_id: str
    """The object in the photo; empty if it is not in the catalogue."""
    path: Path
    """The image file."""


def is_request_trace(path: str | os.PathLike[str]) -> bool:
    """Whether a trace names photos (True) or visits (False); False for a damaged file, which readers report.

    Raises
    ------
    NotFound
        If the file does not exist.
    """
    if not Path(path).is_file():
        raise NotFound(f"there is no trace {str(path)!r}", advice="check the path")
    with Path(path).open(newline="", encoding="utf-8-sig", errors="replace") as file:
        try:
            return set(REQUEST_COLUMNS) <= set(next(csv.reader(file), ()))
        except csv.Error:
            return False


def plan_from_requests(
    path: str | os.PathLike[str], folder: Path, seconds: float | None = None
) -> tuple[PlannedPhoto, ...]:
    """Photos of a trace in the dissertation's format; paths are relative to ``folder``."""
    return _planned(read_requests_csv(path), folder, seconds)


def plan_from_visits(
    path: str | os.PathLike[str],
    dataset: Dataset,
    rng: np.random.Generator,
    *,
    visitor: str | None = None,
    seconds: float | None = None,
    unknown_share: float = 0.0,
) -> tuple[PlannedPhoto, ...]:
    """Photos of one visitor of a trace of visits.

    Parameters
    ----------
    path : path
        Visits of any number of visitors.
    dataset : Dataset
        Its queries are the photos. If no name of an exhibit is an object id, objects are assigned in order.
    rng : Generator
        Draws the photos.
    visitor : str, optional
        The visitor; optional if the trace has only one visitor.
    seconds : float, optional
        Duration of the plan: photos from this time on are left out. None: no limit.
    unknown_share : float
        Share of the photos that show objects outside the catalogue, in [0, 1).

    Raises
    ------
    InvalidArgument
        If the visitor is missing or not in the trace, only some exhibits are objects of the data set, or it
        has too few photos.
    """
    visits = read_visits_csv(path)
    chosen = choose_visitor(visits, visitor, source=str(path))
    photos = photos_by_object(dataset)
    requests = photo_requests(
        (visit for visit in visits if visit.visitor == chosen),
        photos,
        rng,
        objects=objects_on_show(visits, photos),
    )[chosen]
    unknown = [str(query.path) for query in dataset.queries if query.object_id is None]
    return _planned(mix_in_unknown(requests, unknown, unknown_share, rng), Path(), seconds)


def choose_visitor(visits: Sequence[Visit], visitor: str | None, *, source: str) -> str:
    """The requested visitor, or the only visitor of the trace.

    Raises
    ------
    InvalidArgument
        If the visitor is not in the trace, or none was requested and there are several.
    """
    visitors = list(dict.fromkeys(visit.visitor for visit in visits))
    if not visitors:
        raise InvalidArgument(f"{source} holds no visits")
    if visitor is None and len(visitors) == 1:
        return visitors[0]
    if visitor not in visitors:
        problem = "name one" if visitor is None else f"there is no visitor {visitor!r}"
        raise InvalidArgument(
            f"{source} holds {len(visitors)} visitors: {problem}",
            advice=f"--visitor is one of {listed(visitors)}",
        )
    return visitor


def objects_on_show(visits: Iterable[Visit], photos: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Object of each exhibit: the object with its name; if none has one, objects are assigned in order.

    Raises
    ------
    InvalidArgument
        If only some exhibits are objects with photos, or there are fewer objects than exhibits.
    """
    exhibits = sorted({visit.exhibit for visit in visits})
    foreign = [exhibit for exhibit in exhibits if exhibit not in photos]
    if len(foreign) == len(exhibits):
        return assign_objects(exhibits, sorted(photos))
    if foreign:
        raise InvalidArgument(
            f"no photo shows {listed(foreign)}, but other exhibits are objects of the data set",
            advice="correct these names in the trace, or use fewer exhibits or a larger museum",
        )
    return dict(zip(exhibits, exhibits, strict=True))


def photos_by_object(dataset: Dataset) -> dict[str, list[str]]:
    """Paths of the photos by object; objects without photos are left out."""
    photos: dict[str, list[str]] = {}
    for query in dataset.queries:
        if query.object_id is not None:
            photos.setdefault(query.object_id, []).append(str(query.path))
    return photos


def mix_in_unknown(
    requests: Sequence[PhotoRequest], unknown: Sequence[str], share: float, rng: np.random.Generator
) -> tuple[PhotoRequest, ...]:
    """Replace some requests by photos of objects that are not in the catalogue.

    Parameters
    ----------
    requests : sequence of PhotoRequest
        Of any visitor.
    unknown : sequence of str
        Paths of photos of unknown objects.
    share : float
        Expected share of replaced requests, in [0, 1).
    rng : Generator
        Selects the requests and the photos.

    Raises
    ------
    InvalidArgument
        If the share is not in [0, 1) or there are no such photos.
    """
    if not 0 <= share < 1:
        raise InvalidArgument(f"the share of unknown photos is in [0, 1), got {share:g}")
    if not share:
        return tuple(requests)
    if not unknown:
        raise InvalidArgument(
            "the data set has no photos of unknown objects",
            advice="leave out --unknown-share, or add queries with an empty object_id",
        )
    return tuple(
        PhotoRequest("", unknown[int(rng.integers(len(unknown)))], request.time_ms)
        if rng.random() < share
        else request
        for request in requests
    )


def load_photos(plan: Iterable[PlannedPhoto]) -> Mapping[Path, bytes]:
    """Read the image files of a plan before the replay starts.

    Raises
    ------
    NotFound
        If a file cannot be read.
    """
    photos: dict[Path, bytes] = {}
    for photo in plan:
        if photo.path not in photos:
            try:
                photos[photo.path] = photo.path.read_bytes()
            except OSError as error:
                raise NotFound(
                    f"cannot read photo {photo.path}: {error.strerror}",
                    advice="paths in the trace are relative to the folder --photos",
                ) from error
    return photos


def _planned(
    requests: Sequence[PhotoRequest], folder: Path, seconds: float | None
) -> tuple[PlannedPhoto, ...]:
    """Photos in ascending order of time; the first is at 0 s."""
    ordered = sorted(requests, key=lambda request: request.time_ms)
    if not ordered:
        raise InvalidArgument("the trace holds no requests")
    start_ms = ordered[0].time_ms
    planned = (
        PlannedPhoto((request.time_ms - start_ms) / 1000, request.object_id, folder / request.image_path)
        for request in ordered
    )
    return tuple(photo for photo in planned if seconds is None or photo.at_s < seconds)


def delayed(plan: Sequence[PlannedPhoto], by_s: float) -> tuple[PlannedPhoto, ...]:
    """The plan delayed by ``by_s``, so that devices do not send at the same time.

    Raises
    ------
    InvalidArgument
        If it takes longer than a year.
    """
    last_s = plan[-1].at_s + by_s if plan else by_s
    if not last_s <= _LONGEST_REPLAY_S:
        raise InvalidArgument(
            f"the last photo is due after {last_s:g} s, but a replay takes at most a year",
            advice="visits have times in seconds, requests in milliseconds; --seconds limits a replay",
        )
    return tuple(replace(photo, at_s=photo.at_s + by_s) for photo in plan)
