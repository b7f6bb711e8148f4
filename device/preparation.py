"""What happens to a photo before a tier is asked: a lookup on the device, then the form for the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nearsight.common.clock import Clock
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.offloading import Extracted, Offloading
from nearsight.device.prefetching.profiler import DeviceProfiler
from nearsight.device.prefetching.snapshots import LocalCache, LocalSnapshot
from nearsight.device.query import Photo, Query, QuerySource
from nearsight.device.recognition import TierAnswer
from nearsight.device.recognizer_settings import UploadSettings

DEVICE = "device"


class Preparation:
    """Looks a photo up; if the device does not know it, makes it ready for a tier. Runs on the pool.

    Parameters
    ----------
    cache : LocalCache
        What the device recognises by itself.
    profiler : DeviceProfiler
        Told how long lookups take.
    offloading : Offloading
        Chooses the form.
    extractor : FeatureExtractor
        Makes the features.
    upload : UploadSettings
        Limits of images.
    recognition : RecognitionSettings
        Size of processed images, of which `side_px_for` takes a part.
    clock : Clock
        Measures lookups.
    next_tier : callable
        Name of the tier that will be asked first.
    recognized : callable
        Told about every object that the device found, and in which features; must be quick.
    """

    def __init__(  # noqa: PLR0913, PLR0917  one place wires it, by name
        self,
        cache: LocalCache,
        profiler: DeviceProfiler,
        offloading: Offloading,
        extractor: FeatureExtractor,
        upload: UploadSettings,
        recognition: RecognitionSettings,
        clock: Clock,
        next_tier: Callable[[], str],
        recognized: Callable[[RecognizedObject, Features], None],
    ) -> None:
        self._cache = cache
        self._profiler = profiler
        self._offloading = offloading
        self._extractor = extractor
        self._upload = upload
        self._recognition = recognition
        self._clock = clock
        self._next_tier = next_tier
        self._recognized = recognized

    def __call__(self, source: QuerySource) -> Query | TierAnswer:
        """Recognise the photo, or make it a question.

        Raises
        ------
        InvalidImage, ImageTooLarge, NotFound
            If this is no image that can be used.
        """
        snapshot = self._cache.snapshot
        if isinstance(source, Features):
            features = source.strongest(snapshot.query_features)
            found = self._looked_up(snapshot, features) if snapshot else None
            if found is not None:
                return self._answer(found, features)
            return Query(source, looked_at=features, looked_for=snapshot.names) if snapshot else Query(source)
        photo = Photo(source, self._upload)
        extracted = None
        if snapshot:
            started_s = self._clock.monotonic()
            count = snapshot.query_features
            pixels = photo.gray(self._recognition.side_px_for(count))
            extracted = Extracted(self._extractor.extract(pixels, count), count)
            found = self._looked_up(snapshot, extracted.features)
            spent_ms = (self._clock.monotonic() - started_s) * 1e3
            self._profiler.observe_lookup(len(snapshot), snapshot.query_features, spent_ms)
            if found is not None:
                return self._answer(found, extracted.features)
        query = self._offloading.query(self._next_tier(), photo, extracted)
        if extracted is None:
            return query
        return replace(query, looked_at=extracted.features, looked_for=snapshot.names)

    def _looked_up(self, snapshot: LocalSnapshot, features: Features) -> RecognizedObject | None:
        return self._cache.lookup(snapshot, features)

    def _answer(self, found: RecognizedObject, features: Features) -> TierAnswer:
        self._recognized(found, features)
        return TierAnswer(found, DEVICE)
