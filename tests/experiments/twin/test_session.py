"""Whole runs of the twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearsight.experiments.links.link import TABLE_6_3, LinkShape
from nearsight.experiments.rig.rows import accounting_errors, read_request_rows, write_rows
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cost_model import CostModel, Costs, Scatter
from nearsight.experiments.twin.photos import NEVER, Effort, PhotoMaker, TwinPhoto
from nearsight.experiments.twin.session import (
    ADAPTIVE,
    BOUNDED,
    CONFIGURATIONS,
    EDGE_CACHE,
    LOAD_BALANCED,
    ONLY_CLOUD,
    Hardware,
    TwinOutcome,
    TwinSession,
    TwinVisitor,
)
from nearsight.experiments.twin.visitors import generated

_IDS = [f"{number + 1:04d}" for number in range(60)]
_STEADY = Scatter(ratios=(1.0,))


def _exact() -> CostModel:
    return CostModel.assumed().model_copy(
        update={
            "edge_work": _STEADY,
            "device_work": _STEADY,
            "cloud_work": _STEADY,
            "second_look": _STEADY,
        }
    )


def _visitor(*photos: tuple[float, TwinPhoto]) -> TwinVisitor:
    return TwinVisitor("v", [(PlannedPhoto(at_s, one.object_id, Path("p")), one) for at_s, one in photos])


def _crowd(
    devices: int, seconds: float = 30.0, hardware: Hardware | None = None, earlier: int = 60
) -> TwinSession:
    rng = np.random.default_rng(1)
    maker = PhotoMaker(((200, 0.8), (800, 0.95)), 0.99, (30_000.0, 0.3), rng)
    visitors, transitions = generated(
        maker, _IDS, Following(devices, seconds, 0.05), sections=1, crowd_size=earlier, rng=rng
    )
    network = TABLE_6_3["Medium"]
    return TwinSession(
        _IDS, visitors, CostModel.assumed(), network, transitions, hardware=hardware or Hardware()
    )


def _share(outcome: TwinOutcome, tier: str) -> float:
    return float(np.mean([row.answered_by == tier for row in outcome.rows]))


def _median(outcome: TwinOutcome) -> float:
    return float(np.median([row.latency_ms for row in outcome.rows if row.is_answered]))


def test_one_photo_to_the_cloud_takes_link_and_computing_time() -> None:
    costs = _exact()
    photo = TwinPhoto("0001", 50_000, 200.0, at_second_look=True)
    session = TwinSession(
        _IDS, [_visitor((0.0, photo))], costs, LinkShape(rtt_ms=40.0, up_mbps=8.0, down_mbps=8.0)
    )
    (row,) = session.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD]).rows
    curve = costs.edge.curves(len(_IDS)).lookup_ms
    computed_ms = float(curve[-1]) + costs.edge.extraction_ms
    wire_ms = 40.0 + 50_000 * 8 / 8e6 * 1e3 + row.received_bytes * 8 / 8e6 * 1e3
    assert row.cloud_compute_ms == pytest.approx(computed_ms)
    connect_ms = 3 * 40.0
    assert row.latency_ms == pytest.approx(
        connect_ms + computed_ms + wire_ms + costs.call_ms + costs.prepare_ms, abs=0.5
    )
    assert row.is_correct


def test_a_hard_photo_takes_each_tier_that_recognises_it_longer() -> None:
    easy, hard = (
        TwinPhoto("0001", 30_000, 200.0, at_second_look=True, tier_effort=Effort(factor, factor))
        for factor in (1.0, 2.0)
    )
    session = TwinSession(_IDS, [_visitor((0.0, easy), (1.0, hard))], _exact(), LinkShape(rtt_ms=10.0))
    first, second = session.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD]).rows
    assert second.cloud_compute_ms == pytest.approx(2.0 * first.cloud_compute_ms)


def test_a_lookup_that_finds_nothing_takes_as_long_as_the_photo_does_or_as_any() -> None:
    model = _exact().model_copy(update={"miss_factor": 3.0})
    costs = Costs(model, 400, np.random.default_rng(1))
    found_s = costs.edge_lookup_s(50, found=True)
    assert costs.edge_lookup_s(50, found=False) == pytest.approx(3.0 * found_s)
    assert costs.edge_lookup_s(50, found=False, effort=Effort(missed=1.5)) == pytest.approx(1.5 * found_s)
    extraction_s = model.device.profiles[0].extraction_ms / 1e3
    known_s = costs.device_lookup_s(9, 200, found=True)
    missed_s = costs.device_lookup_s(9, 200, found=False, effort=Effort(missed=1.5))
    assert missed_s - extraction_s == pytest.approx(1.5 * (known_s - extraction_s))


def test_lookups_that_find_nothing_take_no_longer_among_very_many() -> None:
    costs = Costs(_exact(), 400, np.random.default_rng(1))
    few_s, many_s, most_s = (costs.edge_lookup_s(k, found=False) for k in (40, 200, 400))
    assert few_s < many_s == most_s


def test_the_first_call_over_a_connection_takes_longer() -> None:
    photo = TwinPhoto("0001", 30_000, 200.0, at_second_look=True)
    costs = _exact().model_copy(update={"connect_ms": 25.0})
    session = TwinSession(_IDS, [_visitor((0.0, photo), (2.0, photo))], costs, LinkShape(rtt_ms=10.0))
    first, second = session.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD]).rows
    handshake_ms = 3 * 10.0
    assert first.latency_ms - second.latency_ms == pytest.approx(handshake_ms + 25.0, abs=0.5)


def test_an_edge_that_asks_the_cloud_first_waits_for_its_connection() -> None:
    unknown = TwinPhoto("", 30_000, NEVER, at_second_look=False)
    session = TwinSession(_IDS, [_visitor((0.0, unknown), (2.0, unknown))], _exact(), LinkShape(rtt_ms=40.0))
    first, second = session.play(EDGE_CACHE, CONFIGURATIONS[EDGE_CACHE]).rows
    assert first.edge_next_tier_ms - second.edge_next_tier_ms == pytest.approx(3 * 40.0, abs=0.5)


def test_a_slow_cloud_computes_longer_and_nothing_else_changes() -> None:
    photo = TwinPhoto("0001", 50_000, 200.0, at_second_look=True)
    costs = _exact().model_copy(update={"call_ms": 0.0})
    rows = [
        TwinSession(
            _IDS,
            [_visitor((0.0, photo))],
            costs,
            LinkShape(rtt_ms=40.0),
            hardware=Hardware(cloud_slowness=slowness),
        )
        .play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD])
        .rows[0]
        for slowness in (1.0, 3.0)
    ]
    fast, slow = rows
    assert slow.cloud_compute_ms == pytest.approx(3 * fast.cloud_compute_ms)
    assert slow.latency_ms - fast.latency_ms == pytest.approx(2 * fast.cloud_compute_ms)


def test_devices_that_are_slow_leave_more_to_the_edge() -> None:
    fast, slow = (
        _crowd(5, hardware=Hardware(device_slowness=slowness)).play(ADAPTIVE, CONFIGURATIONS[ADAPTIVE])
        for slowness in (1.0, 30.0)
    )
    assert _share(slow, "device") < _share(fast, "device") / 2


def test_a_photo_that_nothing_explains_reaches_the_cloud_and_is_unknown() -> None:
    unknown = TwinPhoto("", 30_000, NEVER, at_second_look=False)
    session = TwinSession(_IDS, [_visitor((0.0, unknown))], _exact(), LinkShape(rtt_ms=10.0))
    for name in (ONLY_CLOUD, EDGE_CACHE):
        (row,) = session.play(name, CONFIGURATIONS[name]).rows
        assert (row.outcome, row.answered_by) == ("unknown", "cloud")


def test_a_photo_may_be_known_with_few_features_and_unknown_with_many() -> None:
    photo = TwinPhoto("0001", 30_000, 200.0, at_second_look=False, missed_with=frozenset({800}))
    assert [photo.known_with(count) for count in (100, 200, 600, 800)] == [False, True, True, False]
    session = TwinSession(_IDS, [_visitor((0.0, photo))], _exact(), LinkShape(rtt_ms=10.0))
    (row,) = session.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD]).rows
    assert row.outcome == "unknown"


def test_an_edge_answers_what_was_asked_before() -> None:
    photo = TwinPhoto("0001", 30_000, 200.0, at_second_look=True)
    photos = [(float(second), photo) for second in range(20)]
    session = TwinSession(_IDS, [_visitor(*photos)], _exact(), LinkShape(rtt_ms=200.0))
    rows = session.play(EDGE_CACHE, CONFIGURATIONS[EDGE_CACHE]).rows
    assert rows[0].answered_by == "cloud"
    assert rows[-1].answered_by == "edge"
    assert rows[-1].latency_ms < 50 < rows[0].latency_ms


def test_an_edge_has_settled_when_visitors_come_though_its_builds_are_slow() -> None:
    last = TwinPhoto(_IDS[-1], 30_000, 200.0, at_second_look=True)
    taught = [(f"before-{number}", name) for number, name in enumerate(_IDS)]
    slow = _exact().model_copy(update={"build_ms": ((1, 900.0), (100, 900.0))})
    session = TwinSession(_IDS, [_visitor((0.0, last))], slow, LinkShape(rtt_ms=40.0), taught)
    (row,) = session.play(EDGE_CACHE, CONFIGURATIONS[EDGE_CACHE]).rows
    assert row.answered_by == "edge", "it rests 3.6 s between its first build and that with the last objects"


def test_every_request_has_one_outcome_and_rows_are_those_of_a_replay(tmp_path: Path) -> None:
    session = _crowd(10)
    for name, tiers in CONFIGURATIONS.items():
        rows = session.play(name, tiers).rows
        assert len(rows) == sum(len(visitor.plan) for visitor in session.visitors)
        assert not accounting_errors(rows)
        write_rows(tmp_path / "rows.csv", rows)
        assert len(read_request_rows(tmp_path / "rows.csv")) == len(rows)


def test_the_same_inputs_give_the_same_rows() -> None:
    first, second = (_crowd(5).play(ADAPTIVE, CONFIGURATIONS[ADAPTIVE]) for _ in range(2))
    assert first.rows == second.rows


def test_devices_that_prefetch_answer_most_photos_themselves_and_sooner() -> None:
    session = _crowd(10)
    cloud, edge, full = (
        session.play(name, CONFIGURATIONS[name]) for name in (ONLY_CLOUD, EDGE_CACHE, ADAPTIVE)
    )
    assert _share(full, "device") > 0.6
    assert _share(edge, "edge") > 0.7
    assert _median(full) < _median(edge) < _median(cloud)
    assert full.up_bytes < cloud.up_bytes / 2


def test_an_edge_with_too_few_cores_gives_work_away() -> None:
    session = _crowd(80, 15.0, Hardware(cloud=24, edge=1, device=4), earlier=180)
    plain, balanced, bounded = (
        session.play(name, CONFIGURATIONS[name]) for name in (EDGE_CACHE, LOAD_BALANCED, BOUNDED)
    )
    assert _share(balanced, "cloud") > _share(plain, "cloud")
    assert bounded.cached_objects[0] < plain.cached_objects[0]


def test_a_cloud_that_is_too_slow_refuses_what_waited_too_long() -> None:
    session = _crowd(100, 15.0, Hardware(cloud=1))
    fast = TwinSession(
        session.object_ids, session.visitors, session.costs, LinkShape(), hardware=session.hardware
    )
    outcome = fast.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD])
    assert {"Overloaded", "recognized"} <= {row.outcome for row in outcome.rows}
    assert outcome.cpu["cloud"] == pytest.approx(17.0, abs=3.0)


def test_a_connection_is_made_with_the_first_photo() -> None:
    photo = TwinPhoto("0001", 50_000, 200.0, at_second_look=True)
    photos = [(float(second), photo) for second in range(3)]
    session = TwinSession(_IDS, [_visitor(*photos)], _exact(), LinkShape(rtt_ms=40.0))
    first, second, third = (
        row.latency_ms for row in session.play(ONLY_CLOUD, CONFIGURATIONS[ONLY_CLOUD]).rows
    )
    assert first - second == pytest.approx(3 * 40.0), "three times there and back"
    assert second == pytest.approx(third)
