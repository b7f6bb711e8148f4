"""What the twin needs to know of each photo of a trace, measured with the real pipeline.

A photo is looked up among its own object and some others, with as many features as a device may extract, the
fewest first; once as an edge does it, and once as the cloud. Among so many objects as a device or an edge
holds: whether it is found hardly depends on how many they are, unless they are very few.

How long a lookup takes depends on the photo as much as on the cache: by a factor of two around the mean,
the same at every repetition (on the testbed, an edge's times for the same photo differ by 5 %). Visitors who
stand before the same object send the same few photos, so the median of a session is that of a few photos.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.looks import quick_look, recognize_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.simulation.photos import NEVER, Effort, TwinPhoto

_NEAR, _WIDE = 33, 132
"""Objects among which a device looks, and an edge; more if the photos show more."""
_TIMES = 5
_LEAST_EFFORT, _MOST_EFFORT = 0.1, 10.0


def measure_photos(
    photos: Mapping[Path, str],
    models: Iterable[ObjectModel],
    feature_counts: Sequence[int],
    settings: RecognitionSettings,
    usual: Mapping[Path, str] | None = None,
) -> dict[Path, TwinPhoto]:
    """Look at every photo.

    Parameters
    ----------
    photos : mapping of Path to str
        File → object that it shows; empty: none of the catalogue.
    models : iterable of ObjectModel
        The catalogue, or at least the objects on the photos.
    feature_counts : sequence of int
        Rising; the last is what edges extract.
    settings : RecognitionSettings
        The pipeline.
    usual : mapping of Path to str, optional
        Photos with which the times are compared, the same whenever photos of one museum are measured, so that
        the pace of the machine does not count. Without them, all photos are as hard as any.
    """
    book = _Book(photos, models, feature_counts, settings, usual or {})
    if usual:
        book.compare_with(usual)
    return {path: book.measure(path, object_id) for path, object_id in photos.items()}


@dataclass(frozen=True, slots=True)
class _Looked:
    """One look at a photo; CPU time, the least of a few looks."""

    known: bool
    extraction_ms: float
    lookup_ms: float


@dataclass(frozen=True, slots=True)
class _UsualTimes:
    """Means [ms]: of devices per number of features, with extraction and not; of edges; of second looks."""

    device_ms: Mapping[int, float]
    device_lookup_ms: Mapping[int, float]
    tier_lookup_ms: float
    second_ms: float


class _Book:
    """Recognizers, and what is expected of them."""

    def __init__(
        self,
        photos: Mapping[Path, str],
        models: Iterable[ObjectModel],
        feature_counts: Sequence[int],
        settings: RecognitionSettings,
        usual: Mapping[Path, str],
    ) -> None:
        shown = frozenset((*photos.values(), *usual.values()))
        catalogue = list(models)
        ordered = sorted(catalogue, key=lambda model: model.object_id not in shown)
        strangers = [model for model in catalogue if model.object_id not in shown]

        def of(some: Sequence[ObjectModel], most: int) -> ObjectRecognizer:
            return ObjectRecognizer.build(some[:most], settings)

        showing = sum(model.object_id in shown for model in catalogue)
        self._near, self._wide = (of(ordered, max(size, showing)) for size in (_NEAR, _WIDE))
        self._near_strangers, self._wide_strangers = (of(strangers, size) for size in (_NEAR, _WIDE))
        self._full = of(catalogue, len(catalogue))
        self._counts = feature_counts
        self._settings = settings
        self._extractor = OrbExtractor(settings.fast_threshold)
        self._times = _TIMES if usual else 1
        self._usual: _UsualTimes | None = None

    def compare_with(self, photos: Mapping[Path, str]) -> None:
        """Look at photos that say what is usual."""
        contents = [(path.read_bytes(), object_id) for path, object_id in photos.items()]
        looks = {
            count: [self._look(content, name, self._near, count) for content, name in contents]
            for count in self._counts
        }
        tier = [self._look(content, name, self._wide, self._counts[-1]) for content, name in contents]
        self._usual = _UsualTimes(
            {
                count: _mean(one.extraction_ms + one.lookup_ms for one in some)
                for count, some in looks.items()
            },
            {count: _mean(one.lookup_ms for one in some) for count, some in looks.items()},
            _mean(one.lookup_ms for one in tier),
            _mean(self._second_look(content, name, self._wide_strangers)[1] for content, name in contents),
        )

    def measure(self, path: Path, object_id: str) -> TwinPhoto:
        """All that is wanted of one photo."""
        content, most = path.read_bytes(), self._counts[-1]
        looks = {count: self._look(content, object_id, self._near, count) for count in self._counts}
        tier = self._look(content, object_id, self._wide, most)
        known_with = [count for count in self._counts[:-1] if looks[count].known]
        known_with += [most] if tier.known else []
        least = known_with[0] if known_with else NEVER
        again, second_effort = True, 1.0
        if not tier.known:
            again, second_ms = self._second_look(content, object_id, self._full)
            second_effort = _effort(second_ms, self._usual.second_ms) if self._usual is not None else 1.0
        return TwinPhoto(
            object_id,
            len(content),
            float(least),
            again,
            frozenset(count for count in self._counts if count > least) - frozenset(known_with),
            self._device_efforts(content, looks),
            self._tier_effort(content, tier),
            second_effort,
        )

    def _look(self, content: bytes, object_id: str, recognizer: ObjectRecognizer, count: int) -> _Looked:
        settings = self._settings
        limits = replace(settings.limits, longest_side=quick_look(settings, count).longest_side)
        known, times = False, []
        for _ in range(self._times):
            started_s = time.thread_time()
            features = self._extractor.extract(load_image(content, limits), count)
            extracted_s = time.thread_time()
            found = recognizer.recognize(features).found
            times.append((extracted_s - started_s, time.thread_time() - extracted_s))
            known = bool(object_id) and found is not None and found.object_id == object_id
        extraction_s, lookup_s = (min(parts) for parts in zip(*times, strict=True))
        return _Looked(known, extraction_s * 1e3, lookup_s * 1e3)

    def _second_look(
        self, content: bytes, object_id: str, recognizer: ObjectRecognizer
    ) -> tuple[bool, float]:
        """Whether the photo is known after all, and how long that takes [ms]."""
        known, spent_ms = False, math.inf
        for _ in range(self._times // 2 + 1):
            started_s = time.thread_time()
            found = recognize_image(content, recognizer, self._extractor).found
            spent_ms = min(spent_ms, (time.thread_time() - started_s) * 1e3)
            known = bool(object_id) and found is not None and found.object_id == object_id
        return known, spent_ms

    def _device_efforts(self, content: bytes, looks: Mapping[int, _Looked]) -> tuple[tuple[int, Effort], ...]:
        if self._usual is None:
            return ()
        found = []
        for count, look in looks.items():
            spent_ms, usual_ms = look.extraction_ms + look.lookup_ms, self._usual.device_ms[count]
            missed = self._missed(content, self._near_strangers, count, self._usual.device_lookup_ms[count])
            found.append((count, Effort(_effort(spent_ms, usual_ms) if look.known else 1.0, missed)))
        return tuple(found)

    def _tier_effort(self, content: bytes, tier: _Looked) -> Effort:
        if self._usual is None:
            return Effort()
        usual_ms = self._usual.tier_lookup_ms
        found = _effort(tier.lookup_ms, usual_ms) if tier.known else 1.0
        return Effort(found, self._missed(content, self._wide_strangers, self._counts[-1], usual_ms))

    def _missed(
        self, content: bytes, strangers: ObjectRecognizer, count: int, usual_ms: float
    ) -> float | None:
        if not strangers:
            return None
        return _effort(self._look(content, "", strangers, count).lookup_ms, usual_ms)


def _mean(times_ms: Iterable[float]) -> float:
    return statistics.fmean(times_ms)


def _effort(spent_ms: float, usual_ms: float) -> float:
    return round(min(_MOST_EFFORT, max(_LEAST_EFFORT, spent_ms / max(0.01, usual_ms))), 4)
