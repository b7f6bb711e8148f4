"""A small gallery of pictures: models, photos and features, extracted once per test run."""

from dataclasses import replace
from functools import cache

from nearsight.common.recognition.extraction import OrbExtractor, train_object
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import photo_jpeg, picture

SIDE = 320
SETTINGS = RecognitionSettings(training_features=500, query_features=500)
EXTRACTOR = OrbExtractor()


@cache
def exhibit_model(seed: int) -> ObjectModel:
    """The model of the picture of ``seed``."""
    model = train_object(f"exhibit-{seed}", f"Picture {seed}", [picture(seed, side=SIDE)], SETTINGS)
    return replace(model, metadata={"seed": str(seed)})


def exhibit_models(count: int) -> list[ObjectModel]:
    """Models of the pictures 0, 1, …"""
    return [exhibit_model(seed) for seed in range(count)]


@cache
def photo_features(seed: int) -> Features:
    """Features of a photo of the picture of ``seed``."""
    return EXTRACTOR.extract(load_image(photo_jpeg(seed, side=SIDE)), SETTINGS.query_features)
