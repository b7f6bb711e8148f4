"""Generated object models, for tests that store or move models but do not recognise with them."""

import numpy as np

from nearsight.common.recognition.models import DESCRIPTOR_BYTES, Features, ObjectModel


def random_features(seed: int, count: int = 40) -> Features:
    """Features that the rounding of the wire format and of the store does not change."""
    rng = np.random.default_rng(seed)
    strengths = np.sort(rng.integers(1, 1024, count))[::-1] / 1024
    return Features(
        keypoints=(rng.integers(0, 600 * 32, (count, 2)) / 32).astype(np.float32),
        descriptors=rng.integers(0, 256, (count, DESCRIPTOR_BYTES)).astype(np.uint8),
        strengths=strengths.astype(np.float32),
        image_size=(640, 640),
        source_size=(1280, 1280),
    )


def random_model(object_id: str, seed: int = 0, *, views: int = 1, count: int = 40) -> ObjectModel:
    """A model with ``views`` random views."""
    return ObjectModel(
        object_id,
        f"label of {object_id}",
        tuple(random_features(seed * 100 + view, count) for view in range(views)),
        metadata={"artist": f"artist {seed}"},
    )


def same_model(first: ObjectModel, second: ObjectModel) -> bool:
    """Whether two models are equal in every part but the version."""
    return (
        (first.object_id, first.label, dict(first.metadata))
        == (second.object_id, second.label, dict(second.metadata))
        and len(first.views) == len(second.views)
        and all(_same_features(a, b) for a, b in zip(first.views, second.views, strict=True))
    )


def _same_features(first: Features, second: Features) -> bool:
    arrays = ("keypoints", "descriptors", "strengths")
    sizes_equal = (first.image_size, first.source_size) == (second.image_size, second.source_size)
    return sizes_equal and all(np.array_equal(getattr(first, name), getattr(second, name)) for name in arrays)
