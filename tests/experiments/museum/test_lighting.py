"""Light effects on photos."""

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidImage
from nearsight.experiments.museum.camera.lighting import DAYLIGHT, Light, relit
from support.pictures import photo_jpeg

PHOTO = photo_jpeg(1, side=240)


def pixels(light: Light, seed: int = 1) -> np.ndarray:
    data = relit(PHOTO, light, np.random.default_rng(seed))
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).astype(np.float64)


def detail(image: np.ndarray) -> float:
    return float(cv2.Laplacian(image.mean(axis=2), cv2.CV_64F).std())


def test_daylight_does_not_change_a_photo() -> None:
    assert relit(PHOTO, DAYLIGHT, np.random.default_rng(1)) is PHOTO


def test_a_small_change_of_light_changes_the_photo_little() -> None:
    before = cv2.imdecode(np.frombuffer(PHOTO, np.uint8), cv2.IMREAD_COLOR).astype(np.float64)
    assert np.abs(pixels(Light(exposure=0.999)) - before).mean() < 3


def test_low_exposure_is_darker_and_gains_change_colours() -> None:
    day = pixels(Light(exposure=0.999))
    assert pixels(Light(exposure=0.1)).mean() < 0.5 * day.mean()
    blue, _green, red = pixels(Light(gains=(0.2, 0.6, 1.2))).mean(axis=(0, 1))
    assert red > 1.5 * blue


def test_blur_and_veil_reduce_detail_and_contrast() -> None:
    day, misted = pixels(Light(exposure=0.999)), pixels(Light(blur_px=2.0, veil=0.4))
    assert detail(misted) < 0.5 * detail(day)
    assert misted.std() < day.std()


def test_noise_depends_on_the_seed() -> None:
    noisy = Light(noise_levels=8.0)
    assert np.array_equal(pixels(noisy, 1), pixels(noisy, 1))
    assert not np.array_equal(pixels(noisy, 1), pixels(noisy, 2))


def test_data_that_are_no_image_are_refused() -> None:
    with pytest.raises(InvalidImage):
        relit(b"no photo", Light(exposure=0.5), np.random.default_rng(1))
