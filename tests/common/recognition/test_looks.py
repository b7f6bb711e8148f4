"""The second look: it adds answers, costs nothing where the first look knows, and accepts nothing wrong."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.recognition.features import Features
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.looks import even_contrast, quick_look, recognize_image
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from support.gallery import EXTRACTOR, SETTINGS, SIDE, exhibit_models
from support.pictures import photo_jpeg

OBJECTS = 8


class CountingExtractor:
    """The real extractor, which keeps how it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, int], int]] = []

    def extract(self, image: GrayImage, count: int) -> Features:
        self.calls.append((image.size, count))
        return EXTRACTOR.extract(image, count)


def recognizer(look_again: bool, objects: int = OBJECTS) -> ObjectRecognizer:
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
def test_a_quick_look_keeps_features_as_dense_down_to_the_smallest_useful_image(
    features: int, side: int
) -> None:
    look = quick_look(RecognitionSettings(), features)
    assert (look.longest_side, look.features) == (side, features)


def test_the_second_look_loses_no_answer_and_finds_more_of_the_hard_photos() -> None:
    answers: list[set[tuple[int, int]]] = []
    for look_again in (False, True):
        known = recognizer(look_again)
        right: set[tuple[int, int]] = set()
        for seed in range(4):
            for index, pixels in enumerate([photo(seed), *hard_photos(seed)]):
                found = recognize_image(pixels, known, EXTRACTOR).found
                assert found is None or found.object_id == f"exhibit-{seed}"
                if found is not None:
                    right.add((seed, index))
        answers.append(right)
    assert answers[0] < answers[1]


def test_photos_of_other_objects_stay_unknown_at_second_look() -> None:
    known = recognizer(True)
    for seed in range(OBJECTS, OBJECTS + 6):
        for pixels in (photo(seed), *hard_photos(seed)):
            assert recognize_image(pixels, known, EXTRACTOR).found is None


def test_a_photo_known_at_first_look_is_not_looked_at_again() -> None:
    extractor = CountingExtractor()
    result = recognize_image(photo_jpeg(1, side=SIDE), recognizer(True), extractor)
    assert result.found is not None
    assert result.extract_ms > 0
    assert len(extractor.calls) == 1


def test_an_unknown_photo_is_seen_larger_and_with_more_features() -> None:
    extractor = CountingExtractor()
    wall = hard_photos(OBJECTS)[1]
    assert recognize_image(wall, recognizer(True), extractor).found is None
    assert extractor.calls == [((640, 480), 500), ((960, 720), 2000)]


def test_the_second_look_can_be_turned_off() -> None:
    extractor = CountingExtractor()
    recognize_image(photo(OBJECTS), recognizer(False), extractor)
    assert len(extractor.calls) == 1


def test_with_nothing_to_recognise_there_is_no_second_look() -> None:
    extractor = CountingExtractor()
    recognize_image(photo(1), recognizer(True, objects=0), extractor)
    assert len(extractor.calls) == 1


def test_nothing_is_looked_at_again_once_nobody_waits() -> None:
    extractor = CountingExtractor()
    recognize_image(photo(OBJECTS), recognizer(True), extractor, go_on=lambda: False)
    assert len(extractor.calls) == 1


def test_the_corners_of_the_second_look_are_in_the_frame_of_the_photo() -> None:
    wall = hard_photos(2)[1]
    found = recognize_image(wall, recognizer(True), EXTRACTOR).found
    assert found is not None
    middle = np.mean(found.corners, axis=0)
    height, width = photo(2).shape
    expected = (600 + 0.6 * width / 2, 400 + 0.6 * height / 2)
    assert np.abs(middle - np.array(expected)).max() < 40


def test_even_contrast_brings_out_what_is_dark_and_keeps_the_frame() -> None:
    dark = load_image((photo(1) // 8).astype(np.uint8))
    evened = even_contrast(dark)
    assert evened.pixels.std() > 1.5 * dark.pixels.std()
    assert (evened.size, evened.source_size) == (dark.size, dark.source_size)
