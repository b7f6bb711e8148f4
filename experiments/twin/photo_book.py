"""Measures the properties of each photo of a trace for the twin, with the real pipeline.

A photo is looked up as a device does it, with each number of features that it may extract, in ascending
order; as an edge does it; and as the cloud does it.

The time of a lookup depends on the photo as much as on the cache: by a factor of two around the mean, the
same at every repetition (on the testbed, an edge's times for the same photo differ by 5 %). It also depends
on the other objects: a similar object costs a round of verification. Photos are therefore looked up among the
objects that edge and device will hold, in their order. Visitors in front of the same object send the same few
photos, so the median of a session is that of a few photos.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.extraction import extract_features, side_px_for
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, recognize_image
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.experiments.twin.cost_model import SECOND_LOOK_MS, lookups_ms
from nearsight.experiments.twin.photos import NEVER, Effort, TwinPhoto

_TIMES = 3
_LEAST_EFFORT, _MOST_EFFORT = 0.1, 10.0
_FOR_PACE = 16


@dataclass(frozen=True, slots=True)
class TypicalTimes:
    """Typical times of lookups, and the objects that tiers hold during a session."""

    device: DeviceProfile
    edge: CacheProfile
    cached: tuple[str, ...]
    """Objects that an edge holds."""
    held: Mapping[str, tuple[str, ...]]
    """For each object, the objects that a device holds when it looks up a photo of it."""
    photos: Mapping[Path, str]
    """Some photos and their objects, the same for all sessions. They measure the pace of the machine, which
    must not become a property of other photos."""


def pace_photos(photos: Mapping[Path, str]) -> dict[Path, str]:
    """A regular sample of an exhibition's photos, for `TypicalTimes.photos`."""
    return {path: photos[path] for path in list(photos)[:: max(1, len(photos) // _FOR_PACE)]}


def measure_photos(
    photos: Mapping[Path, str],
    models: Iterable[ObjectModel],
    feature_counts: Sequence[int],
    settings: RecognitionSettings,
    usual: TypicalTimes | None = None,
    thread_time: Callable[[], float] = time.thread_time,
) -> dict[Path, TwinPhoto]:
    """Measure every photo.

    Parameters
    ----------
    photos : mapping of Path to str
        File → object that it shows; empty: none of the catalogue.
    models : iterable of ObjectModel
        The catalogue, or at least the objects on the photos.
    feature_counts : sequence of int
        Ascending; the last is the number that edges extract.
    settings : RecognitionSettings
        The pipeline.
    usual : TypicalTimes, optional
        Without it, all photos are looked up among all models, and all have the same effort.
    thread_time : callable
        CPU time of this thread [s].
    """
    by_id = {model.object_id: model for model in models}
    book = _PhotoMeasurements(by_id, feature_counts, settings, usual, thread_time)
    found: dict[Path, TwinPhoto] = {}
    # Each round measures all photos, so that changes of the machine's speed affect all alike.
    for _ in range(_TIMES if usual is not None else 1):
        book.measure_pace()
        found = {path: book.measure(path, object_id) for path, object_id in photos.items()}
    return found


@dataclass(frozen=True, slots=True)
class _LookupTimes:
    """Lookups of one kind for a photo: whether it was recognised, and the minimum CPU times [ms]."""

    known: bool
    extraction_ms: float
    lookup_ms: float


class _PhotoMeasurements:
    """Recognizers, and the measurements so far."""

    def __init__(
        self,
        models: Mapping[str, ObjectModel],
        feature_counts: Sequence[int],
        settings: RecognitionSettings,
        usual: TypicalTimes | None,
        thread_time: Callable[[], float],
    ) -> None:
        self._models = models
        self._counts = feature_counts
        self._settings = settings
        self._usual = usual
        self._thread_time = thread_time
        self._built: dict[tuple[str, ...], ObjectRecognizer] = {}
        self._seen: dict[tuple[Path, tuple[str, ...], int], _LookupTimes] = {}
        self._full = tuple(models)
        self._cached = usual.cached if usual is not None else self._full
        self._uncached = tuple(name for name in models if name not in set(self._cached))
        self._pace = 1.0

    def measure_pace(self) -> None:
        """Measure the pace: times of this machine now over those of the profile."""
        if self._usual is None or not self._usual.photos:
            return
        looks = [
            self._look(path, name, self._cached, self._counts[-1])
            for path, name in self._usual.photos.items()
        ]
        self._pace = fmean(one.extraction_ms for one in looks) / self._usual.edge.extraction_ms

    def measure(self, path: Path, object_id: str) -> TwinPhoto:
        """All properties of one photo, after one more lookup of each kind."""
        most, near, cached = self._counts[-1], self._device_objects(object_id), self._edge_objects(object_id)
        looks = {count: self._look(path, object_id, near, count) for count in self._counts}
        tier = self._look(path, object_id, cached, most)
        known_with = [count for count in self._counts[:-1] if looks[count].known]
        known_with += [most] if tier.known else []
        least = known_with[0] if known_with else NEVER
        again = _LookupTimes(True, 0.0, 0.0) if tier.known else self._second_look(path, object_id)
        photo = TwinPhoto(
            object_id,
            path.stat().st_size,
            least_features=float(least),
            at_second_look=again.known,
            missed_with=frozenset(count for count in self._counts if count > least) - frozenset(known_with),
        )
        if self._usual is None:
            return photo
        edge = self._usual.edge
        return replace(
            photo,
            device_efforts=tuple(
                (profile.query_features, self._effort(path, object_id, look, near, profile))
                for profile in self._usual.device.profiles
                if (look := looks.get(profile.query_features)) is not None
            ),
            tier_effort=self._effort(path, object_id, tier, cached, edge),
            second_effort=1.0 if tier.known else self._second_effort(again, edge),
        )

    def _effort(
        self, path: Path, object_id: str, look: _LookupTimes, names: tuple[str, ...], profile: CacheProfile
    ) -> Effort:
        missed = look
        strangers = [name for name in self._uncached if name != object_id]
        if look.known and strangers:
            missed = self._look(path, "", tuple(strangers[: len(names)]), profile.query_features)
        usual_ms = self._pace * float(lookups_ms(profile, len(names))[-1])
        return Effort(
            _within(look.extraction_ms / (self._pace * profile.extraction_ms)),
            _within(look.lookup_ms / usual_ms) if look.known else 1.0,
            None if missed.known else _within(missed.lookup_ms / usual_ms),
        )

    def _second_effort(self, look: _LookupTimes, edge: CacheProfile) -> float:
        first_ms = float(lookups_ms(edge, len(self._full))[-1]) + edge.extraction_ms
        return _within(look.lookup_ms / (self._pace * (first_ms + SECOND_LOOK_MS)))

    def _edge_objects(self, object_id: str) -> tuple[str, ...]:
        """Objects that an edge holds after a request for this object."""
        new = object_id in self._models and object_id not in self._cached
        return (*self._cached, object_id) if new else self._cached

    def _device_objects(self, object_id: str) -> tuple[str, ...]:
        """Objects that a device holds when it looks up this object; for an unknown object, any such set."""
        held = self._usual.held if self._usual is not None else {}
        return held.get(object_id) or next(iter(held.values()), self._cached)

    def _recognizer_for(self, names: tuple[str, ...]) -> ObjectRecognizer:
        if names not in self._built:
            self._built[names] = ObjectRecognizer.build(
                [self._models[name] for name in names], self._settings
            )
        return self._built[names]

    def _look(self, path: Path, object_id: str, names: tuple[str, ...], count: int) -> _LookupTimes:
        settings, recognizer, content = self._settings, self._recognizer_for(names), path.read_bytes()
        limits = replace(settings.limits, longest_side=side_px_for(count, settings))
        started_s = self._thread_time()
        features = extract_features(load_image(content, limits), count, settings.fast_threshold)
        extracted_s = self._thread_time()
        found = recognizer.recognize(features).found
        lookup_ms = (self._thread_time() - extracted_s) * 1e3
        known = bool(object_id) and found is not None and found.object_id == object_id
        return self._keep_minimum(
            (path, names, count), _LookupTimes(known, (extracted_s - started_s) * 1e3, lookup_ms)
        )

    def _second_look(self, path: Path, object_id: str) -> _LookupTimes:
        """Look up a photo as the cloud does; ``lookup_ms`` is the whole time."""
        recognizer, content = self._recognizer_for(self._full), path.read_bytes()
        started_s = self._thread_time()
        found = recognize_image(content, recognizer).found
        spent_ms = (self._thread_time() - started_s) * 1e3
        known = bool(object_id) and found is not None and found.object_id == object_id
        return self._keep_minimum((path, self._full, 0), _LookupTimes(known, 0.0, spent_ms))

    def _keep_minimum(self, kind: tuple[Path, tuple[str, ...], int], look: _LookupTimes) -> _LookupTimes:
        before = self._seen.get(kind, look)
        self._seen[kind] = _LookupTimes(
            before.known,
            min(before.extraction_ms, look.extraction_ms),
            min(before.lookup_ms, look.lookup_ms),
        )
        return self._seen[kind]


def _within(effort: float) -> float:
    return round(min(_MOST_EFFORT, max(_LEAST_EFFORT, effort)), 4)
