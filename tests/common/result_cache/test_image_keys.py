"""Keys of images: what changes them, what does not, and which images have none."""

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.approximations import prefix
from nearsight.common.result_cache.image_keys import ImageKey, perceptual_hash


def _picture(seed: int) -> np.ndarray:
    blobs = np.random.default_rng(seed).integers(0, 256, (6, 8), dtype=np.uint8)
    return np.asarray(cv2.resize(blobs, (320, 240), interpolation=cv2.INTER_CUBIC), np.uint8)


KEYS = [perceptual_hash(), perceptual_hash(5) | prefix(20)]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_size_and_exposure_of_a_photo_do_not_change_its_key(key: ImageKey) -> None:
    picture = _picture(1)
    first = key(picture)
    assert first is not None
    assert len(first) == 16
    assert key(np.asarray(cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA), np.uint8)) == first
    assert key((picture * 0.8).astype(np.uint8)) == first


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_other_pictures_and_other_contexts_have_other_keys(key: ImageKey) -> None:
    here, there = key.within("museum", "1"), key.within("museum", "2")
    assert len({one(_picture(seed)) for seed in range(8) for one in (here, there)}) > 12
    assert here(_picture(1)) == key.within("museum", "1")(_picture(1))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_what_shows_nothing_has_no_key(key: ImageKey) -> None:
    assert key(np.full((240, 320), 90, np.uint8)) is None
    assert key(np.zeros((1, 1), np.uint8)) is None


@pytest.mark.parametrize(
    "image", [np.zeros((0, 4), np.uint8), np.zeros((4, 4, 3), np.uint8), np.full((4, 4), np.nan)]
)
def test_what_is_no_grey_image_is_refused(image: object) -> None:
    with pytest.raises(InvalidArgument, match="a grey image is"):
        perceptual_hash()(image)  # type: ignore[arg-type]
