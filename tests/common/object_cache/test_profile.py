"""A profile file is read back as written, and not believed when it cannot be true."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nearsight.common.errors import ConfigurationError, CorruptStore, NotFound
from nearsight.common.object_cache.profile import CacheProfile, Measurement, default_profile
from support.caching import profile_of_table_3_2


def test_a_profile_survives_a_file(tmp_path: Path) -> None:
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
    assert curves.lookup_ms[0] == 0, "an empty cache is not asked"


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
        ({"lookup_ms": [50.0, -0.1]}, "falls"),
        ({"lookup_ms": ["fast"]}, "lookup_ms"),
        ({"lookup_ms": []}, "lookup_ms"),
        ({"lookup_ms": [float("nan")]}, "lookup_ms"),
        ({"recall": [7.0]}, "recall"),
        ({"recall": [-0.1]}, "recall"),
        ({"largest_k": 0}, "largest_k"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_profile_that_cannot_be_true_is_refused_with_advice(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    content = json.loads(profile_of_table_3_2().model_dump_json()) | change
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptStore, match=reason) as caught:
        CacheProfile.load(path)
    assert "nearsight profile" in caught.value.advice
    assert path.read_text() == json.dumps(content), "left as it is"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"version": 1}'])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(CorruptStore):
        CacheProfile.load(path)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no profile"):
        CacheProfile.load(tmp_path / "absent.json")
    with pytest.raises(CorruptStore):
        CacheProfile.load(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError):
        default_profile().save(tmp_path / "file" / "profile.json")


def test_the_default_says_that_it_was_not_measured() -> None:
    assert "not measured" in default_profile().dataset
