"""Photos of the twin, measured with the real pipeline."""

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
    """Measure a photo of a museum of six objects, of which the edge holds five, on a machine this slow."""
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


def test_a_clear_photo_is_recognised_with_few_features_and_without_profiles_has_the_usual_effort(
    tmp_path: Path,
) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1")
    assert all(photo.recognised_with(count) for count in _COUNTS)
    assert photo.at_second_look
    assert {photo.tier_effort, *(photo.device_effort(count) for count in _COUNTS)} == {AS_ANY_PHOTO}


def test_the_effort_of_a_photo_does_not_depend_on_the_speed_of_the_machine(tmp_path: Path) -> None:
    fast, slow = (_measured(tmp_path, 1, "exhibit-1", slowness) for slowness in (0.2, 5.0))
    assert fast.tier_effort.extraction == 1.0, "all extractions take the same time here"
    assert fast.tier_effort == slow.tier_effort
    assert fast.device_efforts == slow.device_efforts


def test_the_effort_of_a_photo_is_its_time_relative_to_the_profile(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1", 1.0)
    edge = default_profile()
    usual_ms = edge.extraction_ms / float(edge.curves(5).lookup_ms[-1])  # extraction is the reference
    assert photo.tier_effort.found == pytest.approx(usual_ms, abs=1e-3)


def test_objects_that_the_edge_does_not_hold_yet_are_recognised_later(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 5, "exhibit-5", 1.0)
    assert photo.recognised_with(max(_COUNTS))


def test_a_miss_is_measured_among_other_objects_only(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 5, "exhibit-5", 1.0)
    assert photo.tier_effort.missed is None, "the only object that the edge lacks is its own"


def test_a_photo_outside_the_catalogue_is_unknown_at_both_looks(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 77, "", 1.0)
    assert not photo.recognised_with(max(_COUNTS))
    assert not photo.at_second_look
    assert photo.second_effort != 1.0, "measured"
