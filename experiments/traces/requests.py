"""Photo requests: one photo per second of a visitor's stays, in the dissertation's trace format.

The table has the columns ``objectID,imagePath,time_ms``, one file per visitor, as the dissertation's programs
(content: Cachier dissertation, 6.2.5 and 6.2.7).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.datasets.tables import Row, read_rows, write_rows
from nearsight.experiments.traces.visits import FARTHEST_S, Visit

COLUMNS = ("objectID", "imagePath", "time_ms")


@dataclass(frozen=True, slots=True)
class PhotoRequest:
    """One photo that a visitor sends."""

    object_id: str
    """The object in the photo; empty if it is not in the catalogue."""
    image_path: str
    """Path of the photo, relative to the data set's folder or absolute."""
    time_ms: int
    """Time of the request, on the clock of the visits."""

    def __post_init__(self) -> None:
        if not self.image_path.strip():
            raise InvalidArgument("a photo request needs an image path")


def photo_requests(
    visits: Iterable[Visit],
    photos: Mapping[str, Sequence[str]],
    rng: np.random.Generator,
    *,
    objects: Mapping[str, str] | None = None,
) -> dict[str, tuple[PhotoRequest, ...]]:
    """Generate one photo per second while a visitor looks at an exhibit (Cachier dissertation, 6.2.5).

    Parameters
    ----------
    visits : iterable of Visit
        In any order.
    photos : mapping of str to sequence of str
        Paths of the photos of each object, by object id; one is drawn for every request.
    rng : Generator
        Draws the photos.
    objects : mapping of str to str, optional
        Object id of each exhibit. By default, an exhibit's name is its object id.

    Returns
    -------
    dict of str to tuple of PhotoRequest
        By visitor, in ascending order of time; the first photo of a stay is taken at its start.

    Raises
    ------
    InvalidArgument
        If an exhibit has no object or no photo.
    """
    requests: dict[str, list[PhotoRequest]] = {}
    for visit in sorted(visits, key=lambda visit: (visit.visitor, visit.start_s)):
        object_id = objects.get(visit.exhibit, "") if objects is not None else visit.exhibit
        choice = photos.get(object_id, ())
        if not choice:
            raise InvalidArgument(
                f"exhibit {visit.exhibit!r} has no photo",
                advice="map every exhibit to an object that has photos",
            )
        for moment in range(max(1, math.floor(visit.duration_s))):
            time_ms = round((visit.start_s + moment) * 1000)
            path = choice[int(rng.integers(len(choice)))]
            requests.setdefault(visit.visitor, []).append(PhotoRequest(object_id, path, time_ms))
    return {visitor: tuple(asked) for visitor, asked in requests.items()}


def assign_objects(exhibits: Iterable[str], object_ids: Sequence[str]) -> dict[str, str]:
    """Assign the n-th object to the n-th exhibit.

    Raises
    ------
    InvalidArgument
        If there are fewer objects than exhibits.
    """
    places = list(dict.fromkeys(exhibits))
    if len(object_ids) < len(places):
        raise InvalidArgument(
            f"{len(places)} exhibits need as many objects, got {len(object_ids)}",
            advice="generate a larger museum or fewer sections",
        )
    return dict(zip(places, object_ids, strict=False))


def read_requests_csv(path: str | os.PathLike[str]) -> tuple[PhotoRequest, ...]:
    """Read photo requests, in the order of the file.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If a row is malformed. The message names the file, the line and the expected content.
    """
    return tuple(
        PhotoRequest(row.values["objectID"], row.text("imagePath"), _time_ms(row))
        for row in read_rows(path, (COLUMNS,))
    )


def _time_ms(row: Row) -> int:
    time_ms = row.integer("time_ms")
    if abs(time_ms) > 1000 * FARTHEST_S:
        raise row.error(f"time_ms is {row.values['time_ms'][:20]}…", "a time in milliseconds")
    return time_ms


def write_requests_csv(path: str | os.PathLike[str], requests: Iterable[PhotoRequest]) -> None:
    """Write requests to a table that `read_requests_csv` reads back unchanged."""
    rows = ((request.object_id, request.image_path, request.time_ms) for request in requests)
    write_rows(path, COLUMNS, rows)
