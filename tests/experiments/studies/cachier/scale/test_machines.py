"""Costs and photos of the twin: measured, stored, or those of the dissertation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.errors import NotFound, SetupError
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.cachier.scale import machines
from nearsight.experiments.studies.cachier.scale.machines import (
    machines_of,
    measure_machines,
    paper_machines,
    widened,
)
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE, Amount
from nearsight.experiments.studies.cachier.scale.photos import PhotoKind, mark_of
from nearsight.experiments.studies.cachier.scale.sessions import play_on_twin
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.session import LOAD_BALANCED


def profile(largest_k: int, lookup_ms: tuple[float, ...]) -> CacheProfile:
    return CacheProfile(
        backend="auto",
        query_features=800,
        largest_k=largest_k,
        lookup_ms=lookup_ms,
        recall=(0.9,),
        extraction_ms=5.0,
    )


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    """Stored costs and photos; photos that are measured again have another median size."""
    monkeypatch.setattr(machines, "_measured_costs", lambda _options, _data, path, _: CostModel.load(path))
    monkeypatch.setattr(machines, "dataset_of", lambda *_: None)
    monkeypatch.setattr(machines, "measure_kind", lambda _data, costs, *_: photos_over(costs, 1.0))
    costs = CostModel.assumed()
    costs.save(tmp_path / "testbed/scale/costs.json")
    photos_over(costs, 2.0).save(tmp_path / "testbed/scale/photos.json")
    return RunOptions(on="twin", costs="measured", museums=tmp_path / "museums")


def photos_over(costs: CostModel, median_bytes: float) -> PhotoKind:
    update = {"measured_over": mark_of(costs), "median_bytes": median_bytes}
    return PhotoKind.of(costs).model_copy(update=update)


def machines_after_measuring(options: RunOptions) -> tuple[str, float]:
    measure_machines(options, lambda _line: None)
    found = machines_of(options)
    return found.costs.fitted_to, found.photos.median_bytes


def test_stored_measurements_are_reused(measured: RunOptions) -> None:
    assert machines_after_measuring(measured) == ("nothing: built-in", 2.0)


def test_photos_of_an_older_version_are_measured_again_and_the_costs_are_kept(measured: RunOptions) -> None:
    path = measured.museums.parent / "testbed/scale/photos.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    assert machines_after_measuring(measured) == ("nothing: built-in", 1.0)


@pytest.mark.parametrize(
    ("edge", "median_bytes"), [(profile(9, (1.0,)), 1.0), (CostModel.assumed().edge, 2.0)]
)
def test_photos_are_measured_again_if_the_profiles_changed(
    measured: RunOptions, edge: CacheProfile, median_bytes: float
) -> None:
    (measured.museums.parent / "testbed/scale/costs.json").unlink()
    CostModel.assumed().model_copy(update={"edge": edge, "fitted_to": "anew"}).save(
        measured.museums.parent / "testbed/twin/costs.json"
    )
    assert machines_after_measuring(measured) == ("anew", median_bytes)


def test_the_mark_of_machines_changes_with_the_photos() -> None:
    machines = machines_of(RunOptions(on="twin", costs="measured", smoke=True))
    photos = machines.photos.model_copy(update={"median_bytes": 1.0})
    assert replace(machines, photos=photos).mark != machines.mark


def test_the_mark_of_machines_changes_with_the_costs() -> None:
    smoke = RunOptions(on="twin", costs="measured", smoke=True)
    marks = [machines_of(replace(smoke, costs=costs)).mark for costs in ("measured", "paper", "testbed")]
    assert len(set(marks)) == 3
    assert machines_of(smoke).mark == marks[0]


def test_a_run_ends_when_another_one_measures_the_costs_again(measured: RunOptions) -> None:
    begun = replace(measured, costs_mark=machines_of(measured).mark)
    assert machines_of(begun) == machines_of(measured)
    again = CostModel.assumed().model_copy(update={"call_ms": 2.0})
    again.save(measured.museums.parent / "testbed/scale/costs.json")
    with pytest.raises(SetupError, match="measured again by another run"):
        machines_of(begun)


def test_missing_measured_costs_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        machines_of(RunOptions(on="twin", costs="measured", museums=tmp_path / "museums"))


def test_the_costs_of_the_dissertation_are_those_of_its_tables() -> None:
    costs = paper_machines().costs
    assert costs.edge.extraction_ms + costs.edge.curves(132).lookup_ms[132] == pytest.approx(
        51.14 + 1.87 * 132
    )
    device = {one.query_features: one for one in costs.device.profiles}[400]
    assert device.extraction_ms + device.curves(40).lookup_ms[20] == pytest.approx(221 + 1.13 * 20)


def test_with_the_dissertations_costs_a_single_visitor_waits_for_one_lookup_among_all_exhibits() -> None:
    world = paper_machines()
    point = replace(BASELINE, visitors=1, sections=1)
    row = play_on_twin(point, [LOAD_BALANCED], 1, world, 1, Amount(1, 30.0))[0]
    assert float(row["p50_ms"]) == pytest.approx(51.14 + 1.87 * 44, rel=0.15)


def test_a_wider_profile_keeps_the_fitted_costs_of_edge_and_cloud() -> None:
    fitted = CostModel.assumed().model_copy(update={"edge": profile(32, (4.0, 0.01))})
    wide = widened(fitted, profile(400, (2.0, 0.05)))
    k, all_ = 132, 400
    before, now = (one.edge.curves(all_).lookup_ms for one in (fitted, wide))
    assert now[k] == pytest.approx(before[k])
    cloud = [
        one.cloud_work.scale * (one.edge.extraction_ms + one.edge.curves(all_).lookup_ms[all_])
        for one in (fitted, wide)
    ]
    assert cloud[1] == pytest.approx(cloud[0])
    assert wide.edge.curves(1000).lookup_ms[1000] > now[all_] + 5, (
        "the cost of the cloud increases with its classes"
    )


def test_a_wide_profile_is_not_changed() -> None:
    fitted = CostModel.assumed()
    assert widened(fitted, profile(400, (2.0, 0.05))) is fitted
