"""What the twin learns of photos, from the real pipeline."""

import itertools
from pathlib import Path

import pytest

from nearsight.common.object_cache.profile import default_profile
from nearsight.device.prefetching.device_profile import default_device_profile
from nearsight.experiments.twin.cost_model import slowed
from nearsight.experiments.twin.photo_book import TypicalTimes, measure_photos
from nearsight.experiments.twin.photos import AS_ANY_PHOTO, TwinPhoto
from support.gallery import SETTINGS, SIDE, exhibit_models
from support.pictures import photo_jpeg

_COUNTS = (200, 400)


def _photo(tmp_path: Path, seed: int) -> Path:
    path = tmp_path / f"{seed}.jpg"
    path.write_bytes(photo_jpeg(seed, side=SIDE))
    return path


def _measured(tmp_path: Path, seed: int, object_id: str, slowness: float = 0.0) -> TwinPhoto:
    """A photo of a museum whose edge holds five of six objects; usual looks are so slow, if known."""
    path, models = _photo(tmp_path, seed), exhibit_models(6)
    usual = None
    if slowness:
        device = default_device_profile()
        profiles = tuple(slowed(one, slowness) for one in device.profiles)
        usual = TypicalTimes(
            device.model_copy(update={"profiles": profiles}),
            slowed(default_profile(), slowness),
            tuple(model.object_id for model in models[:5]),
            {"exhibit-1": ("exhibit-1", "exhibit-2", "exhibit-3")},
            {_photo(tmp_path, 2): "exhibit-2"},
        )
    ticks = itertools.count(step=0.001)
    return measure_photos(
        {path: object_id}, models, _COUNTS, SETTINGS, usual, thread_time=lambda: next(ticks)
    )[path]


def test_a_clear_photo_is_known_with_few_features_and_as_hard_as_any(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1")
    assert all(photo.recognised_with(count) for count in _COUNTS)
    assert photo.at_second_look
    assert {photo.tier_effort, *(photo.device_effort(count) for count in _COUNTS)} == {AS_ANY_PHOTO}


def test_a_photo_is_as_hard_however_fast_the_machine_is(tmp_path: Path) -> None:
    fast, slow = (_measured(tmp_path, 1, "exhibit-1", slowness) for slowness in (0.2, 5.0))
    assert fast.tier_effort.extraction == 1.0, "all take the same here"
    assert fast.tier_effort == slow.tier_effort
    assert fast.device_efforts == slow.device_efforts


def test_how_hard_a_photo_is_is_its_time_over_that_of_the_profile(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1", 1.0)
    edge = default_profile()
    usual_ms = edge.extraction_ms / float(edge.curves(5).lookup_ms[-1])  # extraction sets the pace
    assert photo.tier_effort.found == pytest.approx(usual_ms, abs=1e-3)


def test_what_the_edge_does_not_hold_yet_is_known_to_it_later(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 5, "exhibit-5", 1.0)
    assert photo.recognised_with(max(_COUNTS))


def test_among_strangers_a_photo_is_not_looked_for_where_its_own_object_is(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 5, "exhibit-5", 1.0)
    assert photo.tier_effort.missed is None, "the only object that was not taught is its own"


def test_what_nobody_knows_is_unknown_at_second_look_too(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 77, "", 1.0)
    assert not photo.recognised_with(max(_COUNTS))
    assert not photo.at_second_look
    assert photo.second_effort != 1.0, "measured"
