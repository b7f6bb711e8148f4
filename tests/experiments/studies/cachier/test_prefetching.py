"""Prefetching from rows: shares, recall, targets, the picture; and whom the devices follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.framework.registry import find_experiment
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.studies.cachier.prefetching import (
    ADAPTIVE,
    CONFIGURATIONS,
    EDGE_CACHE,
    FIXED,
    GENERATED,
    ONLY_CLOUD,
    REAL,
    Figure,
)
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.requests import read_requests_csv
from support.figures import png_size

LATENCY = {ONLY_CLOUD: 150.0, EDGE_CACHE: 20.0, FIXED: 12.0, ADAPTIVE: 10.0}
TIER = {ONLY_CLOUD: "cloud", EDGE_CACHE: "edge", FIXED: "device", ADAPTIVE: "device"}


def rows(traces: tuple[str, ...] = (GENERATED, REAL)) -> list[dict[str, str]]:
    """Ten photos per configuration: one of nothing known, one that only the slow half answers."""
    made = []
    for trace in traces:
        for name in CONFIGURATIONS:
            for number in range(10):
                expected = "" if number == 0 else "0007"
                row = {
                    "trace": trace,
                    "tiers": name,
                    "repetition": 0,
                    "expected": expected,
                    "answered": expected,
                    "answered_by": TIER[name] if number < 7 else "cloud",
                    "latency_ms": LATENCY[name] if number < 7 else 150.0,
                    "late_ms": 0.1,
                    "sent_bytes": 10,
                }
                made.append({key: str(value) for key, value in row.items()})
    return made


def test_shares_and_recall_are_those_of_the_rows() -> None:
    found = Figure().metrics(rows())["traces"][GENERATED]
    assert found[FIXED]["answered_by"] == {"device": 0.7, "edge": 0.0, "cloud": 0.3}
    assert found[ONLY_CLOUD]["answered_by"]["cloud"] == 1.0
    assert found[FIXED]["recall"] == found[FIXED]["precision"] == 1.0
    assert (found[FIXED]["p50_ms"]["median"], found[FIXED]["failed"], found[FIXED]["wrong"]) == (12.0, 0, 0)


def test_all_targets_are_reached_by_rows_that_reach_them() -> None:
    figure = Figure()
    targets = figure.targets(figure.metrics(rows()))
    assert len(targets) == 18
    assert all(target.reached for target in targets)


def test_a_wrong_answer_of_a_device_misses_the_target_for_precision() -> None:
    figure, made = Figure(), rows((GENERATED,))
    wrong = next(row for row in made if row["tiers"] == ADAPTIVE and row["expected"])
    wrong["answered"] = "0008"
    missed = [target.text for target in figure.targets(figure.metrics(made)) if not target.reached]
    assert len(missed) == 2
    assert all(ADAPTIVE in text and ("recall" in text or "precision" in text) for text in missed)


def test_a_picture_is_drawn() -> None:
    assert png_size(Figure(), rows()) > 10_000


def test_columns_are_not_those_that_provenance_adds() -> None:
    from nearsight.experiments.framework.result_files import PROVENANCE

    assert not set(rows()[0]) & set(PROVENANCE)


def test_real_visitors_are_followed_if_given(tmp_path: Path) -> None:
    figure = find_experiment("prefetching")
    assert {cell.parameters["trace"] for cell in figure.cells(RunOptions())} == {GENERATED}
    cells = figure.cells(RunOptions(visits=tmp_path / "stays.csv"))
    assert {cell.parameters["trace"] for cell in cells} == {GENERATED, REAL}


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    visits = generate_visits(np.random.default_rng(1), sections=2, exhibits_per_section=10, visitors=40)
    return Crowd.divided(visits, np.random.default_rng(2))


def test_no_visitor_is_followed_who_taught(crowd: Crowd) -> None:
    taught, followed = ({visit.visitor for visit in visits} for visits in (crowd.training, crowd.test))
    assert not taught & followed
    assert (len(taught), len(followed)) == (32, 8)


def test_devices_send_a_photo_per_second_of_a_stay_for_as_long_as_they_are_followed(
    crowd: Crowd, tmp_path: Path
) -> None:
    names = [f"{number:04d}" for number in range(1, 21)]
    objects = crowd.mapped(names)
    photos = {name: [f"{name}.jpg"] for name in names}
    planned = follow(crowd, Following(4, 60.0, 0.1), objects, photos, ["u.jpg"], np.random.default_rng(3))
    assert len(planned) == 4
    for asked in planned.values():
        times_ms = [request.time_ms for request in asked]
        assert times_ms == sorted(times_ms)
        assert 40_000 < times_ms[-1] - times_ms[0] < 60_000
        assert all(request.image_path == f"{request.object_id or 'u'}.jpg" for request in asked)
    traces = write_traces(tmp_path / "traces", planned, np.random.default_rng(4))
    assert [trace.photos for trace in traces] == [len(asked) for asked in planned.values()]
    assert all(read_requests_csv(trace.path) == planned[trace.visitor] for trace in traces)
    assert all(0 <= trace.phase_s < 1 for trace in traces)


def test_too_few_long_visits_are_an_error(crowd: Crowd) -> None:
    objects = crowd.mapped([f"{number:04d}" for number in range(1, 21)])
    photos = {name: ["p.jpg"] for name in objects.values()}
    with pytest.raises(InvalidArgument, match="visitors of"):
        follow(crowd, Following(9, 60.0, 0.0), objects, photos, [], np.random.default_rng(1))


def test_transitions_are_those_of_the_training_visitors_in_the_order_of_time(crowd: Crowd) -> None:
    objects = crowd.mapped([f"{number:04d}" for number in range(1, 21)])
    transitions = crowd.transitions(objects)
    assert len(transitions) == len(crowd.training)
    first = min(crowd.training, key=lambda visit: visit.start_s)
    assert transitions[0] == (first.visitor, objects[first.exhibit])
