"""Training one object: its images become the views of an object model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearsight.common.errors import InvalidArgument, InvalidImage
from nearsight.common.recognition.extraction import FeatureExtractor, OrbExtractor
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import ImageSource, load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings


def train_object(
    object_id: str,
    label: str,
    images: Sequence[ImageSource],
    settings: RecognitionSettings,
    *,
    metadata: Mapping[str, str] | None = None,
    version: int = 1,
    extractor: FeatureExtractor | None = None,
) -> ObjectModel:
    """Extract the features of each training image and keep them as views of one object.

    Raises
    ------
    InvalidImage
        If an image cannot be read or has too few features to be recognised by (a blank picture).
    ImageTooLarge, NotFound
        As `load_image`.
    InvalidArgument
        If there is no image.
    """
    if not images:
        raise InvalidArgument(f"object {object_id!r} has no training image", advice="give at least one image")
    chosen = extractor or OrbExtractor(settings.fast_threshold)
    views = tuple(_train_view(object_id, image, settings, chosen) for image in images)
    return ObjectModel(object_id, label, views, version, dict(metadata or {}))


def _train_view(
    object_id: str, source: ImageSource, settings: RecognitionSettings, extractor: FeatureExtractor
) -> Features:
    features = extractor.extract(load_image(source, settings.limits), settings.training_features)
    if len(features) < settings.min_training_features:
        raise InvalidImage(
            f"a training image of {object_id!r} has {len(features)} features, "
            f"at least {settings.min_training_features} are needed",
            advice="use a sharp, well-lit photo that shows the object's texture",
        )
    return features
