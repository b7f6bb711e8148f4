"""Keys of photos: invariance, photos without keys, and joined keys."""

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features
from nearsight.common.result_cache.image_keys import (
    THUMBNAIL_BYTES,
    Alternatives,
    PhotoKeys,
    feature_keys,
    layout_keys,
    min_hash,
    perceptual_hash,
    pixels_of,
    thumbnail_of,
)
from support.pictures import picture


def _picture(seed: int) -> np.ndarray:
    blobs = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(blobs, (320, 240), interpolation=cv2.INTER_CUBIC), np.uint8)


def _grey(seed: int) -> np.ndarray:
    return np.asarray(cv2.cvtColor(_picture(seed), cv2.COLOR_BGR2GRAY), np.uint8)


def _features(seed: int, count: int = 300) -> Features:
    return extract_features(load_image(picture(seed, side=320)), count)


KEYS = {
    "hash": (perceptual_hash(), _grey),
    "grey layout": (layout_keys(), _grey),
    "colour layout": (layout_keys(), _picture),
    "features": (feature_keys(), _features),
    "min-hash": (min_hash(), _features),
}
ALL = pytest.mark.parametrize(("keys", "photo"), KEYS.values(), ids=list(KEYS))


@ALL
def test_keys_are_deterministic_and_depend_on_the_context(
    keys: PhotoKeys[object], photo: Callable[[int], object]
) -> None:
    first = keys(photo(1))
    assert first
    assert {len(key) for key in first} == {16}
    assert keys(photo(1)) == first
    assert not {*first} & {*keys.within("museum", "1")(photo(1))}
    assert keys.within("museum", "1")(photo(1)) == keys.within("museum", "1")(photo(1))


@ALL
def test_other_pictures_have_other_keys(keys: PhotoKeys[object], photo: Callable[[int], object]) -> None:
    first = keys(photo(1))
    assert not any({*first} & {*keys(photo(seed))} for seed in range(2, 8))


@pytest.mark.parametrize("photo", [_grey, _picture])
@pytest.mark.parametrize("keys", [perceptual_hash(), layout_keys()], ids=["hash", "layout"])
def test_size_and_contrast_of_a_photo_keep_at_least_one_key(
    keys: PhotoKeys[np.ndarray], photo: Callable[[int], np.ndarray]
) -> None:
    small = np.asarray(cv2.resize(photo(1), (160, 120), interpolation=cv2.INTER_AREA), np.uint8)
    assert {*keys(photo(1))} & {*keys(small)}
    pale = (photo(1) * 0.8 + 0.2 * photo(1).mean()).astype(np.uint8)
    assert {*keys(photo(1))} & {*keys(pale)}


@pytest.mark.parametrize("photo", [_grey, _picture])
def test_small_shifts_keep_one_of_several_keys_but_often_change_a_single_one(
    photo: Callable[[int], np.ndarray],
) -> None:
    kinds = [layout_keys(), layout_keys(grids=1)]
    kept = [0, 0]
    shifts = [(dx, dy) for dx in (-5, 0, 5) for dy in (-4, 4)]
    for seed in range(10):
        for dx, dy in shifts:
            moved = np.roll(photo(seed), (dy, dx), axis=(0, 1))
            for kind, keys in enumerate(kinds):
                kept[kind] += bool({*keys(photo(seed))} & {*keys(moved)})
    total = 10 * len(shifts)
    assert kept[0] > 0.9 * total
    assert kept[1] < 0.6 * total


def test_a_thumbnail_has_the_keys_of_its_photo() -> None:
    keys = layout_keys()
    for seed in range(5):
        cells = thumbnail_of(_grey(seed))
        assert len(cells) == THUMBNAIL_BYTES
        assert keys(pixels_of(cells)) == keys(_grey(seed)) != ()


def test_colour_distinguishes_photos_that_are_equal_in_grey() -> None:
    colour = _picture(1)
    grey = cv2.cvtColor(colour, cv2.COLOR_BGR2GRAY)
    tinted = np.clip(colour.astype(int) + np.array((40, 0, -15)), 0, 255).astype(np.uint8)
    keys = layout_keys()
    assert {*keys(np.asarray(grey, np.uint8))} & {
        *keys(np.asarray(cv2.cvtColor(tinted, cv2.COLOR_BGR2GRAY), np.uint8))
    }
    assert not {*keys(colour)} & {*keys(tinted)}


def test_photos_of_one_view_share_min_hashes() -> None:
    keys, first = min_hash(), _features(1)
    again = replace(
        first,
        keypoints=first.keypoints[40:],
        descriptors=first.descriptors[40:],
        strengths=first.strengths[40:],
    )
    assert len({*keys(first)} & {*keys(again)}) >= 4


@pytest.mark.parametrize("keys", [perceptual_hash(), layout_keys()], ids=["hash", "layout"])
@pytest.mark.parametrize("shape", [(240, 320), (240, 320, 3), (1, 1)])
def test_a_uniform_photo_has_no_key(keys: PhotoKeys[np.ndarray], shape: tuple[int, ...]) -> None:
    assert keys(np.full(shape, 90, np.uint8)) == ()


@pytest.mark.parametrize("keys", [min_hash(), feature_keys()], ids=["min-hash", "features"])
def test_too_few_features_have_no_key(keys: PhotoKeys[Features]) -> None:
    assert keys(_features(1).strongest(19)) == ()


def test_changed_features_keep_one_of_several_keys() -> None:
    """A tenth of them is replaced, and all move a little."""
    keys, kept = feature_keys(), 0
    for seed in range(10):
        first, others = _features(seed), _features(seed + 50)
        again = replace(
            first,
            keypoints=(first.keypoints + 5).astype(np.float32),
            descriptors=np.concatenate([first.descriptors[:270], others.descriptors[:30]]),
        )
        kept += bool({*keys(first)} & {*keys(again)})
    assert kept > 7


@pytest.mark.parametrize("keys", [perceptual_hash(), layout_keys()], ids=["hash", "layout"])
@pytest.mark.parametrize(
    "image",
    [
        np.zeros((0, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros(4, np.uint8),
        np.full((4, 4), np.nan),
    ],
)
def test_arrays_that_are_not_images_are_refused(keys: PhotoKeys[np.ndarray], image: np.ndarray) -> None:
    with pytest.raises(InvalidArgument, match="an image is"):
        keys(image)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layout_keys(step=0),
        lambda: layout_keys(step=float("nan")),
        lambda: layout_keys(grids=0),
        lambda: Alternatives(0),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match="got"):
        make()


def test_a_photo_is_looked_up_under_the_key_of_an_earlier_photo_with_a_common_alternative() -> None:
    alternatives = Alternatives(10)
    assert alternatives.resolve(("a", "b")) == "a"
    alternatives.join(("a", "b"), "a")
    assert alternatives.resolve(("x", "b")) == "a"
    alternatives.join(("x", "b"), "a")
    assert alternatives.resolve(("x", "y")) == "a"
    assert alternatives.resolve(("c", "d")) == "c"
    assert alternatives.resolve(()) is None


def test_a_lookup_alone_does_not_join_keys() -> None:
    alternatives = Alternatives(10)
    alternatives.join(("a", "b"), "a")
    assert alternatives.resolve(("b", "c")) == "a"
    assert alternatives.resolve(("c", "d")) == "c", "otherwise a view could drift into another"


def test_the_keys_that_were_joined_first_are_evicted() -> None:
    alternatives = Alternatives(3)
    alternatives.join(("a", "b"), "a")
    alternatives.join(("c", "d"), "c")
    assert len(alternatives) == 3
    assert alternatives.resolve(("a",)) == "a"
    assert alternatives.resolve(("x", "b")) == "a"
    assert alternatives.resolve(("y", "d")) == "c"
