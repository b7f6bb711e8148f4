"""A small gallery of pictures: models, photos and features, extracted once per test run, and data sets."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from nearsight.common.recognition.extraction import extract_features, train_object
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import photo_jpeg, picture, picture_jpeg

SIDE = 320
SETTINGS = RecognitionSettings(training_features=500, query_features=500)


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
    return extract_features(load_image(photo_jpeg(seed, side=SIDE)), SETTINGS.query_features)


def write_data_set(folder: Path, objects: Mapping[str, int], unknown: Iterable[int] = ()) -> Path:
    """Write a labelled data set: a reference and a photo of each object, and photos of unknown pictures.

    ``objects`` maps ids to seeds of pictures. The photo of object ID is ``queries/photoID.jpg``.
    """
    for name in ("references", "queries"):
        (folder / name).mkdir(parents=True)
    labels = ["query,object_id"]
    for object_id, seed in objects.items():
        (folder / "references" / f"{object_id}.jpg").write_bytes(picture_jpeg(seed, side=SIDE))
        (folder / "queries" / f"photo{object_id}.jpg").write_bytes(photo_jpeg(seed, side=SIDE))
        labels.append(f"photo{object_id}.jpg,{object_id}")
    for seed in unknown:
        (folder / "queries" / f"photo{seed}.jpg").write_bytes(photo_jpeg(seed, side=SIDE))
        labels.append(f"photo{seed}.jpg,")
    (folder / "labels.csv").write_text("\n".join(labels) + "\n")
    return folder


def numbered(seeds: Iterable[int]) -> dict[str, int]:
    """Objects for `write_data_set` whose ids are their seeds."""
    return {str(seed): seed for seed in seeds}
