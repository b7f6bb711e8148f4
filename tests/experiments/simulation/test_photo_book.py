"""What the twin learns of photos, from the real pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.caching.device_profile import default_device_profile
from nearsight.common.caching.profile import default_profile
from nearsight.experiments.simulation.cost_model import slowed
from nearsight.experiments.simulation.photo_book import Usual, measure_photos
from nearsight.experiments.simulation.photos import TwinPhoto
from support.gallery import SETTINGS, SIDE, exhibit_models
from support.pictures import photo_jpeg

_COUNTS = (200, 400)


def _measured(tmp_path: Path, seed: int, object_id: str, usual: Usual | None = None) -> TwinPhoto:
    path = tmp_path / f"{seed}.jpg"
    path.write_bytes(photo_jpeg(seed, side=SIDE))
    return measure_photos({path: object_id}, exhibit_models(6), _COUNTS, SETTINGS, usual)[path]


def _usual(slowness: float) -> Usual:
    device = default_device_profile()
    profiles = tuple(slowed(one, slowness) for one in device.profiles)
    return Usual(device.model_copy(update={"profiles": profiles}), slowed(default_profile(), slowness))


def test_a_clear_photo_is_known_with_few_features_and_as_hard_as_any(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1")
    assert all(photo.known_with(count) for count in _COUNTS)
    assert photo.at_second_look
    assert (photo.device_efforts, photo.tier_effort) == ((), 1.0)


@pytest.mark.parametrize(("slowness", "effort"), [(1000.0, 0.2), (0.001, 5.0)])
def test_how_hard_a_photo_is_is_its_time_over_what_is_usual_within_limits(
    tmp_path: Path, slowness: float, effort: float
) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1", _usual(slowness))
    assert photo.device_efforts == tuple((count, effort) for count in _COUNTS)
    assert photo.tier_effort == effort


def test_what_nobody_knows_has_no_effort_of_its_own(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 77, "", _usual(1.0))
    assert not photo.known_with(max(_COUNTS))
    assert not photo.at_second_look
    assert (photo.device_efforts, photo.tier_effort) == ((), 1.0)
