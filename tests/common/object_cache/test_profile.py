"""Profile files are read as written or refused if impossible; profiles are corrected at run time."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nearsight.common.errors import ConfigurationError, CorruptStore, InvalidArgument, NotFound
from nearsight.common.object_cache.profile import CacheProfile, LookupCorrection, Measurement, default_profile
from support.caching import profile_of_table_3_2


def test_a_profile_is_unchanged_after_saving_and_loading(tmp_path: Path) -> None:
    point = Measurement(
        k=10, lookup_ms=2.5, lookup_ms_std=0.1, recall=0.9, recall_std=0.01, precision=1.0, precision_std=0.0
    )
    profile = profile_of_table_3_2().model_copy(
        update={"measurements": (point,), "machine": "x86_64, 2 cores"}
    )
    profile.save(tmp_path / "deep/profile.json")
    assert CacheProfile.load(tmp_path / "deep/profile.json") == profile
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["profile.json"]


def test_curves_are_the_polynomials_of_table_3_2() -> None:
    curves = profile_of_table_3_2().curves(400)
    assert curves.lookup_ms[100] == pytest.approx(51.14 + 187)
    assert curves.recall[100] == pytest.approx(0.886)
    assert curves.lookup_ms[0] == 0, "an empty cache is not looked up"


def test_beyond_the_measured_sizes_the_lookup_time_keeps_growing_and_recall_stays() -> None:
    profile = profile_of_table_3_2().model_copy(update={"lookup_ms": (10.0, 0.0, 0.001), "largest_k": 100})
    curves = profile.curves(1000)
    assert np.diff(curves.lookup_ms[100:]) == pytest.approx((20.0 - 12.5) / 50)
    assert (curves.recall[100:] == curves.recall[100]).all()


@given(
    lookup=st.lists(st.floats(-5, 50), min_size=1, max_size=4),
    recall=st.lists(st.floats(-1, 1), min_size=1, max_size=3),
    largest_k=st.integers(1, 500),
    k_max=st.integers(0, 1000),
)
def test_curves_of_an_accepted_profile_are_always_usable(
    lookup: list[float], recall: list[float], largest_k: int, k_max: int
) -> None:
    try:
        profile = CacheProfile(
            backend="x", query_features=1, largest_k=largest_k, lookup_ms=tuple(lookup), recall=tuple(recall)
        )
    except ValidationError:
        return
    curves = profile.curves(k_max)
    assert curves.lookup_ms.shape == (k_max + 1,)
    assert np.isfinite(curves.lookup_ms).all()
    assert (np.diff(curves.lookup_ms) >= 0).all()
    assert (curves.lookup_ms[1:] > 0).all()
    for probability in (curves.recall, curves.precision):
        assert ((probability >= 0) & (probability <= 1)).all()


def test_a_small_dip_of_the_fit_is_flattened() -> None:
    curves = (
        profile_of_table_3_2().model_copy(update={"lookup_ms": (10.0, -0.01), "largest_k": 100}).curves(100)
    )
    assert (np.diff(curves.lookup_ms) >= 0).all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "version 1"),
        ({"version": None}, "version 1"),
        ({"lookup_ms": [5.0, -1.0]}, "not positive"),
        ({"lookup_ms": [50.0, -0.1]}, "decreases"),
        ({"lookup_ms": ["fast"]}, "lookup_ms"),
        ({"lookup_ms": []}, "lookup_ms"),
        ({"lookup_ms": [float("nan")]}, "lookup_ms"),
        ({"recall": [7.0]}, "recall"),
        ({"recall": [-0.1]}, "recall"),
        ({"largest_k": 0}, "largest_k"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_an_impossible_profile_is_refused_with_advice(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    content = json.loads(profile_of_table_3_2().model_dump_json()) | change
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptStore, match=reason) as caught:
        CacheProfile.load(path)
    assert "nearsight profile" in caught.value.advice
    assert path.read_text() == json.dumps(content), "the file is not changed"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"version": 1}'])
def test_a_file_that_is_not_a_profile_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(CorruptStore):
        CacheProfile.load(path)


def test_a_missing_file_and_a_folder_give_different_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no profile"):
        CacheProfile.load(tmp_path / "absent.json")
    with pytest.raises(CorruptStore):
        CacheProfile.load(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError):
        default_profile().save(tmp_path / "file" / "profile.json")


def test_the_default_profile_states_that_it_was_not_measured() -> None:
    assert "not measured" in default_profile().dataset


@pytest.mark.parametrize("ratio", [3.0, 50.0])
def test_a_correction_converges_to_the_ratio_of_measured_to_predicted(ratio: float) -> None:
    correction = LookupCorrection()
    for _ in range(300):
        correction.observe(10.0 * ratio, 10.0)
    assert correction.factor == pytest.approx(ratio, rel=1e-3)


def test_one_outlier_hardly_changes_the_correction() -> None:
    correction = LookupCorrection()
    correction.observe(10_000.0, 10.0)
    assert correction.factor < 1.5


@pytest.mark.parametrize(
    ("measured", "predicted"), [(math.nan, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, math.inf)]
)
def test_impossible_times_do_not_change_the_correction(measured: float, predicted: float) -> None:
    correction = LookupCorrection()
    correction.observe(measured, predicted)
    assert correction.factor == 1.0


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_a_factor_outside_of_its_range_is_refused(factor: float) -> None:
    with pytest.raises(InvalidArgument):
        LookupCorrection(factor)


def slowed(ratio: float = 30.0) -> LookupCorrection:
    correction = LookupCorrection()
    for _ in range(200):
        correction.observe(ratio * 10.0, 10.0)
    return correction


@pytest.mark.parametrize("ratio", [30.0, 1 / 30.0])
def test_without_lookups_a_correction_returns_to_1(ratio: float) -> None:
    correction = slowed(ratio)
    for _ in range(200):
        correction.relax()
    assert correction.factor == pytest.approx(1.0, abs=0.1)


def test_the_return_depends_on_the_number_of_requests_and_not_of_calls() -> None:
    often, seldom = slowed(), slowed()
    for _ in range(12):
        often.relax(1)
        often.relax(0)
    seldom.relax(12)
    assert often.factor == pytest.approx(seldom.factor)


def fail_trial(correction: LookupCorrection, lookups: int = 3) -> float:
    """A few slow lookups, then an empty cache again; the half-life that follows."""
    for _ in range(lookups):
        correction.observe(300.0, 10.0)
    correction.relax(0)
    return correction.half_life_requests


def test_each_failed_trial_doubles_the_half_life_until_trials_are_rare() -> None:
    correction = slowed()
    correction.relax(0)
    assert correction.half_life_requests == 20
    assert [fail_trial(correction) for _ in range(6)] == [40, 80, 160, 320, 400, 400]


def test_a_cache_that_was_kept_for_long_resets_the_half_life() -> None:
    correction = slowed()
    correction.relax(0)
    assert [fail_trial(correction) for _ in range(2)] == [40, 80]
    assert fail_trial(correction, lookups=8 * 80 - 1) == 160
    assert fail_trial(correction, lookups=8 * 160) == 20


def test_a_correction_with_a_long_half_life_still_returns() -> None:
    correction = slowed()
    for _ in range(20):
        fail_trial(correction)
    correction.relax(5 * 400)
    assert correction.factor < 1.2


def test_each_failed_trial_widens_the_band_of_indifference() -> None:
    correction = slowed()
    assert correction.indifference == 0
    correction.relax(0)
    assert correction.indifference == 0, "the first measurements are not a failed trial"
    widths = []
    for _ in range(4):
        fail_trial(correction)
        widths.append(correction.indifference)
    assert widths == pytest.approx([0.04, 0.08, 0.1, 0.1])
    fail_trial(correction, lookups=8 * 400)
    assert correction.indifference == 0
