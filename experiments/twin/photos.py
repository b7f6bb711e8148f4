"""Photos of the twin: size, and effort that their recognition needs.

A photo is easy or hard for all tiers alike. The effort is therefore a property of the photo. It is measured
(`photo_book.py`) or drawn once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, cast

import numpy as np

from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.results import RecognitionResult, RecognizedObject
from nearsight.common.recognition.settings import RecognitionSettings

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Effort:
    """Time that a lookup of this photo takes, relative to a typical photo.

    A clear photo is found with its first few features. A hard photo needs all features and several
    candidates.
    """

    extraction: float = 1.0
    """Extraction of features, decoding included."""
    found: float = 1.0
    """Lookup if its object is present."""
    missed: float | None = None
    """Lookup if its object is not present, relative to the lookup of a typical photo that is found: all
    candidates are verified, in every round. None: as for a typical photo."""


AS_ANY_PHOTO = Effort()


@dataclass(frozen=True, slots=True)
class TwinPhoto:
    """One photo."""

    object_id: str
    """Object on the photo; empty if it is not in the catalogue."""
    size_bytes: int
    """Size of the file [bytes]."""
    least_features: float
    """Smallest number of features with which it is recognised at first look; inf: never."""
    at_second_look: bool
    """Whether the cloud recognises it at the second look at the latest."""
    missed_with: frozenset[int] = frozenset()
    """Larger numbers of features with which it is still not recognised. Fewer features are extracted from a
    smaller image, which sometimes gives better features."""
    device_efforts: tuple[tuple[int, Effort], ...] = ()
    """Effort for devices, as (number of features, effort)."""
    tier_effort: Effort = AS_ANY_PHOTO
    """Effort for edge and cloud."""
    second_effort: float = 1.0
    """Time of the cloud's second look, relative to a typical photo."""
    keys: tuple[bytes, ...] = ()
    """Keys in result caches; without keys, the photo equals no other photo."""

    def device_effort(self, features: int) -> Effort:
        """Effort with this number of features."""
        return next((effort for count, effort in self.device_efforts if count == features), AS_ANY_PHOTO)

    def recognised_with(self, features: int) -> bool:
        """Whether it is recognised at first look with this number of features."""
        return self.least_features <= features and features not in self.missed_with


class PhotoSource(Protocol):
    """Source of the photos of generated visitors."""

    def photo(self, object_id: str) -> TwinPhoto:
        """A photo of an object, or of an unknown object for an empty id."""


class PhotoMaker:
    """Draws photos with the recall of a profile; a profile has no single photos, so all have the same effort.

    Parameters
    ----------
    recall : sequence of (features, recall)
        Recall at first look by number of features, in ascending order.
    second_look : float
        Recall of the cloud.
    size_bytes : (float, float)
        Median size of a file [bytes], and the standard deviation of its logarithm.
    rng : Generator
    """

    def __init__(
        self,
        recall: Sequence[tuple[int, float]],
        second_look: float,
        size_bytes: tuple[float, float],
        rng: np.random.Generator,
    ) -> None:
        self._recall = tuple(recall)
        self._second_look = second_look
        self._median_bytes, self._spread = size_bytes
        self._rng = rng

    def photo(self, object_id: str) -> TwinPhoto:
        """A photo of an object, or of an unknown object for an empty id."""
        effort = float(self._rng.random()) if object_id else 1.0
        least = next((float(features) for features, recall in self._recall if effort < recall), NEVER)
        size = self._median_bytes * math.exp(self._spread * float(self._rng.standard_normal()))
        return TwinPhoto(object_id, round(size), least, bool(object_id) and effort < self._second_look)


class SampledPhotos:
    """Draws from measured photos, each with all its properties.

    The correlations between the properties are kept: a photo that is not recognised with 200 features takes
    an edge twice as long to look up, and a large file takes long to extract.

    Parameters
    ----------
    sample : sequence of (weight, TwinPhoto)
        At least one photo of an exhibit. Photos without an object stand for photos of unknown objects. If
        there are none, photos of exhibits are used as photos that no tier recognises.
    rng : Generator
    """

    def __init__(self, sample: Sequence[tuple[float, TwinPhoto]], rng: np.random.Generator) -> None:
        known = [(weight, photo) for weight, photo in sample if photo.object_id]
        strange = [(weight, photo) for weight, photo in sample if not photo.object_id]
        self._known = _WeightedPhotos(known)
        self._strange = _WeightedPhotos(
            strange
            or [
                (weight, replace(photo, least_features=NEVER, at_second_look=False, missed_with=frozenset()))
                for weight, photo in known
            ]
        )
        self._rng = rng

    def photo(self, object_id: str) -> TwinPhoto:
        """A photo of an object, or of an unknown object for an empty id."""
        urn = self._known if object_id else self._strange
        return replace(urn.at_position(float(self._rng.random())), object_id=object_id)


class _WeightedPhotos:
    """Photos with weights, for random sampling."""

    def __init__(self, sample: Sequence[tuple[float, TwinPhoto]]) -> None:
        self._photos = [photo for _, photo in sample]
        self._up_to = np.cumsum([weight for weight, _ in sample])

    def at_position(self, place: float) -> TwinPhoto:
        """The photo at this position of the cumulative weights, scaled to 0 to 1."""
        number = int(np.searchsorted(self._up_to, place * self._up_to[-1], side="right"))
        return self._photos[min(number, len(self._photos) - 1)]


@dataclass(frozen=True, slots=True)
class TwinFeatures:
    """A number of features of a photo; replaces the daemons' `Features`."""

    photo: TwinPhoto
    count: int


class TwinSnapshot(ObjectRecognizer):
    """Recognizer that has the ids of its objects, but no index."""

    def __init__(self, models: dict[str, ObjectModel]) -> None:  # no index, so no super().__init__
        self.models = models
        self.settings = _SETTINGS
        self.backend = "twin"

    def recognize(self, features: Features) -> RecognitionResult:
        """Result for `TwinFeatures`."""
        seen = cast("TwinFeatures", features)
        return RecognitionResult(self.look(seen.photo, seen.count), 0.0, 0.0)

    def look(self, photo: TwinPhoto, features: int) -> RecognizedObject | None:
        """The object that is found with this number of features; None if none is found."""
        model = self.models.get(photo.object_id)
        if model is None or not photo.recognised_with(features):
            return None
        return found_object(model)


def found_object(model: ObjectModel) -> RecognizedObject:
    """The answer that names an object."""
    return RecognizedObject(model.object_id, model.label, model.version, 1.0, 100, _CORNERS)


def twin_model(object_id: str, features: int) -> ObjectModel:
    """A model with the size of a real one with this number of features; all models share one empty view."""
    return ObjectModel(object_id, object_id, (_empty_view(features),))


@cache
def _empty_view(features: int) -> Features:
    points, descriptors = np.zeros((features, 2), np.float32), np.zeros((features, 32), np.uint8)
    return Features(points, descriptors, np.zeros(features, np.float32), (640, 480), (640, 480))


_SETTINGS = RecognitionSettings()
_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
