"""What a photo is to the twin: its size, and with how much effort it is recognised.

The same photo is easy or hard for every tier. So the effort is a property of the photo, measured
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
    """How long a look at a photo takes, over what is usual.

    A clear photo is found with its first few features, a hard one with all of them, after several candidates.
    """

    extraction: float = 1.0
    """Of features, decoding included."""
    found: float = 1.0
    """Lookup where its object is there."""
    missed: float | None = None
    """Lookup where it is not, over that of a usual photo that is found: all candidates are verified, in every
    round. None: as any."""


AS_ANY_PHOTO = Effort()


@dataclass(frozen=True, slots=True)
class TwinPhoto:
    """One photo."""

    object_id: str
    """What it shows; empty if that is in no catalogue."""
    size_bytes: int
    """Of the file."""
    least_features: float
    """Features that must be extracted for it to be recognised at first look; inf: it never is."""
    at_second_look: bool
    """Whether the cloud recognises it at least at second look."""
    missed_with: frozenset[int] = frozenset()
    """Larger numbers of features with which it is not recognised all the same: few features are taken from a
    smaller image, which now and then shows more."""
    device_efforts: tuple[tuple[int, Effort], ...] = ()
    """(features, effort): how hard it is for devices."""
    tier_effort: Effort = AS_ANY_PHOTO
    """How hard for edge and cloud."""
    second_effort: float = 1.0
    """Time of the cloud's second look, over what is usual."""
    keys: tuple[bytes, ...] = ()
    """Under which result caches know it; without any it is like no other photo."""

    def device_effort(self, features: int) -> Effort:
        """How hard it is with so many features."""
        return next((effort for count, effort in self.device_efforts if count == features), AS_ANY_PHOTO)

    def known_with(self, features: int) -> bool:
        """Whether it is recognised at first look with so many features."""
        return self.least_features <= features and features not in self.missed_with


class PhotoSource(Protocol):
    """Where generated visitors have their photos from."""

    def photo(self, object_id: str) -> TwinPhoto:
        """A photo of an object; of none that is known for an empty id."""


class PhotoMaker:
    """Draws photos like those of a profile, which says nothing of single photos: all are as hard as any.

    Parameters
    ----------
    recall : sequence of (features, recall)
        Recall at first look with so many features, the fewest first.
    second_look : float
        Recall of the cloud.
    size_bytes : (float, float)
        Median size of a file, and the standard deviation of its logarithm.
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
        """A photo of an object; of none that is known for an empty id."""
        effort = float(self._rng.random()) if object_id else 1.0
        least = next((float(features) for features, recall in self._recall if effort < recall), NEVER)
        size = self._median_bytes * math.exp(self._spread * float(self._rng.standard_normal()))
        return TwinPhoto(object_id, round(size), least, bool(object_id) and effort < self._second_look)


class SampledPhotos:
    """Draws photos out of measured ones, each with all that is known of it.

    What belongs together stays together: one that is not recognised with 200 features takes an edge twice as
    long to look up, and a large file takes long to extract.

    Parameters
    ----------
    sample : sequence of (weight, TwinPhoto)
        At least one of an exhibit; those without an object stand for photos of what is in no catalogue. If
        there are none, photos of exhibits do, and nobody recognises them.
    rng : Generator
    """

    def __init__(self, sample: Sequence[tuple[float, TwinPhoto]], rng: np.random.Generator) -> None:
        known = [(weight, photo) for weight, photo in sample if photo.object_id]
        strange = [(weight, photo) for weight, photo in sample if not photo.object_id]
        self._known = _Urn(known)
        self._strange = _Urn(
            strange
            or [
                (weight, replace(photo, least_features=NEVER, at_second_look=False, missed_with=frozenset()))
                for weight, photo in known
            ]
        )
        self._rng = rng

    def photo(self, object_id: str) -> TwinPhoto:
        """A photo of an object; of none that is known for an empty id."""
        urn = self._known if object_id else self._strange
        return replace(urn.drawn(float(self._rng.random())), object_id=object_id)


class _Urn:
    """Photos, drawn by weight."""

    def __init__(self, sample: Sequence[tuple[float, TwinPhoto]]) -> None:
        self._photos = [photo for _, photo in sample]
        self._up_to = np.cumsum([weight for weight, _ in sample])

    def drawn(self, place: float) -> TwinPhoto:
        """The photo at a place from 0 to 1."""
        number = int(np.searchsorted(self._up_to, place * self._up_to[-1], side="right"))
        return self._photos[min(number, len(self._photos) - 1)]


@dataclass(frozen=True, slots=True)
class TwinFeatures:
    """So many features of a photo; stands where daemons have `Features`."""

    photo: TwinPhoto
    count: int


class TwinSnapshot(ObjectRecognizer):
    """Knows which objects it holds, and nothing of pixels."""

    def __init__(self, models: dict[str, ObjectModel]) -> None:  # no index, so no super().__init__
        self.models = models
        self.settings = _SETTINGS
        self.backend = "twin"

    def recognize(self, features: Features) -> RecognitionResult:
        """What is found in `TwinFeatures`."""
        seen = cast("TwinFeatures", features)
        return RecognitionResult(self.look(seen.photo, seen.count), 0.0, 0.0)

    def look(self, photo: TwinPhoto, features: int) -> RecognizedObject | None:
        """What is found with so many features."""
        model = self.models.get(photo.object_id)
        if model is None or not photo.known_with(features):
            return None
        return found_object(model)


def found_object(model: ObjectModel) -> RecognizedObject:
    """The answer that names an object."""
    return RecognizedObject(model.object_id, model.label, model.version, 1.0, 100, _CORNERS)


def twin_model(object_id: str, features: int) -> ObjectModel:
    """A model of the size of a real one with so many features; all share one empty view."""
    return ObjectModel(object_id, object_id, (_empty_view(features),))


@cache
def _empty_view(features: int) -> Features:
    points, descriptors = np.zeros((features, 2), np.float32), np.zeros((features, 32), np.uint8)
    return Features(points, descriptors, np.zeros(features, np.float32), (640, 480), (640, 480))


_SETTINGS = RecognitionSettings()
_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
