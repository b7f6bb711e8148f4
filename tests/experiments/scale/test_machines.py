"""The worlds of a twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.caching.profile import CacheProfile
from nearsight.common.errors import NotFound
from nearsight.experiments.figures.experiment import RunOptions
from nearsight.experiments.scale.machines import machines_of, paper_machines, widened
from nearsight.experiments.scale.operating_point import BASELINE
from nearsight.experiments.scale.twin_runs import play_on_twin
from nearsight.experiments.simulation.cost_model import CostModel
from nearsight.experiments.simulation.session import LOAD_BALANCED


def profile(largest_k: int, lookup_ms: tuple[float, ...]) -> CacheProfile:
    return CacheProfile(
        backend="auto",
        query_features=800,
        largest_k=largest_k,
        lookup_ms=lookup_ms,
        recall=(0.9,),
        extraction_ms=5.0,
    )


def test_costs_of_other_worlds_are_told_apart() -> None:
    smoke = RunOptions(on="twin", costs="measured", smoke=True)
    marks = [machines_of(replace(smoke, costs=costs)).mark for costs in ("measured", "paper", "testbed")]
    assert len(set(marks)) == 3
    assert machines_of(smoke).mark == marks[0]


def test_costs_that_were_not_measured_are_missed(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        machines_of(RunOptions(on="twin", costs="measured", museums=tmp_path / "museums"))


def test_the_costs_of_the_dissertation_are_those_of_its_tables() -> None:
    costs = paper_machines().costs
    assert costs.edge.extraction_ms + costs.edge.curves(132).lookup_ms[132] == pytest.approx(
        51.14 + 1.87 * 132
    )
    device = {one.query_features: one for one in costs.device.profiles}[400]
    assert device.extraction_ms + device.curves(40).lookup_ms[20] == pytest.approx(221 + 1.13 * 20)


def test_a_lone_visitor_at_the_dissertations_edge_waits_for_one_lookup_among_all_exhibits() -> None:
    world = paper_machines()
    point = replace(BASELINE, visitors=1, sections=1)
    row = play_on_twin(
        point, [LOAD_BALANCED], 1, world.costs, world.hardware, seconds=30.0, photos=world.photos
    )[0]
    assert float(row["p50_ms"]) == pytest.approx(51.14 + 1.87 * 44, rel=0.15)


def test_a_wider_profile_leaves_edge_and_cloud_as_they_were_fitted() -> None:
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
    assert wide.edge.curves(1000).lookup_ms[1000] > now[all_] + 5, "and the cloud grows with its classes"


def test_a_profile_that_is_wide_already_stays() -> None:
    fitted = CostModel.assumed()
    assert widened(fitted, profile(400, (2.0, 0.05))) is fitted
