"""Photos of visitors who stand before exhibits: recognition results, keys, and costs of each step.

There is one row per photo. A row has the photo's keys of every kind, so that caches with all kinds of keys,
photo rates and verification schedules can be simulated from the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import extract_features, train_object
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, pin_threads
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.image_keys import (
    feature_keys,
    layout_keys,
    min_hash,
    perceptual_hash,
)
from nearsight.common.result_cache.result_cache import Refresh
from nearsight.common.result_cache.stage import KEY_SIDE_PX
from nearsight.common.result_cache.views import ObjectKey, ViewCache
from nearsight.experiments.framework.experiment import Row, RunOptions, StoredRow
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Frame, Stay, film
from nearsight.experiments.museum.generation import object_id
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.visits import Visit

EXHIBITS_ON_SHOW = 44
"""Number of exhibits of one section; the catalogue has more."""
LONGEST_DWELL_S = 60.0
QUALITY = 80
"""Quality of the JPEG files that devices send."""
_SETTINGS = RecognitionSettings()
KEY_LIMITS = replace(_SETTINGS.limits, longest_side=KEY_SIDE_PX)
_SIZE = 10_000
"""Maximum number of cached results."""
_STEP_OF_NUMBERS = 0.01
"""Rounding step of the layout for similarity caching; small enough to have almost no effect."""

T = TypeVar("T")
Pixels = NDArray[np.uint8]

LAYOUT, COLOUR, FEATURES = "layout", "colour layout", "features"
# The seed is fixed, so that the keys in the rows are the same in every process.
_OF_PIXELS = {
    "hash": replace(perceptual_hash(), seed=1),
    "one grid": replace(layout_keys(grids=1), seed=1),
    LAYOUT: replace(layout_keys(), seed=1),
}
_OF_FEATURES = {"min-hash": replace(min_hash(), seed=1), FEATURES: replace(feature_keys(), seed=1)}
KINDS = (*_OF_PIXELS, COLOUR, *_OF_FEATURES)
"""Kinds of keys; each is a column of the rows."""
_DIGITS = 10
"""Number of hexadecimal digits of a key in the rows."""
_NUMBERS = layout_keys(_STEP_OF_NUMBERS, 1)


@cache
def exhibits(seed: int, count: int) -> tuple[ObjectModel, ...]:
    """Train the models of the first exhibits of a museum."""
    return tuple(
        train_object(object_id(index), "", [render_reference(seed, index)], _SETTINGS)
        for index in range(count)
    )


@cache
def _visits(seed: int, visitors: int) -> list[list[tuple[int, Visit]]]:
    """The visits of each visitor, each with the index of its exhibit among all that are visited."""
    visits = generate_visits(
        np.random.default_rng(seed), sections=1, exhibits_per_section=EXHIBITS_ON_SHOW, visitors=visitors
    )
    names = sorted({visit.exhibit for visit in visits})
    indexed = [(names.index(visit.exhibit), visit) for visit in visits]
    return [list(mine) for _, mine in groupby(indexed, key=lambda one: one[1].visitor)]


def stays_of(seed: int, visitors: int, visitor: int, stays: int) -> list[Stay]:
    """The first stays of one of ``visitors`` generated visitors, who all walk through one section."""
    return [
        Stay(object_id(index), render_reference(seed, index), min(visit.duration_s, LONGEST_DWELL_S))
        for index, visit in _visits(seed, visitors)[visitor][:stays]
    ]


def filmed(options: RunOptions, visitors: int, visitor: int, stays: int, how: Filming) -> Iterator[Frame]:
    """Film the first stays of one of ``visitors``; in a smoke run, four seconds before one exhibit."""
    if options.smoke:
        shown = [Stay(object_id(visitor), render_reference(options.seed, visitor), 4.0)]
    else:
        shown = stays_of(options.seed, visitors, visitor, stays)
    return film(shown, how, options.seed * 1_000 + visitor)


def transitions_of(seed: int, visitors: int, followed: int) -> tuple[tuple[str, str], ...]:
    """Visits of all visitors except the first ``followed``: (visitor, object) in order of time."""
    others = [one for mine in _visits(seed, visitors)[followed:] for one in mine]
    others.sort(key=lambda one: one[1].start_s)
    return tuple((visit.visitor, object_id(index)) for index, visit in others)


def real(clip: Path) -> Iterator[Frame]:
    """Read the frames of a video; all show one object, named after the file.

    Raises
    ------
    InvalidArgument
        If the file is not a readable video.
    """
    video = cv2.VideoCapture(str(clip))
    rate = video.get(cv2.CAP_PROP_FPS)
    if not (video.isOpened() and rate > 0):
        raise InvalidArgument(f"{clip} is not a readable video", advice="remove it or replace it")
    number = 0
    while (read := video.read())[0]:
        yield Frame(number / rate, np.asarray(read[1], np.uint8), clip.stem)
        number += 1


def models_of_clips(folder: Path) -> tuple[ObjectModel, ...]:
    """Train an object for each video of a folder from its first frame, named after the file."""
    return tuple(
        train_object(clip.stem, "", [next(real(clip)).image], _SETTINGS) for clip in clips_in(folder)
    )


def clips_in(folder: Path) -> list[Path]:
    """List the videos of a folder."""
    return sorted(path for path in folder.iterdir() if path.suffix in {".mp4", ".avi", ".mov", ".mkv"})


def photo_rows(frames: Iterable[Frame], models: Sequence[ObjectModel]) -> Iterator[Row]:
    """One row per frame: sent as JPEG, recognised, and looked up in a cache with the default keys."""
    pin_threads()
    recognizer = ObjectRecognizer.build(models, _SETTINGS)
    player = Player(AutoRefresh())
    for frame in frames:
        row = _photo_row(frame.image, recognizer, player)
        yield {"at_s": round(frame.at_s, 3), "shown": frame.object_id or "", **row}


def _photo_row(image: Pixels, recognizer: ObjectRecognizer, player: Player) -> Row:
    """The steps of an edge for a photo, with and without the cache; CPU time of each is measured."""
    times: dict[str, float] = {}

    def timed(name: str, step: Callable[[], T]) -> T:
        started = time.thread_time()
        result = step()
        times[name] = round((time.thread_time() - started) * 1e3, 4)
        return result

    _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    jpeg, limits = data.tobytes(), _SETTINGS.limits
    large = timed("decode_ms", lambda: load_image(jpeg, limits))
    features = timed("extract_ms", lambda: extract_features(large, _SETTINGS.query_features))
    found = timed("recognize_ms", lambda: recognizer.recognize(features)).found
    answered = found.object_id if found is not None else ""
    small = timed("small_ms", lambda: load_image(jpeg, KEY_LIMITS)).pixels
    colour = np.asarray(cv2.imdecode(data, cv2.IMREAD_REDUCED_COLOR_8), np.uint8)
    layout = _OF_PIXELS[LAYOUT]
    looked_up = timed("layout_ms", lambda: layout.within("museum", "1", "visitor")(small))
    timed("features_ms", lambda: _OF_FEATURES[FEATURES](features))
    timed("cache_ms", lambda: player.lookup(Photo("", answered, looked_up)))
    keys = {name: kind(small) for name, kind in _OF_PIXELS.items()}
    keys |= {name: kind(features) for name, kind in _OF_FEATURES.items()}
    keys[COLOUR] = layout(colour)
    numbers = _NUMBERS.describe(small)
    return {
        "answered": answered,
        **{name: " ".join(key.hex()[:_DIGITS] for key in keys[name]) for name in KINDS},
        "numbers": " ".join(map(str, numbers[0])) if numbers is not None else "",
        **times,
    }


@dataclass(frozen=True, slots=True)
class Photo:
    """A row's content for one kind of keys."""

    shown: str
    """The exhibit; empty for a wall."""
    answered: str
    """Answer of the recogniser; empty: unknown."""
    keys: tuple[Hashable, ...]
    visitor: str = ""
    """Identifies who shares results."""
    views_share_results: bool = True
    """Whether all views of an object share one result."""


Stream = list[Photo]
"""The photos of one visitor, in order of time."""


def streams(rows: Iterable[StoredRow], kind: str, every: int = 1, *, shared: bool = False) -> list[Stream]:
    """The photos of each visitor, or each n-th of them.

    Parameters
    ----------
    rows : iterable of rows
        Rows of `photo_rows`, with their cell.
    kind : str
        Kind of keys, one of `KINDS`.
    every : int
        Keep every n-th photo.
    shared : bool
        Whether visitors share keys; else each visitor has its own.
    """
    found: dict[str, Stream] = {}
    for row in rows:
        visitor = "" if shared else row["cell"]
        keys = tuple((visitor, key) for key in row[kind].split())
        photo = Photo(row["shown"], row["answered"], keys, visitor, kind not in _OF_FEATURES)
        found.setdefault(row["cell"], []).append(photo)
    return [photos[::every] for photos in found.values()]


class Player:
    """A result cache for photos; the recogniser runs on a miss. Unknown photos are not cached."""

    def __init__(self, refresh: Refresh) -> None:
        self._cache: ViewCache[str] = ViewCache(refresh, _SIZE)

    def lookup(self, photo: Photo) -> str | None:
        """Return the cached result; None if the recogniser must run, whose result is then learned."""
        key, entry = self._cache.find(photo.keys, 0.0)
        if entry is not None:
            return entry.value
        if key is not None and photo.answered:
            shown = ObjectKey(photo.visitor, photo.answered) if photo.views_share_results else None
            self._cache.learn(photo.keys, key, shown, photo.answered, 0.0)
        elif key is not None:
            self._cache.results.contradict(key)
        return None


@dataclass(frozen=True, slots=True)
class Played:
    """Counts of photos and their outcomes."""

    photos: int
    served: int
    wrong: int
    """Number of photos with a served result other than the shown exhibit."""
    disagreed: int
    """Number of photos with a served result other than the recogniser's, which may be unknown."""

    def shares(self) -> dict[str, float]:
        """Served share of all photos; wrong and disagreeing shares of the served ones."""
        served = max(1, self.served)
        return {
            "served": round(self.served / max(1, self.photos), 4),
            "wrong": round(self.wrong / served, 4),
            "disagreed": round(self.disagreed / served, 4),
        }


def lookups(photos: Sequence[Stream], refresh: Refresh) -> Iterator[tuple[Photo, str | None]]:
    """Look up the photos of all visitors in one cache, visitor by visitor; pairs of photo and result."""
    player = Player(refresh)
    return ((photo, player.lookup(photo)) for of_visitor in photos for photo in of_visitor)


def play(photos: Sequence[Stream], refresh: Refresh) -> Played:
    """Count the outcomes for the photos of all visitors."""
    return _count(lookups(photos, refresh))


def _count(lookups: Iterable[tuple[Photo, str | None]]) -> Played:
    photos = served = wrong = disagreed = 0
    for photo, value in lookups:
        photos += 1
        if value is not None:
            served += 1
            wrong += value != photo.shown
            disagreed += value != photo.answered
    return Played(photos, served, wrong, disagreed)


def similarity(rows: Sequence[StoredRow], share: float) -> tuple[Played, float]:
    """Similarity caching with the distance that serves this share of the photos.

    The answer is that of the nearest photo, by the unrounded layout, that the recogniser has processed, from
    any visitor. A photo that is farther from all of these is recognised and stored. Results are never
    verified.

    Returns
    -------
    Played
        Counts of the photos.
    float
        The distance.
    """
    photos = [Photo(row["shown"], row["answered"], ()) for row in rows]
    steps = [[float(one) for one in row["numbers"].split()] or [np.inf] * 21 for row in rows]
    numbers = np.array(steps, np.float32) * _STEP_OF_NUMBERS
    low, high = 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        served = _count(_nearest(photos, numbers, middle)).served
        low, high = (low, middle) if served >= share * len(photos) else (middle, high)
    return _count(_nearest(photos, numbers, high)), high


def _nearest(
    photos: Sequence[Photo], numbers: NDArray[np.float32], reach: float
) -> Iterator[tuple[Photo, str | None]]:
    kept, values = np.empty_like(numbers), list[str]()
    for photo, place in zip(photos, numbers, strict=True):
        if values and np.isfinite(place[0]):
            distances = np.square(kept[: len(values)] - place).sum(axis=1)
            nearest = int(distances.argmin())
            if distances[nearest] <= reach * reach:
                yield photo, values[nearest]
                continue
        if photo.answered and np.isfinite(place[0]):
            kept[len(values)] = place
            values.append(photo.answered)
        yield photo, None
