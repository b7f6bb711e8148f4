"""The recognizer: the pipeline's answers, as every tier sees them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearsight.common.errors import ConfigurationError, InvalidArgument
from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from support.gallery import EXTRACTOR, SETTINGS, exhibit_model, exhibit_models, photo_features
from support.objects import random_features

OBJECTS = 12


@pytest.fixture(scope="module")
def recognizer() -> ObjectRecognizer:
    return ObjectRecognizer.build(exhibit_models(OBJECTS), SETTINGS)


def test_each_photo_is_answered_with_its_object(recognizer: ObjectRecognizer) -> None:
    for seed in range(OBJECTS):
        result = recognizer.recognize(photo_features(seed))
        assert result.found is not None
        assert result.found.object_id == f"exhibit-{seed}"
        assert 0 < result.found.confidence <= 1
        assert result.match_ms > 0
        assert result.verify_ms > 0


def test_what_is_not_in_the_catalogue_is_unknown(recognizer: ObjectRecognizer) -> None:
    for seed in range(OBJECTS, OBJECTS + 6):
        assert recognizer.recognize(photo_features(seed)).found is None
    assert recognizer.recognize(random_features(1, 500)).found is None


def test_an_empty_catalogue_knows_nothing() -> None:
    empty = ObjectRecognizer.build([])
    assert len(empty) == 0
    assert empty.object_ids == frozenset()
    assert empty.recognize(photo_features(0)).found is None


def test_an_all_black_and_a_tiny_image_are_unknown(recognizer: ObjectRecognizer) -> None:
    for pixels in (
        np.zeros((480, 640), np.uint8),
        np.zeros((1, 1), np.uint8),
        np.full((9, 900, 3), 255, np.uint8),
    ):
        assert recognizer.recognize(EXTRACTOR.extract(load_image(pixels), 500)).found is None


def test_a_single_object_is_recognised_and_others_are_unknown() -> None:
    single = ObjectRecognizer.build([exhibit_model(0)], SETTINGS)
    assert single.recognize(photo_features(0)).found is not None
    assert single.recognize(photo_features(1)).found is None


def test_the_view_that_shows_most_answers() -> None:
    views = ObjectModel("both", "", (exhibit_model(0).views[0], exhibit_model(1).views[0]))
    recognizer = ObjectRecognizer.build([views, exhibit_model(2)], SETTINGS)
    for seed in (0, 1):
        found = recognizer.recognize(photo_features(seed)).found
        assert found is not None
        assert found.object_id == "both"


def test_a_look_alike_lowers_the_confidence() -> None:
    twins = [exhibit_model(0), ObjectModel("twin", "", exhibit_model(0).views)]
    settings = SETTINGS.model_copy(update={"ratio": 1.0, "early_stop": False})
    alone = ObjectRecognizer.build(twins[:1], settings).recognize(photo_features(0)).found
    together = (
        ObjectRecognizer.build([twins[0], ObjectModel("twin", "", (_shuffled(twins[1].views[0]),))], settings)
        .recognize(photo_features(0))
        .found
    )
    assert alone is not None
    assert together is not None
    assert together.confidence < alone.confidence


def _shuffled(features: Features) -> Features:
    """The same features with a bit flipped in each, so that half of the ties go either way."""
    descriptors = features.descriptors.copy()
    descriptors[::2, 0] ^= 1
    return Features(
        features.keypoints, descriptors, features.strengths, features.image_size, features.source_size
    )


def test_stopping_early_does_not_change_the_answers() -> None:
    models = exhibit_models(OBJECTS)
    early = ObjectRecognizer.build(models, SETTINGS)
    full = ObjectRecognizer.build(models, SETTINGS.model_copy(update={"early_stop": False}))
    for seed in range(OBJECTS + 4):
        first, second = (
            early.recognize(photo_features(seed)).found,
            full.recognize(photo_features(seed)).found,
        )
        assert (first and first.object_id) == (second and second.object_id)


def test_several_threads_get_the_answers_of_one(recognizer: ObjectRecognizer) -> None:
    seeds = list(range(OBJECTS + 3)) * 4
    expected = [recognizer.recognize(photo_features(seed)).found for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: recognizer.recognize(photo_features(seed)).found, seeds))
    assert found == expected


def test_the_snapshot_cannot_be_changed(recognizer: ObjectRecognizer) -> None:
    with pytest.raises(TypeError):
        recognizer.models["new"] = exhibit_model(20)  # type: ignore[index]
    assert recognizer.object_ids == {f"exhibit-{seed}" for seed in range(OBJECTS)}
    assert len(recognizer) == OBJECTS


def test_the_backend_that_auto_picked_and_the_memory_are_reported(recognizer: ObjectRecognizer) -> None:
    assert recognizer.backend == "multihash"
    assert ObjectRecognizer.build([exhibit_model(0)], SETTINGS).backend == "exact"
    assert recognizer.size_bytes == sum(model.size_bytes for model in exhibit_models(OBJECTS))
    assert exhibit_model(0).size_bytes == len(exhibit_model(0).views[0]) * (32 + 8 + 4)


def test_two_models_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="exhibit-0"):
        ObjectRecognizer.build([exhibit_model(0), exhibit_model(0)])


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        ObjectRecognizer.build([], RecognitionSettings(backend="magic"))
