"""In which form a photo goes to a tier: as an image or as features, whichever is answered sooner.

After a miss on the device the features are there already. Those of a lookup with few features would cost
recall on the tier, which expects ``query_features`` of its own: then the missing ones count as time to spend.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from nearsight.common.caching.link_estimate import LinkEstimate
from nearsight.common.caching.offload_choice import (
    FEATURES,
    IMAGE,
    OffloadChoice,
    OffloadDecision,
    Payload,
)
from nearsight.common.clock import Clock
from nearsight.common.recognition.extraction import FeatureExtractor
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Hop
from nearsight.device.query import Photo, Query

_RECEIVER_MS = ((IMAGE, 8.0), (FEATURES, 6.0))
_BYTES_PER_FEATURE = 38
_NEWEST_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Extracted:
    """Features of a photo, and how many were asked for: a blank wall has fewer than that."""

    features: Features
    asked_for: int


class _Mean:
    """Exponentially weighted mean."""

    def __init__(self, first: float) -> None:
        self.value = first

    def observe(self, value: float) -> None:
        if 0 <= value < math.inf:
            self.value += _NEWEST_WEIGHT * (value - self.value)


class Offloading:
    """Chooses the form for each photo and tier; learns from the answers. Thread-safe.

    Parameters
    ----------
    tiers : iterable of str
        Names of the tiers.
    extractor : FeatureExtractor
        Makes features where they are chosen and not there yet.
    settings : RecognitionSettings
        The number of features that tiers expect, and the size of processed images.
    clock : Clock
        Measures what encoding and extraction take.
    """

    def __init__(
        self, tiers: Iterable[str], extractor: FeatureExtractor, settings: RecognitionSettings, clock: Clock
    ) -> None:
        self._extractor = extractor
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._choices = {tier: OffloadChoice(LinkEstimate(), dict(_RECEIVER_MS)) for tier in tiers}
        self._encode_ms, self._image_bytes = _Mean(3.0), _Mean(40_000.0)
        self._extract_ms = _Mean(10.0)
        self._last: dict[str, OffloadDecision] = {}

    def why(self) -> dict[str, str]:
        """The last choice for each tier, for a person."""
        with self._lock:
            return {tier: decision.why for tier, decision in self._last.items()}

    def query(self, tier: str, photo: Photo, extracted: Extracted | None) -> Query:
        """The question for a tier in the form that is expected to be answered sooner.

        Raises
        ------
        InvalidImage, ImageTooLarge
            If this is no image that can be used.
        """
        complete = len(extracted.features) if extracted is not None and self._complete(extracted) else None
        decision = self.choose(tier, len(photo.file) if photo.file is not None else None, complete)
        started_s = self._clock.monotonic()
        if decision.form == IMAGE:
            query = photo.as_image()
            if photo.file is None:
                self._note_encoding(query, (self._clock.monotonic() - started_s) * 1e3)
            return query
        if extracted is not None and complete is not None:
            return Query(extracted.features, otherwise=photo.as_image)
        features = self._extractor.extract(self._pixels(photo), self._settings.query_features)
        self.note_extraction((self._clock.monotonic() - started_s) * 1e3)
        return Query(features, otherwise=photo.as_image)

    def note_extraction(self, spent_ms: float) -> None:
        """Features that were not there took this time."""
        with self._lock:
            self._extract_ms.observe(spent_ms)

    def observe(self, tier: str, form: str, sent_bytes: int, round_trip_ms: float, hop: Hop | None) -> None:
        """A tier answered; ``hop`` is what it says that it spent."""
        if hop is None:
            return
        at_tier_ms = hop.queue_ms + hop.compute_ms + hop.next_tier_ms
        with self._lock:
            self._choices[tier].observe(form, sent_bytes, round_trip_ms - at_tier_ms, hop.compute_ms)

    def observe_outcome(self, tier: str, *, unknown: bool, behind_ms: float) -> None:
        """What became of a photo: see `OffloadChoice.observe_outcome`."""
        with self._lock:
            self._choices[tier].observe_outcome(unknown=unknown, behind_ms=behind_ms)

    def choose(self, tier: str, file_bytes: int | None, features: int | None) -> OffloadDecision:
        """The form that is expected to be answered sooner.

        Parameters
        ----------
        tier : str
            Who will be asked.
        file_bytes : int or None
            Of a photo that is ready as a file; None: it must be encoded.
        features : int or None
            How many features there are already, if as many as tiers expect; None: they must be extracted.
        """
        count = self._settings.query_features if features is None else features
        with self._lock:
            image = Payload(
                IMAGE,
                file_bytes if file_bytes is not None else round(self._image_bytes.value),
                0.0 if file_bytes is not None else self._encode_ms.value,
            )
            extract_ms = 0.0 if features is not None else self._extract_ms.value
            payload = Payload(FEATURES, count * _BYTES_PER_FEATURE, extract_ms)
            decision = self._choices[tier].choose([image, payload])
            self._last[tier] = decision
        return decision

    def _complete(self, extracted: Extracted) -> bool:
        return extracted.asked_for >= self._settings.query_features

    def _pixels(self, photo: Photo) -> GrayImage:
        return photo.gray(self._settings.limits.longest_side)

    def _note_encoding(self, query: Query, spent_ms: float) -> None:
        with self._lock:
            self._encode_ms.observe(spent_ms)
            if isinstance(query.content, bytes):
                self._image_bytes.observe(len(query.content))
