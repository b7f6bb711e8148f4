"""Photos: determined by their seed, with correct geometry, and harder to recognise with more difficulty."""

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import extract_features, train_object
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.museum.art.exhibit import random_stream, render_reference
from nearsight.experiments.museum.camera.photograph import take_photo
from nearsight.experiments.museum.camera.viewpoint import project, wall_to_photo


@pytest.fixture(scope="module")
def references() -> list[np.ndarray]:
    return [render_reference(4, index) for index in range(8)]


def test_a_photo_depends_on_the_seed(references: list[np.ndarray]) -> None:
    first, again, other = (take_photo(references[0], np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.jpeg == again.jpeg
    assert first.jpeg != other.jpeg


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_a_photo_has_the_size_of_a_phone_photo_and_is_jpeg(
    references: list[np.ndarray], difficulty: float
) -> None:
    for index, reference in enumerate(references):
        photo = take_photo(reference, np.random.default_rng(index), difficulty)
        assert photo.jpeg.startswith(b"\xff\xd8")
        assert len(photo.jpeg) < 200_000
        assert photo.image.shape in {(480, 640, 3), (640, 480, 3)}


def test_the_corners_are_those_of_the_picture_in_the_photo(references: list[np.ndarray]) -> None:
    for index, reference in enumerate(references):
        height, width = reference.shape[:2]
        photo = take_photo(reference, np.random.default_rng(index), 0.1)
        flat = np.array([(0, 0), (width, 0), (width, height), (0, height)], dtype=np.float32)
        back = cv2.getPerspectiveTransform(photo.corners.astype(np.float32), flat)
        seen = cv2.warpPerspective(photo.image, back, (width, height))
        small = [
            cv2.cvtColor(cv2.resize(image, (48, 48), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY)
            for image in (seen, reference)
        ]
        assert np.corrcoef(small[0].ravel(), small[1].ravel())[0, 1] > 0.8


@pytest.mark.system
def test_difficulty_makes_recognition_harder() -> None:
    references = [render_reference(4, index) for index in range(24)]
    settings = RecognitionSettings()
    models = [train_object(str(i), "", [reference], settings) for i, reference in enumerate(references)]
    recognizer = ObjectRecognizer.build(models, settings)

    def recognized(difficulty: float) -> int:
        count = 0
        for index, reference in enumerate(references):
            photo = load_image(take_photo(reference, random_stream(4, index, 2, 0), difficulty).jpeg)
            found = recognizer.recognize(extract_features(photo, settings.query_features)).found
            assert found is None or found.object_id == str(index)
            count += found is not None
        return count

    easy, hard = recognized(0.0), recognized(1.0)
    assert easy == len(references)
    assert hard < len(references)


@pytest.mark.parametrize("difficulty", [-0.1, 1.1, float("nan")])
def test_a_difficulty_out_of_range_is_refused(references: list[np.ndarray], difficulty: float) -> None:
    with pytest.raises(InvalidArgument, match="difficulty"):
        take_photo(references[0], np.random.default_rng(0), difficulty)


def test_a_grey_reference_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"\(H, W, 3\)"):
        take_photo(np.zeros((40, 40), dtype=np.uint8), np.random.default_rng(0))


@pytest.mark.parametrize("size", [(24, 640), (640, 24), (16, 16)])
def test_very_narrow_and_small_references_can_be_photographed(size: tuple[int, int]) -> None:
    reference = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    assert take_photo(reference, np.random.default_rng(1), 1.0).image.size


def test_without_rotation_the_wall_is_scaled_and_shifted() -> None:
    view = wall_to_photo((0, 0, 0), 2.0, (640, 480), (0.5, 0.5))
    assert project(view, np.array([(0.0, 0.0), (10.0, 0.0)])) == pytest.approx(
        np.array([(320.0, 240.0), (340.0, 240.0)])
    )


def test_the_nearer_side_of_a_rotated_wall_is_larger() -> None:
    view = wall_to_photo((0.6, 0, 0), 1.0, (640, 480), (0.5, 0.5))
    points = project(view, np.array([(-100.0, -50.0), (-100.0, 50.0), (100.0, -50.0), (100.0, 50.0)]))
    left, right = points[1, 1] - points[0, 1], points[3, 1] - points[2, 1]
    assert right > 1.1 * left
