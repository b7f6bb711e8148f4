"""ORB's features are those of the low threshold, whichever threshold found them."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.recognition.corner_threshold import LEVELS, fills, level_quotas, likely_threshold
from nearsight.common.recognition.extraction import KEYPOINT_STEPS_PER_PX, OrbExtractor
from nearsight.common.recognition.images import GrayImage
from support.pictures import picture

LOWEST = 5
EXTRACTOR = OrbExtractor(LOWEST)


def photo(seed: int, contrast: float = 1.0, blur_px: float = 0.0) -> NDArray[np.uint8]:
    """A grey picture, 300 pixels wide, paler or out of focus."""
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
    features = EXTRACTOR.extract(GrayImage(pixels, (300, 300)), count)
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


def test_a_rich_picture_is_searched_with_a_higher_threshold() -> None:
    assert likely_threshold(photo(1), level_quotas(100)[-1], LOWEST) > LOWEST


@pytest.mark.parametrize("pixels", [photo(1, contrast=0.0), photo(1)[:100, :40]], ids=["blank", "narrow"])
def test_a_picture_with_few_corners_is_searched_with_the_low_one(pixels: NDArray[np.uint8]) -> None:
    assert likely_threshold(pixels, level_quotas(100)[-1], LOWEST) == LOWEST


def test_a_threshold_that_empties_a_level_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.common.recognition.extraction.likely_threshold", lambda *_: 90)
    pixels = photo(2)
    assert extracted(pixels, 500) == found_at_lowest(pixels, 500)


@given(st.integers(1, 5000))
def test_quotas_of_the_levels_add_up(count: int) -> None:
    quotas = level_quotas(count)
    assert len(quotas) == LEVELS
    assert sum(quotas) >= count  # rounding may give the last level none


@pytest.mark.parametrize("count", [50, 200, 333, 400, 800, 1000])
def test_opencv_keeps_at_least_the_quota_of_a_level_that_has_more(count: int) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (480, 640)).astype(np.uint8)
    orb = cv2.ORB.create(nfeatures=count, fastThreshold=LOWEST, scoreType=cv2.ORB_FAST_SCORE)
    octaves = [point.octave for point in orb.detect(noise)]
    assert fills(octaves, level_quotas(count))
    kept = np.bincount(octaves, minlength=LEVELS)
    assert (kept <= np.array(level_quotas(count)) * 1.3 + 3).all()  # the rest are as strong as the last


def test_a_level_without_a_corner_does_not_fill_its_quota() -> None:
    quotas = (3, 2, 1, 1, 1, 1, 1, 1)
    assert fills([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7], quotas)
    assert not fills([0, 0, 0, 1, 1, 2, 3, 4, 5, 6], quotas)
