"""Visitors of a replay: earlier ones for the warm-up, and followed ones whose photos are sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.rig.walks import Crowd, Following, follow, write_traces
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.requests import read_requests_csv


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    visits = generate_visits(np.random.default_rng(1), sections=2, exhibits_per_section=10, visitors=40)
    return Crowd.divided(visits, np.random.default_rng(2))


def test_training_and_test_visitors_are_disjoint(crowd: Crowd) -> None:
    training, followed = ({visit.visitor for visit in visits} for visits in (crowd.training, crowd.test))
    assert not training & followed
    assert (len(training), len(followed)) == (32, 8)


def test_devices_send_a_photo_per_second_of_a_stay_within_the_followed_time(
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


def test_too_few_long_visits_are_refused(crowd: Crowd) -> None:
    objects = crowd.mapped([f"{number:04d}" for number in range(1, 21)])
    photos = {name: ["p.jpg"] for name in objects.values()}
    with pytest.raises(InvalidArgument, match="visits of at least 60 s are needed"):
        follow(crowd, Following(9, 60.0, 0.0), objects, photos, [], np.random.default_rng(1))


def test_transitions_are_those_of_the_training_visitors_in_order_of_time(crowd: Crowd) -> None:
    objects = crowd.mapped([f"{number:04d}" for number in range(1, 21)])
    transitions = crowd.transitions(objects)
    assert len(transitions) == len(crowd.training)
    first = min(crowd.training, key=lambda visit: visit.start_s)
    assert transitions[0] == (first.visitor, objects[first.exhibit])
