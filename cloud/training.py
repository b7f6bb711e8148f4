"""From an object's images to what the store keeps; one broken image never stops the others.

Both ways into a catalogue, a folder on disk and the AddObjects call, meet here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import xxhash

from nearsight.cloud.names import check_object
from nearsight.cloud.store import TrainedObject
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import FeatureExtractor, OrbExtractor, train_object
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

MAX_IMAGES_PER_OBJECT = 64

TRAINING_GENERATION = 2
"""Raise when training gives other models for equal settings: they are then trained again when ingested."""


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to train: who it is, and the bytes of its images, one per view."""

    object_id: str
    label: str
    images: tuple[bytes | memoryview, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_hash(self) -> str:
        """Hash of images, label and metadata (XXH3, 128 bits); equal for equal content only."""
        metadata = [part for item in sorted(self.metadata.items()) for part in item]
        texts = [text.encode("utf-8", "surrogatepass") for text in (self.label, *metadata)]
        digest = xxhash.xxh3_128(len(texts).to_bytes(8, "little"))  # where the texts end and images begin
        for part in (*texts, *self.images):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that did not go in, and why."""

    object_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used, of an object that went in with its others; ``image`` counts from 0."""

    object_id: str
    image: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What became of some new objects."""

    trained: tuple[TrainedObject, ...]
    rejected: tuple[Rejection, ...]
    skipped: tuple[SkippedImage, ...]


class ObjectTrainer:
    """Trains objects with one set of settings. Thread-safe.

    Parameters
    ----------
    settings : RecognitionSettings
        Those that matter to training are in `fingerprint`.
    extractor : FeatureExtractor, optional
        Default: ORB with the threshold of ``settings``.
    """

    def __init__(self, settings: RecognitionSettings, extractor: FeatureExtractor | None = None) -> None:
        self._settings = settings
        self._extractor = extractor or OrbExtractor(settings.fast_threshold)

    @property
    def fingerprint(self) -> str:
        """Names the extractor and the settings that decide what a trained model looks like."""
        settings = self._settings
        return (
            f"{type(self._extractor).__name__} generation={TRAINING_GENERATION} "
            f"threshold={settings.fast_threshold} features={settings.training_features} "
            f"side={settings.limits.longest_side}"
        )

    def train(self, objects: Sequence[NewObject]) -> TrainingOutcome:
        """Train each object from those of its images that can be used; reject it if there is none."""
        trained: list[TrainedObject] = []
        rejected: list[Rejection] = []
        skipped: list[SkippedImage] = []
        for item in objects:
            views, problems = self._train_views(item)
            if views:
                model = ObjectModel(item.object_id, item.label, tuple(views), metadata=dict(item.metadata))
                trained.append(TrainedObject(model, item.content_hash, self.fingerprint))
                skipped += problems
            else:
                rejected.append(Rejection(item.object_id, problems[0].reason))
        return TrainingOutcome(tuple(trained), tuple(rejected), tuple(skipped))

    def _train_views(self, item: NewObject) -> tuple[list[Features], list[SkippedImage]]:
        try:
            check_object(item.object_id, item.label, item.metadata)
            if not 1 <= len(item.images) <= MAX_IMAGES_PER_OBJECT:
                raise InvalidArgument(
                    f"{len(item.images)} images; an object needs 1 to {MAX_IMAGES_PER_OBJECT}"
                )
        except InvalidArgument as error:
            return [], [SkippedImage(item.object_id, 0, str(error))]
        views: list[Features] = []
        problems: list[SkippedImage] = []
        for number, image in enumerate(item.images):
            try:
                model = train_object(
                    item.object_id, item.label, [image], self._settings, extractor=self._extractor
                )
                views += model.views
            except InvalidArgument as error:  # InvalidImage and ImageTooLarge among them
                problems.append(SkippedImage(item.object_id, number, str(error)))
        return views, problems
