"""The recognizer: answers of the pipeline, as in every tier."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import cv2
import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import extract_features, side_px_for, train_object
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.models import TWIN, Features, ObjectModel
from nearsight.common.recognition.object_recognizer import (
    ObjectRecognizer,
    even_contrast,
    pin_threads,
    recognize_image,
)
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.recognition.verification import confidence
from support.gallery import SETTINGS, SIDE, exhibit_model, exhibit_models, photo_features
from support.objects import random_features
from support.pictures import look_alike, photo_jpeg, photographed

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


def test_objects_outside_of_the_catalogue_are_unknown(recognizer: ObjectRecognizer) -> None:
    for seed in range(OBJECTS, OBJECTS + 6):
        assert recognizer.recognize(photo_features(seed)).found is None
    assert recognizer.recognize(random_features(1, 500)).found is None


def test_with_an_empty_catalogue_every_photo_is_unknown() -> None:
    empty = ObjectRecognizer.build([])
    assert len(empty) == 0
    assert empty.object_ids == frozenset()
    assert empty.recognize(photo_features(0)).found is None


def test_black_white_and_tiny_images_are_unknown(recognizer: ObjectRecognizer) -> None:
    for pixels in (
        np.zeros((480, 640), np.uint8),
        np.zeros((1, 1), np.uint8),
        np.full((9, 900, 3), 255, np.uint8),
    ):
        assert recognizer.recognize(extract_features(load_image(pixels), 500)).found is None


def test_an_object_is_recognised_by_each_of_its_views() -> None:
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
    """The same features with a bit flipped in every second one, so that ties are decided both ways."""
    descriptors = features.descriptors.copy()
    descriptors[::2, 0] ^= 1
    return replace(features, descriptors=descriptors)


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


def test_the_chosen_backend_and_the_memory_are_reported(recognizer: ObjectRecognizer) -> None:
    assert recognizer.backend == "multihash"
    assert ObjectRecognizer.build([exhibit_model(0)], SETTINGS).backend == "exact"
    models_bytes = sum(model.size_bytes for model in exhibit_models(OBJECTS))
    assert 4 * models_bytes < recognizer.size_bytes - models_bytes < 12 * models_bytes  # the index
    assert exhibit_model(0).size_bytes == len(exhibit_model(0).views[0]) * (32 + 8 + 4)


def test_two_models_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="exhibit-0"):
        ObjectRecognizer.build([exhibit_model(0), exhibit_model(0)])


FEW = 8


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int], int]]:
    """Image size and number of features of each extraction."""
    made: list[tuple[tuple[int, int], int]] = []

    def counted(image: GrayImage, count: int, threshold: int) -> Features:
        made.append((image.size, count))
        return extract_features(image, count, threshold)

    monkeypatch.setattr("nearsight.common.recognition.object_recognizer.extract_features", counted)
    return made


def looking(look_again: bool, objects: int = FEW) -> ObjectRecognizer:
    settings = SETTINGS.model_copy(update={"look_again": look_again})
    return ObjectRecognizer.build(exhibit_models(objects), settings)


def photo(seed: int) -> NDArray[np.uint8]:
    decoded = cv2.imdecode(np.frombuffer(photo_jpeg(seed, side=SIDE), np.uint8), cv2.IMREAD_GRAYSCALE)
    return np.asarray(decoded, np.uint8)


def hard_photos(seed: int) -> list[NDArray[np.uint8]]:
    """A photo of the picture of ``seed``: too dark, and small within a textured wall."""
    rng = np.random.default_rng(seed)
    shown = photo(seed)
    small = cv2.resize(shown, None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    dark = np.clip(shown * 0.12 + rng.normal(0, 1.5, shown.shape), 0, 255).astype(np.uint8)
    wall = cv2.GaussianBlur(rng.integers(0, 256, (1200, 1600), np.uint8), (0, 0), 1.5)
    wall = cv2.normalize(wall, None, 77, 179, cv2.NORM_MINMAX)  # type: ignore[call-overload]
    height, width = small.shape
    wall[400 : 400 + height, 600 : 600 + width] = small
    return [dark, np.asarray(wall, np.uint8)]


@pytest.mark.parametrize(("features", "side"), [(800, 640), (2000, 640), (600, 554), (400, 453), (200, 448)])
def test_the_image_size_of_a_quick_look_follows_the_number_of_features(features: int, side: int) -> None:
    assert side_px_for(features, RecognitionSettings()) == side


def test_the_second_look_keeps_all_answers_and_adds_difficult_photos() -> None:
    photos = [[photo(seed), *hard_photos(seed)] for seed in range(4)]
    answers: list[set[tuple[int, int]]] = []
    for look_again in (False, True):
        known = looking(look_again)
        right: set[tuple[int, int]] = set()
        for seed, shown in enumerate(photos):
            for index, pixels in enumerate(shown):
                found = recognize_image(pixels, known).found
                assert found is None or found.object_id == f"exhibit-{seed}"
                if found is not None:
                    right.add((seed, index))
        answers.append(right)
    assert answers[0] < answers[1]


def test_photos_of_other_objects_are_unknown_at_the_second_look() -> None:
    known = looking(True)
    for seed in range(FEW, FEW + 3):
        for pixels in (photo(seed), *hard_photos(seed)):
            assert recognize_image(pixels, known).found is None


@pytest.mark.parametrize(
    ("seed", "look_again", "objects", "go_on"),
    [(1, True, FEW, True), (FEW, False, FEW, True), (1, True, 0, True), (FEW, True, FEW, False)],
    ids=["recognised", "turned off", "empty catalogue", "cancelled"],
)
def test_there_is_no_second_look_if_it_is_useless_or_unwanted(
    calls: list[object], seed: int, look_again: bool, objects: int, go_on: bool
) -> None:
    result = recognize_image(photo(seed), looking(look_again, objects), go_on=lambda: go_on)
    assert (result.found is not None) == (seed < objects)
    assert result.extract_ms > 0
    assert len(calls) == 1


def test_the_second_look_uses_a_larger_image_and_more_features(calls: list[object]) -> None:
    wall = hard_photos(FEW)[1]
    assert recognize_image(wall, looking(True)).found is None
    assert calls == [((640, 480), 500), ((960, 720), 2000)]


def test_the_corners_of_the_second_look_are_in_coordinates_of_the_photo() -> None:
    wall = hard_photos(2)[1]
    found = recognize_image(wall, looking(True)).found
    assert found is not None
    middle = np.mean(found.corners, axis=0)
    height, width = photo(2).shape
    expected = (600 + 0.6 * width / 2, 400 + 0.6 * height / 2)
    assert np.abs(middle - np.array(expected)).max() < 40


def test_even_contrast_brightens_a_dark_image_and_keeps_its_size() -> None:
    dark = load_image((photo(1) // 8).astype(np.uint8))
    evened = even_contrast(dark)
    assert evened.pixels.std() > 1.5 * dark.pixels.std()
    assert (evened.size, evened.source_size) == (dark.size, dark.source_size)


def test_pinning_leaves_one_thread_to_opencv_and_faiss() -> None:
    cv2.setNumThreads(2)
    faiss.omp_set_num_threads(2)
    pin_threads()
    assert cv2.getNumThreads() == 1
    assert faiss.omp_get_max_threads() == 1


@pytest.fixture(scope="module")
def portraits() -> tuple[ObjectModel, ObjectModel]:
    """Two pictures with the same face, which are rivals."""
    one = exhibit_model(0)
    other = train_object("other", "Other", [look_alike(50, of=0, side=SIDE)], SETTINGS)
    return replace(one, rivals={"other": 20}), replace(other, rivals={one.object_id: 20})


def photo_of_other() -> Features:
    photo = photographed(look_alike(50, of=0, side=SIDE))
    return extract_features(load_image(photo), SETTINGS.query_features)


def test_a_photo_of_a_missing_rival_is_unknown(
    portraits: tuple[ObjectModel, ObjectModel],
) -> None:
    one, other = portraits
    ignored = ObjectRecognizer.build([one], SETTINGS.model_copy(update={"rival_margin": 0.0}))
    wrong = ignored.recognize(photo_of_other()).found
    assert wrong is not None
    assert wrong.object_id == one.object_id
    assert ObjectRecognizer.build([one], SETTINGS).recognize(photo_of_other()).found is None
    both = ObjectRecognizer.build([one, other], SETTINGS).recognize(photo_of_other()).found
    assert both is not None
    assert both.object_id == "other"


def test_clear_evidence_suffices_although_a_rival_is_missing(
    portraits: tuple[ObjectModel, ObjectModel],
) -> None:
    alone = ObjectRecognizer.build([portraits[0]], SETTINGS).recognize(photo_features(0)).found
    assert alone is not None
    assert alone.inliers >= SETTINGS.rival_margin * max(portraits[0].rivals.values())


def test_a_weak_rival_also_requires_clear_evidence(
    portraits: tuple[ObjectModel, ObjectModel],
) -> None:
    photo = photographed(look_alike(60, of=0, side=SIDE, part=0.36))
    features = extract_features(load_image(photo), SETTINGS.query_features)
    for inliers, known in ((10, False), (TWIN, True)):
        model = replace(portraits[0], rivals={"other": inliers})
        found = ObjectRecognizer.build([model], SETTINGS).recognize(features).found
        assert (found is not None) is known


def test_a_picture_with_two_ids_is_recognised_only_if_they_are_twins() -> None:
    first = exhibit_model(0)
    second = replace(first, object_id="second")
    unaware = ObjectRecognizer.build([first, second, exhibit_model(1)], SETTINGS)
    assert unaware.recognize(photo_features(0)).found is None
    first, second = replace(first, rivals={"second": TWIN}), replace(second, rivals={first.object_id: TWIN})
    for models in ([first, second, exhibit_model(1)], [second, exhibit_model(1)]):
        found = ObjectRecognizer.build(models, SETTINGS).recognize(photo_features(0)).found
        assert found is not None
        assert found.object_id in {first.object_id, "second"}
        assert found.confidence == confidence(found.inliers, 0)


def test_resembling_objects_are_found_with_their_inliers(
    portraits: tuple[ObjectModel, ObjectModel],
) -> None:
    recognizer = ObjectRecognizer.build([*exhibit_models(4), portraits[1]], SETTINGS)
    one = portraits[0]
    found = recognizer.resembling(ObjectModel("new", "", (exhibit_model(9).views[0], one.views[0])))
    assert found.keys() == {one.object_id, "other"}
    assert found[one.object_id].inliers > 2 * found["other"].inliers >= 20
    assert found[one.object_id].share > 0.15 > found["other"].share > 0
