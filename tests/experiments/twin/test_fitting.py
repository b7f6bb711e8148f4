"""Costs are fitted to rows of a testbed; here to those of a twin with known costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.twin.cost_model import CostModel, Hardware, Scatter
from nearsight.experiments.twin.fitting import fit
from nearsight.experiments.twin.session import ADAPTIVE, LOAD_BALANCED, ONLY_CLOUD
from support.twin import crowd


def _rows(costs: CostModel) -> Mapping[str, Sequence[RequestRow]]:
    session = crowd(Following(6, 15.0, 0.1), Hardware(shared=2), earlier=20, costs=costs)
    return {name: session.play(name).rows for name in (ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE)}


def _once(rows: Mapping[str, Sequence[RequestRow]]) -> Mapping[str, Sequence[Sequence[RequestRow]]]:
    return {name: [some] for name, some in rows.items()}


@pytest.mark.system
def test_the_costs_of_a_slower_machine_are_fitted_to_its_rows() -> None:
    built_in = CostModel.assumed()
    truth = built_in.model_copy(
        update={
            "edge_work": Scatter(scale=1.6),
            "device_work": Scatter(scale=0.7),
            "cloud_work": Scatter(scale=1.3),
            "call_ms": 4.0,
            "call_work": Scatter(ratios=(0.8, 1.0, 1.2, 5.0)),
        }
    )
    measured = _rows(truth)
    found = fit(built_in, _once(measured), _rows, photos={}, origin="a twin")
    again = _rows(found)
    for name, rows in measured.items():
        ours, theirs = (
            float(np.median([row.latency_ms for row in some if row.is_answered]))
            for some in (again[name], rows)
        )
        assert ours == pytest.approx(theirs, rel=0.08), name
    assert found.call_ms == pytest.approx(4.0 * 1.1, rel=0.1), "the median: half of the ratios is below 1.1"
    assert max(found.call_work.ratios) > 3, "late messages are part of the costs"
    assert found.fitted_to == "a twin"


@pytest.mark.system
def test_costs_are_fitted_to_several_sessions_together() -> None:
    built_in = CostModel.assumed()
    slower = [_rows(built_in.model_copy(update={"edge_work": Scatter(scale=scale)})) for scale in (1.4, 1.6)]
    both = {name: [one[name] for one in slower] for name in slower[0]}
    found = fit(built_in, both, _rows, photos={})
    assert found.edge_work.scale == pytest.approx(1.5, rel=0.1)


def test_too_few_rows_leave_the_costs_unchanged() -> None:
    built_in = CostModel.assumed()
    few = {name: rows[:2] for name, rows in _rows(built_in).items()}
    found = fit(built_in, _once(few), lambda _costs: few, photos={})
    assert found.edge_work.scale == pytest.approx(1.0)
    assert found.call_ms == pytest.approx(built_in.call_ms)


def test_costs_are_saved_and_loaded(tmp_path: Path) -> None:
    costs = CostModel.assumed().model_copy(update={"call_ms": 2.5})
    costs.save(tmp_path / "costs.json")
    assert CostModel.load(tmp_path / "costs.json") == costs


def test_scatter_is_measured_within_photos_and_sessions() -> None:
    built_in = CostModel.assumed()
    rows = _rows(built_in.model_copy(update={"cloud_work": Scatter(ratios=(1.0,))}))
    photos = {(row.visitor, row.number): str(row.number % 2) for row in rows[ONLY_CLOUD]}

    def session(pace: float) -> Mapping[str, Sequence[RequestRow]]:
        return {
            name: [replace(row, cloud_compute_ms=pace * (10.0 + 10.0 * (row.number % 2))) for row in some]
            for name, some in rows.items()
        }

    measured = {name: [session(1.0)[name], session(1.5)[name]] for name in rows}
    found = fit(built_in, measured, lambda _costs: rows, photos=photos)
    assert set(found.cloud_work.ratios) == {1.0}, (
        "photos and sessions differ, times of one in the other do not"
    )
    apart = fit(built_in, measured, lambda _costs: rows, photos={})
    assert max(apart.cloud_work.ratios) > 1.2, "without the photos of the rows"


def test_second_looks_of_all_configurations_are_fitted() -> None:
    built_in = CostModel.assumed()
    rows = _rows(built_in.model_copy(update={"second_look": Scatter(ratios=(1.0,))}))
    longer = {
        name: [
            replace(row, cloud_compute_ms=row.cloud_compute_ms * (1.0 if name == ONLY_CLOUD else 1.2))
            for row in some
        ]
        for name, some in rows.items()
    }
    found = fit(built_in, _once(longer), lambda _costs: rows, photos={}, rounds=1)
    assert found.second_look.scale == pytest.approx(1.2), "most second looks are for edges"
