"""What the twin learns of photos, from the real pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nearsight.experiments.simulation.photo_book import measure_photos
from nearsight.experiments.simulation.photos import Effort, TwinPhoto
from support.gallery import SETTINGS, SIDE, exhibit_models
from support.pictures import photo_jpeg

_COUNTS = (200, 400)


def _photo(tmp_path: Path, seed: int) -> Path:
    path = tmp_path / f"{seed}.jpg"
    path.write_bytes(photo_jpeg(seed, side=SIDE))
    return path


def _measured(
    tmp_path: Path, seed: int, object_id: str, usual: Mapping[Path, str] | None = None
) -> TwinPhoto:
    path = _photo(tmp_path, seed)
    return measure_photos({path: object_id}, exhibit_models(6), _COUNTS, SETTINGS, usual)[path]


def test_a_clear_photo_is_known_with_few_features_and_as_hard_as_any(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1")
    assert all(photo.known_with(count) for count in _COUNTS)
    assert photo.at_second_look
    assert {photo.tier_effort, *(photo.device_effort(count) for count in _COUNTS)} == {Effort()}


def test_a_photo_is_about_as_hard_as_itself_and_harder_where_its_object_is_not(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 1, "exhibit-1", {_photo(tmp_path, 1): "exhibit-1"})
    for effort in (photo.tier_effort, *(photo.device_effort(count) for count in _COUNTS)):
        assert effort.found == pytest.approx(1.0, rel=0.6)
        assert effort.missed is not None
        assert effort.missed != 1.0, "measured"


def test_of_what_nobody_knows_only_the_misses_are_measured(tmp_path: Path) -> None:
    photo = _measured(tmp_path, 77, "", {_photo(tmp_path, 1): "exhibit-1"})
    assert not photo.known_with(max(_COUNTS))
    assert not photo.at_second_look
    assert photo.tier_effort.found == 1.0
    assert photo.tier_effort.missed is not None
