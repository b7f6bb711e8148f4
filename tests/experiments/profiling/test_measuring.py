"""Offline analysis: measurements, and the curves that are fitted to them."""

import csv
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.recognition.settings import ImageLimits, RecognitionSettings
from nearsight.experiments.datasets.dataset import Dataset, Query
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.profiling.analysis import default_sizes
from nearsight.experiments.profiling.measuring import (
    PreparedData,
    ProfilingPlan,
    SubsetRow,
    extraction_time,
    fit_polynomial,
    fit_profile,
    measure,
    prepare,
    summarize,
)
from support.pictures import picture

SETTINGS = RecognitionSettings(query_features=300, training_features=300)


def nothing(steps: int) -> None:
    del steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight textured pictures, a shifted photo of each, one photo of something else, one broken file."""
    root = tmp_path_factory.mktemp("pictures")
    (root / "references").mkdir()
    (root / "queries").mkdir()
    labels = []
    for index in range(8):
        exhibit = picture(index)
        cv2.imwrite(str(root / f"references/{index}.png"), exhibit)
        cv2.imwrite(str(root / f"queries/{index}_a.png"), np.roll(exhibit, 15, axis=1))
        labels.append((f"{index}_a.png", str(index)))
    cv2.imwrite(str(root / "queries/other.png"), picture(99))
    (root / "queries/broken.png").write_bytes(b"no image")
    labels += [("other.png", ""), ("broken.png", "1")]
    with (root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "object_id"), *labels])
    return root


@pytest.fixture(scope="module")
def data(folder: Path) -> PreparedData:
    return prepare(load_dataset(folder), SETTINGS, nothing)


def test_unreadable_photos_are_skipped_and_named(data: PreparedData) -> None:
    assert len(data.models) == 8
    assert len(data.queries) == 9
    assert [line.split(":")[0] for line in data.skipped] == ["broken.png"]
    assert data.extraction_ms > 0


def test_images_over_the_limits_are_skipped_and_named(folder: Path, tmp_path: Path) -> None:
    large, small = tmp_path / "large.png", folder / "references" / "1.png"
    cv2.imwrite(str(large), np.tile(picture(0), (2, 2, 1)))
    dataset = Dataset(
        "two",
        (Reference("large", "", (large,)), Reference("1", "", (small,))),
        (Query(large, "large"), Query(folder / "queries" / "1_a.png", "1")),
    )
    limits = ImageLimits(max_bytes=large.stat().st_size - 1)
    prepared = prepare(dataset, SETTINGS.model_copy(update={"limits": limits}), nothing)
    assert [line.split(":")[0] for line in prepared.skipped] == ["large", "large.png"]
    assert [query.object_id for query in prepared.queries] == ["1"]


def test_extraction_is_timed_with_readable_photos(folder: Path) -> None:
    photos = folder / "queries"
    assert extraction_time([photos / "0_a.png", photos / "broken.png"], SETTINGS) > 0
    assert extraction_time([photos / "broken.png"], SETTINGS) == 0.0


def test_every_subset_is_measured_with_relevant_and_noise_photos(data: PreparedData) -> None:
    steps: list[int] = []
    plan = ProfilingPlan(sizes=(4, 8), subsets=3, relevant=3, noise=100)
    rows = measure(data, plan, SETTINGS, steps.append)
    assert sum(steps) == plan.steps == len(rows) == 6
    assert {(row.k, row.relevant, row.noise) for row in rows} == {(4, 3, 5), (8, 3, 1)}
    assert all(row.recall == 1.0 and row.precision == 1.0 and row.lookup_ms > 0 for row in rows)


def test_a_cache_of_all_objects_has_no_time_if_no_photo_shows_another_object(data: PreparedData) -> None:
    photos = tuple(query for query in data.queries if query.object_id is not None)
    known = PreparedData("known", data.models, photos, 1.0)
    rows = measure(known, ProfilingPlan(sizes=(1, 4, 8), subsets=2), SETTINGS, nothing)
    assert {row.k: bool(np.isnan(row.lookup_ms)) for row in rows} == {1: False, 4: False, 8: True}
    profile = fit_profile(rows, known, SETTINGS, 0.0)
    assert [point.k for point in profile.measurements if point.k > 1] == [4]
    assert profile.largest_k == 8
    assert all(row.recall == 1.0 for row in rows if row.k == 8)


def test_the_same_seed_draws_the_same_subsets_and_photos(data: PreparedData) -> None:
    plan = ProfilingPlan(sizes=(4,), subsets=2, relevant=2, noise=2, seed=7)
    runs = [measure(data, plan, SETTINGS, nothing) for _ in range(2)]
    outcomes = [[(row.recall, row.precision, row.relevant, row.noise) for row in rows] for rows in runs]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("sizes", [(), (0,), (9,)])
def test_sizes_beyond_the_data_set_are_refused(data: PreparedData, sizes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match="sizes"):
        measure(data, ProfilingPlan(sizes=sizes), SETTINGS, nothing)


def test_a_measured_profile_can_be_saved_and_loaded(data: PreparedData, tmp_path: Path) -> None:
    rows = measure(data, ProfilingPlan(sizes=(1, 4, 8), subsets=3), SETTINGS, nothing)
    profile = fit_profile(rows, data, SETTINGS, wall_s=0.0)
    profile.save(tmp_path / "profile.json")
    loaded = CacheProfile.load(tmp_path / "profile.json")
    assert loaded == profile
    assert loaded.largest_k == 8
    assert [point.k for point in loaded.measurements] == [1, 4, 8]
    assert loaded.created.startswith("1970-01-01")


def rows_of(law: Callable[[float, np.random.Generator], float], noise: float = 0.0) -> list[SubsetRow]:
    rng = np.random.default_rng(0)
    return [
        SubsetRow(k, subset, "x", 20, 100, law(k, rng) + noise * float(rng.normal()), 0.9, 1.0)
        for k in (1, 25, 50, 100, 200, 300, 400)
        for subset in range(8)
    ]


def test_regression_finds_the_polynomial_of_table_3_2_in_noisy_measurements() -> None:
    coefficients = fit_polynomial(rows_of(lambda k, _: 51.14 + 1.87 * k, noise=5.0), "lookup_ms")
    assert len(coefficients) == 2, "higher terms are insignificant"
    assert coefficients[0] == pytest.approx(51.14, abs=3)
    assert coefficients[1] == pytest.approx(1.87, abs=0.02)


def test_cross_validation_chooses_a_higher_degree_if_necessary() -> None:
    coefficients = fit_polynomial(rows_of(lambda k, _: 5 + 0.001 * k**2, noise=0.5), "lookup_ms")
    assert len(coefficients) == 3
    assert coefficients[2] == pytest.approx(0.001, rel=0.05)


def test_sizes_without_precision_are_ignored_in_the_fit() -> None:
    rows = [
        SubsetRow(k, subset, "x", 20, 0, 1.0, 0.9, float("nan") if k == 1 else 0.95)
        for k in (1, 10, 20)
        for subset in range(4)
    ]
    assert fit_polynomial(rows, "precision") == pytest.approx((0.95, 0.0), abs=1e-9)
    first, *_ = summarize(rows)
    assert (first.precision, first.precision_std) == (None, None)


def test_deviations_are_those_of_a_sample() -> None:
    rows = [SubsetRow(k, s, "x", 20, 0, 1.0 + 2 * s, 0.9, 1.0) for k in (1, 5) for s in range(1 + (k == 5))]
    one, two = summarize(rows)
    assert (one.lookup_ms_std, two.lookup_ms_std) == (0.0, pytest.approx(np.sqrt(2)))


def test_falling_times_become_a_constant(data: PreparedData) -> None:
    profile = fit_profile(rows_of(lambda k, _: 10 - 0.015 * k, noise=0.1), data, SETTINGS, 0.0)
    assert len(profile.lookup_ms) == 1


def test_a_recall_above_one_becomes_a_constant(data: PreparedData) -> None:
    rows = [SubsetRow(k, s, "x", 6, 6, 2.0, 1.0 if k < 9 else 0.8, 1.0) for k in (3, 6, 9) for s in range(2)]
    assert fit_profile(rows, data, SETTINGS, 0.0).recall == pytest.approx((2.8 / 3,))


def test_measurements_without_recall_are_refused(data: PreparedData) -> None:
    rows = [SubsetRow(k, s, "x", 20, 9, 1.0, 0.0, 1.0) for k in (1, 5) for s in range(4)]
    with pytest.raises(InvalidArgument, match="recall"):
        fit_profile(rows, data, SETTINGS, 0.0)


def test_a_recall_that_no_photo_shows_is_unknown(data: PreparedData) -> None:
    nan = float("nan")
    rows = [SubsetRow(k, s, "x", 0, 9, 1.0, nan if k == 1 else 0.5, nan) for k in (1, 5) for s in range(4)]
    profile = fit_profile(rows, data, SETTINGS, 0.0)
    assert [(point.k, point.recall) for point in profile.measurements] == [(1, None), (5, 0.5)]
    assert profile.recall == (0.5,)
    with pytest.raises(InvalidArgument, match="no subset had a photo of its objects"):
        fit_profile(rows[:4], data, SETTINGS, 0.0)


def test_sizes_without_photos_are_left_out(data: PreparedData) -> None:
    photos = tuple(query for query in data.queries if query.object_id == "1")
    few = PreparedData("few", data.models, photos, 1.0)
    rows = measure(few, ProfilingPlan(sizes=(1, 8), subsets=1, noise=0, seed=3), SETTINGS, nothing)
    assert rows[0].relevant == 0
    assert [(point.k, point.recall) for point in summarize(rows)] == [(8, 1.0)]


def test_default_sizes_span_the_data_set() -> None:
    assert default_sizes(400) == (1, 12, 25, 50, 100, 150, 200, 300, 400)
    assert default_sizes(1) == (1,)


def test_a_convex_curve_is_not_fitted_by_a_constant() -> None:
    measured = {1: 3.0, 25: 29.0, 50: 43.0, 100: 66.0, 200: 93.0, 300: 171.0, 400: 331.0}
    rows = [
        SubsetRow(k, subset, "flann-lsh", 12, 12, lookup_ms * (1 + 0.02 * subset), 0.95, 1.0)
        for subset in range(3)
        for k, lookup_ms in measured.items()
    ]
    data = PreparedData("bent", (), (), 5.0)
    profile = fit_profile(rows, data, RecognitionSettings(backend="flann-lsh"), 0.0)
    lookup_ms = profile.curves(400).lookup_ms
    assert lookup_ms[10] < 0.5 * lookup_ms[100] < 0.5 * lookup_ms[300]


def test_noise_at_large_sizes_does_not_change_the_curve_at_small_ones() -> None:
    measured = {1: 3.6, 25: 22.0, 50: 49.0, 100: 82.0, 200: 112.0, 300: 281.0, 400: 206.0}
    rows = [
        SubsetRow(k, subset, "flann-lsh", 12, 12, lookup_ms, 0.95, 1.0)
        for subset in range(2)
        for k, lookup_ms in measured.items()
    ]
    data = PreparedData("scattered", (), (), 5.0)
    profile = fit_profile(rows, data, RecognitionSettings(backend="flann-lsh"), 0.0)
    assert 6.0 < profile.curves(400).lookup_ms[10] < 14.0
