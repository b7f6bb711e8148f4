"""What the twin needs to know of each photo of a trace, measured with the real pipeline.

A photo is looked up among its own object and some others, with as many features as a device may extract, the
fewest first; once as an edge does it, and once as the cloud. Among so many objects as a device or an edge
holds: whether it is found hardly depends on how many they are, unless they are very few.

How long a lookup takes depends on the photo as much as on the cache: by a factor of two around the mean,
the same at every repetition (on the testbed, an edge's times for the same photo differ by 5 %). Visitors who
stand before the same object send the same few photos, so the median of a session is that of a few photos.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearsight.common.caching.device_profile import DeviceProfile
from nearsight.common.caching.profile import CacheProfile
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.looks import quick_look, recognize_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.simulation.photos import NEVER, TwinPhoto

_NEAR, _WIDE = 33, 132
"""Objects among which a device looks, and an edge; more if the photos show more."""
_TIMES = 3
_LEAST_EFFORT, _MOST_EFFORT = 0.2, 5.0


@dataclass(frozen=True, slots=True)
class Usual:
    """What lookups of this machine usually take."""

    device: DeviceProfile
    edge: CacheProfile


def measure_photos(
    photos: Mapping[Path, str],
    models: Iterable[ObjectModel],
    feature_counts: Sequence[int],
    settings: RecognitionSettings,
    usual: Usual | None = None,
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
    usual : Usual, optional
        With what the times are compared; without it, all photos are as hard as any.
    """
    book = _Book(photos, models, feature_counts, settings, usual)
    return {path: book.measure(path, object_id) for path, object_id in photos.items()}


@dataclass(frozen=True, slots=True)
class _Looked:
    """One look at a photo; CPU time, the least of a few looks."""

    known: bool
    extraction_ms: float
    lookup_ms: float


class _Book:
    """Recognizers, and what is expected of them."""

    def __init__(
        self,
        photos: Mapping[Path, str],
        models: Iterable[ObjectModel],
        feature_counts: Sequence[int],
        settings: RecognitionSettings,
        usual: Usual | None,
    ) -> None:
        shown = frozenset(photos.values())
        ordered = sorted(models, key=lambda model: model.object_id not in shown)
        near, wide = (ordered[: max(size, len(shown - {""}))] for size in (_NEAR, _WIDE))
        self._near = ObjectRecognizer.build(near, settings)
        self._wide = ObjectRecognizer.build(wide, settings)
        self._counts = feature_counts
        self._settings = settings
        self._extractor = OrbExtractor(settings.fast_threshold)
        self._usual = usual
        self._times = _TIMES if usual is not None else 1

    def measure(self, path: Path, object_id: str) -> TwinPhoto:
        """All that is wanted of one photo."""
        content = path.read_bytes()
        if not object_id:
            return TwinPhoto("", len(content), NEVER, at_second_look=False)
        looks = {count: self._look(content, object_id, self._near, count) for count in self._counts}
        tier = self._look(content, object_id, self._wide, self._counts[-1])
        known_with = [count for count in self._counts[:-1] if looks[count].known]
        known_with += [self._counts[-1]] if tier.known else []
        least = known_with[0] if known_with else NEVER
        return TwinPhoto(
            object_id,
            len(content),
            float(least),
            tier.known or self._is_known_again(content, object_id),
            frozenset(count for count in self._counts if count > least) - frozenset(known_with),
            self._device_efforts(looks),
            self._tier_effort(tier),
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
            known = found is not None and found.object_id == object_id
        extraction_s, lookup_s = (min(parts) for parts in zip(*times, strict=True))
        return _Looked(known, extraction_s * 1e3, lookup_s * 1e3)

    def _is_known_again(self, content: bytes, object_id: str) -> bool:
        found = recognize_image(content, self._wide, self._extractor).found
        return found is not None and found.object_id == object_id

    def _device_efforts(self, looks: Mapping[int, _Looked]) -> tuple[tuple[int, float], ...]:
        if self._usual is None:
            return ()
        k = len(self._near)
        return tuple(
            (
                curves.query_features,
                _effort(
                    looks[curves.query_features].extraction_ms + looks[curves.query_features].lookup_ms,
                    float(curves.lookup_ms[k]),
                ),
            )
            for curves in self._usual.device.curves(k)
            if curves.query_features in looks and looks[curves.query_features].known
        )

    def _tier_effort(self, tier: _Looked) -> float:
        if self._usual is None or not tier.known:
            return 1.0
        k = len(self._wide)
        return _effort(tier.lookup_ms, float(self._usual.edge.curves(k).lookup_ms[k]))


def _effort(spent_ms: float, usual_ms: float) -> float:
    return round(min(_MOST_EFFORT, max(_LEAST_EFFORT, spent_ms / max(0.01, usual_ms))), 4)
