"""A small gallery of pictures: models, photos and features, extracted once per test run."""

from functools import cache

from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.training import train_object
from support.pictures import photo_jpeg, picture

SIDE = 320
SETTINGS = RecognitionSettings(training_features=500, query_features=500)
EXTRACTOR = OrbExtractor()


@cache
def exhibit_model(seed: int) -> ObjectModel:
    """The model of the picture of ``seed``."""
    return train_object(
        f"exhibit-{seed}",
        f"Picture {seed}",
        [picture(seed, side=SIDE)],
        SETTINGS,
        metadata={"seed": str(seed)},
    )


def exhibit_models(count: int) -> list[ObjectModel]:
    """Models of the pictures 0, 1, ..."""
    return [exhibit_model(seed) for seed in range(count)]


@cache
def photo_features(seed: int) -> Features:
    """Features of a photo of the picture of ``seed``."""
    return EXTRACTOR.extract(load_image(photo_jpeg(seed, side=SIDE)), SETTINGS.query_features)
