"""Features equal those of the low threshold; models of images."""

from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.errors import ConfigurationError, ImageTooLarge, InvalidArgument, InvalidImage
from nearsight.common.recognition.extraction import (
    KEYPOINT_STEPS_PER_PX,
    LEVELS,
    extract_features,
    level_quotas,
    likely_threshold,
    train_object,
)
from nearsight.common.recognition.images import GrayImage, load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.settings import ImageLimits, RecognitionSettings
from support.gallery import SETTINGS
from support.pictures import broken_images, picture, picture_jpeg

LOWEST = 5


def photo(seed: int, contrast: float = 1.0, blur_px: float = 0.0) -> NDArray[np.uint8]:
    """A grey picture, 300 pixels wide, with less contrast or blurred."""
    pixels = cv2.cvtColor(picture(seed, side=300), cv2.COLOR_BGR2GRAY)
    if blur_px:
        pixels = cv2.GaussianBlur(pixels, (0, 0), blur_px)
    return np.rint(128 + contrast * (pixels.astype(np.float64) - 128)).astype(np.uint8)


def found_at_lowest(pixels: NDArray[np.uint8], count: int) -> list[tuple[float, float, bytes]]:
    """Places and descriptors that ORB finds with the low threshold, strongest first."""
    orb = cv2.ORB.create(nfeatures=count, fastThreshold=LOWEST, scoreType=cv2.ORB_FAST_SCORE)
    points, descriptors = orb.detectAndCompute(pixels, None)
    ranked = sorted(
        (-point.response, point.octave, point.pt[1], point.pt[0], row.tobytes())
        for point, row in zip(points, descriptors if points else (), strict=True)
    )
    steps = KEYPOINT_STEPS_PER_PX
    return [(round(x * steps) / steps, round(y * steps) / steps, row) for _, _, y, x, row in ranked[:count]]


def extracted(pixels: NDArray[np.uint8], count: int) -> list[tuple[float, float, bytes]]:
    features = extract_features(GrayImage(pixels, (300, 300)), count)
    return [
        (float(x), float(y), row.tobytes())
        for (x, y), row in zip(features.keypoints, features.descriptors, strict=True)
    ]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 50),
    contrast=st.sampled_from([0.03, 0.1, 0.3, 1.0]),
    blur_px=st.sampled_from([0.0, 1.0, 3.0]),
    count=st.integers(20, 1000),
)
def test_features_are_those_of_the_low_threshold(
    seed: int, contrast: float, blur_px: float, count: int
) -> None:
    pixels = photo(seed, contrast, blur_px)
    assert extracted(pixels, count) == found_at_lowest(pixels, count)


def test_a_textured_picture_is_searched_with_a_higher_threshold() -> None:
    assert likely_threshold(photo(1), level_quotas(100)[-1], LOWEST) > LOWEST


@pytest.mark.parametrize("pixels", [photo(1, contrast=0.0), photo(1)[:100, :40]], ids=["blank", "narrow"])
def test_a_picture_with_few_corners_is_searched_with_the_low_threshold(pixels: NDArray[np.uint8]) -> None:
    assert likely_threshold(pixels, level_quotas(100)[-1], LOWEST) == LOWEST


def test_a_threshold_that_empties_a_level_is_replaced_by_the_low_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.common.recognition.extraction.likely_threshold", lambda *_: 90)
    pixels = photo(2)
    assert extracted(pixels, 500) == found_at_lowest(pixels, 500)


@pytest.mark.parametrize("count", [50, 200, 333, 400, 800, 1000])
def test_opencv_keeps_at_least_the_quota_of_a_level_that_has_more(count: int) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (480, 640)).astype(np.uint8)
    orb = cv2.ORB.create(nfeatures=count, fastThreshold=LOWEST, scoreType=cv2.ORB_FAST_SCORE)
    octaves = [point.octave for point in orb.detect(noise)]
    kept = np.bincount(octaves, minlength=LEVELS)
    assert (kept >= level_quotas(count)).all()
    assert (kept <= np.array(level_quotas(count)) * 1.3 + 3).all()  # the rest are as strong as the last


def test_features_are_strongest_first_and_as_many_as_asked() -> None:
    features = extract_features(load_image(picture(1, side=240)), 300)
    assert 200 < len(features) <= 300
    assert (np.diff(features.strengths) <= 0).all()
    assert features.strengths[0] == 1
    assert features.image_size == (240, 240)


def test_keypoints_and_strengths_are_representable_in_the_wire_format() -> None:
    features = extract_features(load_image(picture(2)), 300)
    steps = features.keypoints * KEYPOINT_STEPS_PER_PX
    assert np.array_equal(steps, np.rint(steps))
    assert np.array_equal(features.strengths, features.strengths.astype(np.float16))


@pytest.mark.parametrize("shape", [(1, 1), (5, 640), (31, 31), (32, 32), (33, 400), (480, 640)])
def test_images_without_texture_or_too_small_have_no_features(shape: tuple[int, int]) -> None:
    assert len(extract_features(load_image(np.zeros(shape, np.uint8)), 500)) == 0


def test_concurrent_threads_extract_the_same_features() -> None:
    images = [load_image(picture(seed)) for seed in range(6)]
    expected = [extract_features(image, 200).descriptors for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: extract_features(image, 200).descriptors, images * 4))
    assert all(np.array_equal(one, expected[index % 6]) for index, one in enumerate(found))


def test_a_lower_fast_threshold_finds_features_at_low_contrast() -> None:
    dim = (picture(3).astype(float) * 0.06 + 100).astype(np.uint8)
    few, many = (len(extract_features(load_image(dim), 500, threshold)) for threshold in (20, 5))
    assert few < many / 2


def test_images_become_views_of_one_model() -> None:
    model = train_object("a", "A", [picture(1), picture_jpeg(2)], SETTINGS)
    assert (model.object_id, model.label, model.version, model.metadata) == ("a", "A", 1, {})
    assert len(model.views) == 2
    assert all(isinstance(view, Features) and len(view) <= SETTINGS.training_features for view in model.views)


@pytest.mark.parametrize("kind", sorted(broken_images()))
def test_an_unusable_image_is_refused(kind: str) -> None:
    with pytest.raises((InvalidImage, ImageTooLarge)) as caught:
        train_object("a", "A", [picture(1), broken_images()[kind]], SETTINGS)
    assert caught.value.advice


def test_an_object_needs_an_image() -> None:
    with pytest.raises(InvalidArgument, match="no training image"):
        train_object("a", "A", [], SETTINGS)


def test_invalid_recognition_settings_are_refused() -> None:
    for wrong in ({"ratio": 1.5}, {"min_inliers": 4}, {"query_features": 0}, {"no_such_setting": 1}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            RecognitionSettings(**wrong)
    with pytest.raises(ConfigurationError, match="longest_side"):
        RecognitionSettings(limits={"longest_side": 5000})
    assert RecognitionSettings(limits={"longest_side": 320}).limits == ImageLimits(longest_side=320)
    assert RecognitionSettings.thorough().training_features > RecognitionSettings().training_features
