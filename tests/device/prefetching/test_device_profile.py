"""Profiles of devices: one row of table 4.1 per number of features; invalid files."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from nearsight.common.errors import ConfigurationError, CorruptStore, NotFound
from nearsight.common.object_cache.profile import CacheProfile, default_profile
from nearsight.device.prefetching.device_profile import DeviceProfile, default_device_profile


def row(features: int, **changes: object) -> CacheProfile:
    values: dict[str, object] = {
        "backend": "auto",
        "query_features": features,
        "largest_k": 10,
        "lookup_ms": (1.0, 0.5),
        "recall": (0.9, -0.01),
        "extraction_ms": 4.0,
        **changes,
    }
    return CacheProfile.model_validate(values)


def test_a_profile_is_unchanged_by_saving_and_loading(tmp_path: Path) -> None:
    profile = DeviceProfile(profiles=(row(200), row(800)))
    profile.save(tmp_path / "device.json")
    assert DeviceProfile.load(tmp_path / "device.json") == profile
    assert profile.feature_counts == (200, 800)


def test_curves_contain_the_extraction_except_for_an_empty_cache() -> None:
    few, many = DeviceProfile(profiles=(row(200), row(800, extraction_ms=9.0))).curves(2)
    assert (few.query_features, many.query_features) == (200, 800)
    np.testing.assert_allclose(few.lookup_ms, [0.0, 5.5, 6.0])
    np.testing.assert_allclose(many.lookup_ms, [0.0, 10.5, 11.0])
    np.testing.assert_allclose(few.recall[1:], [0.89, 0.88])


def test_with_one_number_of_features_there_is_no_choice() -> None:
    profile = DeviceProfile(profiles=(row(200), row(800)))
    assert profile.only(800).profiles == (row(800),)
    with pytest.raises(ConfigurationError, match="no entry for 600 features; choose one of 200, 800"):
        profile.only(600)


@pytest.mark.parametrize("counts", [(), (400, 200), (200, 200)])
def test_numbers_of_features_must_be_different_and_rise(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        DeviceProfile(profiles=tuple(row(count) for count in counts))


def test_the_default_holds_the_four_numbers_of_table_4_1() -> None:
    profile = default_device_profile()
    assert profile.feature_counts == (200, 400, 600, 800)
    curves = profile.curves(40)
    for fewer, more in pairwise(curves):
        assert (fewer.lookup_ms[1:] < more.lookup_ms[1:]).all()
        assert (fewer.recall <= more.recall).all()
    assert all("not measured" in one.dataset for one in profile.profiles)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"kind": "device", "version": 1, "profiles": []}',
        '{"kind": "device", "version": 2, "profiles": []}',
        '{"kind": "edge", "version": 1, "profiles": []}',
        default_profile().model_dump_json(),
        json.dumps({"kind": "device", "version": 1, "profiles": [{"version": 1, "lookup_ms": ["NaN"]}]}),
    ],
)
def test_a_file_that_is_no_device_profile_is_refused_with_advice(tmp_path: Path, content: str) -> None:
    (tmp_path / "device.json").write_text(content)
    with pytest.raises(CorruptStore) as caught:
        DeviceProfile.load(tmp_path / "device.json")
    assert "--device" in caught.value.advice


def test_a_profile_of_an_edge_does_not_read_one_of_a_device(tmp_path: Path) -> None:
    default_device_profile().save(tmp_path / "device.json")
    with pytest.raises(CorruptStore):
        CacheProfile.load(tmp_path / "device.json")


def test_a_missing_file_and_an_unwritable_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        DeviceProfile.load(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError):
        default_device_profile().save(tmp_path / "file" / "device.json")
