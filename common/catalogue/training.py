"""New objects: limits of names and metadata, and training of object models from their images.

Used by both ways of adding objects, a folder on disk and the AddObjects call. A damaged image does not affect
the other images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
import xxhash
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.recognition.extraction import extract_features, train_view
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings

MAX_CATALOGUES = 64
"""Default limit. Each catalogue in service has a thread and an index."""

MAX_IMAGES_PER_OBJECT = 64
MAX_OBJECT_ID_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 1_000
MAX_METADATA_CHARACTERS = 16_384

TRAINING_GENERATION = 3
"""Increment when training gives other models for equal settings; ingestion then trains objects again."""

PHOTOGRAPHED_VIEWS = 4
"""Views per object that are compared `as_photographed`; several views already differ as photos do."""

_SMALLER, _BLUR_PX = 0.55, 1.6
_TURNED_DEGREES, _TURNED_SIZE = 18.0, 0.85

_CATALOGUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_catalogue_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a catalogue.

    Raises
    ------
    InvalidArgument
        If it is empty, too long, has characters other than letters, digits, ``.``, ``_`` and ``-``, or does
        not start with a letter or digit.
    """
    if not _CATALOGUE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name[:80]!r} is not a valid catalogue name",
            advice="use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit",
        )
    return name


def check_catalogue_limit(catalogues: int, most: int) -> None:
    """Raise `InvalidArgument` if the number of ``catalogues`` has reached the maximum ``most``."""
    if catalogues >= most:
        raise InvalidArgument(
            f"the catalogue cannot be created: there are {catalogues}, and the limit is {most}",
            advice="remove one (`nearsight cloud catalogues remove`), or raise the cloud's max_catalogues",
        )


def choose_catalogue(name: str, known: Iterable[str]) -> str:
    """``name`` if this catalogue exists; if ``name`` is empty, the only existing one.

    Raises
    ------
    NotFound
        If the catalogue does not exist, or ``name`` is empty and there is none.
    InvalidArgument
        If ``name`` is empty and there are several.
    """
    names = sorted(known)
    if name in names:
        return name
    if name or not names:
        raise unknown_catalogue(name, names)
    if len(names) > 1:
        raise InvalidArgument("no catalogue was named", advice=f"choose one of: {', '.join(names)}")
    return names[0]


def unknown_catalogue(name: str, known: Iterable[str]) -> NotFound:
    """The error for a catalogue that does not exist; lists existing ones."""
    names = sorted(known)
    advice = (
        f"there are: {', '.join(names[:20])}"
        if names
        else "there is none yet; `nearsight cloud ingest FOLDER --catalogue NAME` makes one"
    )
    return NotFound(f"there is no catalogue {name!r}" if name else "no catalogue was named", advice=advice)


def check_object(object_id: str, label: str, metadata: Mapping[str, str]) -> None:
    """Check the description of an object before it is trained and stored.

    Raises
    ------
    InvalidArgument
        If the id is empty, too long or not printable, or if label or metadata are too long.
    """
    if not object_id or len(object_id) > MAX_OBJECT_ID_CHARACTERS or not object_id.isprintable():
        raise InvalidArgument(
            f"{object_id[:80]!r} is not a valid object id",
            advice=f"use 1 to {MAX_OBJECT_ID_CHARACTERS} printable characters",
        )
    described = sum(len(key) + len(value) for key, value in metadata.items())
    for what, characters, most in (
        ("label", len(label), MAX_LABEL_CHARACTERS),
        ("metadata", described, MAX_METADATA_CHARACTERS),
    ):
        if characters > most:
            raise InvalidArgument(f"{what}: {characters} characters, the limit is {most}")


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to train: its description, and the bytes of its images, one per view."""

    object_id: str
    label: str
    images: tuple[bytes | memoryview, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_hash(self) -> str:
        """Hash of images, label and metadata (XXH3, 128 bits); differs if any of them differs."""
        metadata = [part for item in sorted(self.metadata.items()) for part in item]
        texts = [text.encode("utf-8", "surrogatepass") for text in (self.label, *metadata)]
        digest = xxhash.xxh3_128(len(texts).to_bytes(8, "little"))  # marks the boundary of texts and images
        for part in (*texts, *self.images):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class TrainedObject:
    """An object ready for the store."""

    model: ObjectModel
    """Its version is assigned by the store."""
    content_hash: str
    """Hash of the images, label and metadata; equal hashes mean that nothing changed."""
    training: str
    """Fingerprint of the settings used in training."""
    photos: tuple[Features, ...] = ()
    """Features of simulated photos of the object; used only for comparison with others, and not stored."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that was refused, with the reason."""

    object_id: str
    reason: str
    twin: str = ""
    """The object with the same picture, if that is the reason."""


@dataclass(frozen=True, slots=True)
class SkippedImage:
    """An image that could not be used, of an object with other usable images; ``image`` counts from 0."""

    object_id: str
    image: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """Result of training new objects."""

    trained: tuple[TrainedObject, ...]
    rejected: tuple[Rejection, ...]
    skipped: tuple[SkippedImage, ...]


def training_fingerprint(settings: RecognitionSettings) -> str:
    """Kind of the features and the settings that determine a trained model."""
    # Stored with each object: other words would let every object be trained again.
    return (
        f"OrbExtractor generation={TRAINING_GENERATION} "
        f"threshold={settings.fast_threshold} features={settings.training_features} "
        f"side={settings.limits.longest_side}"
    )


def train_objects(objects: Sequence[NewObject], settings: RecognitionSettings) -> TrainingOutcome:
    """Train each object from its usable images; reject it if it has none."""
    fingerprint = training_fingerprint(settings)
    trained: list[TrainedObject] = []
    rejected: list[Rejection] = []
    skipped: list[SkippedImage] = []
    for item in objects:
        try:
            views, photos, problems = _train_views(item, settings)
        except InvalidArgument as error:
            rejected.append(Rejection(item.object_id, str(error)))
            continue
        if views:
            model = ObjectModel(item.object_id, item.label, tuple(views), metadata=dict(item.metadata))
            trained.append(TrainedObject(model, item.content_hash, fingerprint, tuple(photos)))
            skipped += problems
        else:
            rejected.append(Rejection(item.object_id, problems[0].reason))
    return TrainingOutcome(tuple(trained), tuple(rejected), tuple(skipped))


def _train_views(
    item: NewObject, settings: RecognitionSettings
) -> tuple[list[Features], list[Features], list[SkippedImage]]:
    check_object(item.object_id, item.label, item.metadata)
    if not 1 <= len(item.images) <= MAX_IMAGES_PER_OBJECT:
        raise InvalidArgument(f"{len(item.images)} images; an object needs 1 to {MAX_IMAGES_PER_OBJECT}")
    views: list[Features] = []
    photos: list[Features] = []
    problems: list[SkippedImage] = []
    for number, data in enumerate(item.images):
        try:
            image = load_image(data, settings.limits)
            views.append(train_view(item.object_id, image, settings))
        except InvalidArgument as error:  # includes InvalidImage and ImageTooLarge
            problems.append(SkippedImage(item.object_id, number, str(error)))
            continue
        if len(views) <= PHOTOGRAPHED_VIEWS:
            count, threshold = settings.query_features, settings.fast_threshold
            photos += [extract_features(one, count, threshold) for one in as_photographed(image)]
    return views, photos, problems


def as_photographed(image: GrayImage) -> tuple[GrayImage, ...]:
    """Variants of a picture (smaller, blurred, rotated), which find look-alikes that the original does not.

    Measured with 629 pictures: each variant found rivals that the original picture did not (decision 033).
    Changes of perspective or light, and all changes combined, found almost none.
    """
    width, height = image.size

    def turned(degrees: float, scale: float) -> NDArray[np.uint8]:
        matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, scale)
        return np.asarray(cv2.warpAffine(image.pixels, matrix, (width, height), borderValue=128), np.uint8)

    blurred = np.asarray(cv2.GaussianBlur(image.pixels, (0, 0), _BLUR_PX), np.uint8)
    pictures = (turned(0.0, _SMALLER), blurred, turned(_TURNED_DEGREES, _TURNED_SIZE))
    return tuple(replace(image, pixels=pixels) for pixels in pictures)
