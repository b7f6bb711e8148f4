"""Photos that are sampled from measured ones."""

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.experiments.twin.photos import NEVER, Effort, SampledPhotos, TwinPhoto

CLEAR = TwinPhoto(
    "a",
    20_000,
    200.0,
    at_second_look=True,
    device_efforts=((200, Effort(0.8, 0.5, 1.9)), (800, Effort(0.7, 0.4, 1.6))),
    tier_effort=Effort(0.7, 0.5, 2.6),
)
HARD = TwinPhoto(
    "b",
    60_000,
    800.0,
    at_second_look=True,
    device_efforts=((200, Effort(1.4, 1.0, 1.2)), (800, Effort(1.3, 2.0, 1.7))),
    tier_effort=Effort(1.3, 2.1, 2.8),
)
HOPELESS = TwinPhoto("c", 15_000, NEVER, at_second_look=False, second_effort=0.8)
STRANGE = TwinPhoto("", 30_000, NEVER, at_second_look=False, tier_effort=Effort(1.0, 1.0, 2.7))
SAMPLE = ((6.0, CLEAR), (3.0, HARD), (1.0, HOPELESS), (1.0, STRANGE))

_DRAWS = 2000


def drawn(seed: int, object_id: str = "x", count: int = _DRAWS) -> list[TwinPhoto]:
    photos = SampledPhotos(SAMPLE, np.random.default_rng(seed))
    return [photos.photo(object_id) for _ in range(count)]


@given(seed=st.integers(0, 2**32))
def test_a_drawn_photo_has_all_values_of_one_measured_photo(seed: int) -> None:
    whole = {(photo.size_bytes, photo.least_features, photo.device_efforts) for _, photo in SAMPLE[:3]}
    found = drawn(seed, count=20)
    assert {(photo.size_bytes, photo.least_features, photo.device_efforts) for photo in found} <= whole
    assert {photo.object_id for photo in found} == {"x"}


@pytest.mark.parametrize("seed", range(3))
def test_photos_are_drawn_by_their_weights(seed: int) -> None:
    found = Counter(photo.size_bytes for photo in drawn(seed))
    for weight, photo in SAMPLE[:3]:
        share = weight / 10.0
        error = np.sqrt(share * (1.0 - share) / _DRAWS)
        assert found[photo.size_bytes] / _DRAWS == pytest.approx(share, abs=5 * error)


def test_the_same_seed_draws_the_same_photos_in_another_process_too() -> None:
    sample = pickle.loads(pickle.dumps(SAMPLE))
    photos = SampledPhotos(sample, np.random.default_rng(7))
    assert [photos.photo("x") for _ in range(50)] == drawn(7, count=50)
    assert drawn(8, count=50) != drawn(7, count=50)


def test_photos_outside_the_catalogue_are_drawn_from_measured_ones() -> None:
    assert set(drawn(1, object_id="", count=20)) == {STRANGE}


def test_without_such_photos_they_are_derived_from_photos_of_exhibits() -> None:
    photos = SampledPhotos(((1.0, HARD),), np.random.default_rng(1))
    photo = photos.photo("")
    assert not photo.object_id
    assert not photo.recognised_with(800)
    assert not photo.at_second_look
    assert photo.tier_effort == HARD.tier_effort
