"""Complete sessions of the twin."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.rows import accounting_errors, read_request_rows, write_rows
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cost_model import CostModel, Costs, Hardware, Scatter
from nearsight.experiments.twin.photos import NEVER, Effort, TwinPhoto
from nearsight.experiments.twin.session import (
    ADAPTIVE,
    BOUNDED,
    CONFIGURATIONS,
    EDGE_CACHE,
    LOAD_BALANCED,
    ONLY_CLOUD,
    TwinOutcome,
    TwinSession,
    TwinTiers,
    TwinVisitor,
)
from support.twin import OBJECT_IDS, crowd

_FEW = Following(5, 30.0, 0.05)


_EXACT = CostModel.assumed().model_copy(
    update=dict.fromkeys(("edge_work", "device_work", "cloud_work", "second_look"), Scatter(ratios=(1.0,)))
)
_KNOWN = TwinPhoto("0001", 30_000, 200.0, at_second_look=True)
_UNKNOWN = TwinPhoto("", 30_000, NEVER, at_second_look=False)


def _alone(
    rtt_ms: float,
    *photos: tuple[float, TwinPhoto],
    costs: CostModel = _EXACT,
    hardware: Hardware | None = None,
    taught: Sequence[tuple[str, str]] = (),
) -> TwinSession:
    """One visitor, whose photos are due at these times."""
    plan = [(PlannedPhoto(at_s, one.object_id, Path("p")), one) for at_s, one in photos]
    visitors, network = [TwinVisitor("v", plan)], LinkShape(rtt_ms=rtt_ms)
    return TwinSession(OBJECT_IDS, visitors, costs, network, taught, hardware=hardware or Hardware())


def _share(outcome: TwinOutcome, tier: str) -> float:
    return float(np.mean([row.answered_by == tier for row in outcome.rows]))


def _median(outcome: TwinOutcome) -> float:
    return float(np.median([row.latency_ms for row in outcome.rows if row.is_answered]))


def test_the_latency_of_a_photo_to_the_cloud_is_link_and_computing_time() -> None:
    costs, narrow = _EXACT, LinkShape(rtt_ms=40.0, up_mbps=8.0, down_mbps=8.0)
    (row,) = replace(_alone(40.0, (0.0, _KNOWN)), network=narrow).play(ONLY_CLOUD).rows
    curve = costs.edge.curves(len(OBJECT_IDS)).lookup_ms
    computed_ms = float(curve[-1]) + costs.edge.extraction_ms
    wire_ms = 40.0 + _KNOWN.size_bytes * 8 / 8e6 * 1e3 + row.received_bytes * 8 / 8e6 * 1e3
    assert row.cloud_compute_ms == pytest.approx(computed_ms)
    connect_ms = 3 * 40.0
    assert row.latency_ms == pytest.approx(
        connect_ms + computed_ms + wire_ms + costs.call_ms + costs.prepare_ms, abs=0.5
    )
    assert row.is_correct


def test_the_effort_of_a_photo_multiplies_the_computing_time() -> None:
    hard = replace(_KNOWN, tier_effort=Effort(2.0, 2.0))
    first, second = _alone(10.0, (0.0, _KNOWN), (1.0, hard)).play(ONLY_CLOUD).rows
    assert second.cloud_compute_ms == pytest.approx(2.0 * first.cloud_compute_ms)


def test_the_time_of_a_miss_is_that_of_the_photo_or_of_the_cost_model() -> None:
    model = _EXACT.model_copy(update={"miss_factor": 3.0})
    costs = Costs(model, 400, np.random.default_rng(1))
    found_s = costs.edge_lookup_s(50, found=True)
    assert costs.edge_lookup_s(50, found=False) == pytest.approx(3.0 * found_s)
    assert costs.edge_lookup_s(50, found=False, effort=Effort(missed=1.5)) == pytest.approx(1.5 * found_s)
    extraction_s = model.device.profiles[0].extraction_ms / 1e3
    known_s = costs.device_lookup_s(9, 200, found=True)
    missed_s = costs.device_lookup_s(9, 200, found=False, effort=Effort(missed=1.5))
    assert missed_s - extraction_s == pytest.approx(1.5 * (known_s - extraction_s))


def test_the_time_of_a_miss_is_bounded_for_many_objects() -> None:
    costs = Costs(_EXACT, 400, np.random.default_rng(1))
    few_s, many_s, most_s = (costs.edge_lookup_s(k, found=False) for k in (40, 200, 400))
    assert few_s < many_s == most_s


def test_the_first_call_includes_the_handshake() -> None:
    costs = _EXACT.model_copy(update={"connect_ms": 25.0})
    first, second = _alone(10.0, (0.0, _KNOWN), (2.0, _KNOWN), costs=costs).play(ONLY_CLOUD).rows
    handshake_ms = 3 * 10.0
    assert first.latency_ms - second.latency_ms == pytest.approx(handshake_ms + 25.0, abs=0.5)


def test_the_first_request_of_an_edge_to_the_cloud_includes_the_handshake() -> None:
    first, second = _alone(40.0, (0.0, _UNKNOWN), (2.0, _UNKNOWN)).play(EDGE_CACHE).rows
    assert first.edge_next_tier_ms - second.edge_next_tier_ms == pytest.approx(3 * 40.0, abs=0.5)


def test_a_slow_cloud_changes_only_its_computing_time() -> None:
    costs = _EXACT.model_copy(update={"call_ms": 0.0})
    fast, slow = (
        _alone(40.0, (0.0, _KNOWN), costs=costs, hardware=Hardware(cloud_slowness=slowness))
        .play(ONLY_CLOUD)
        .rows[0]
        for slowness in (1.0, 3.0)
    )
    assert slow.cloud_compute_ms == pytest.approx(3 * fast.cloud_compute_ms)
    assert slow.latency_ms - fast.latency_ms == pytest.approx(2 * fast.cloud_compute_ms)


@pytest.mark.system
def test_slow_devices_offload_more() -> None:
    fast, slow = (
        crowd(_FEW, hardware=Hardware(device_slowness=slowness)).play(ADAPTIVE) for slowness in (1.0, 30.0)
    )
    assert _share(slow, "device") < _share(fast, "device") / 2


def test_an_unknown_photo_reaches_the_cloud() -> None:
    session = _alone(10.0, (0.0, _UNKNOWN))
    for name in (ONLY_CLOUD, EDGE_CACHE):
        (row,) = session.play(name).rows
        assert (row.outcome, row.answered_by) == ("unknown", "cloud")


def test_a_photo_can_be_recognised_with_few_features_and_missed_with_many() -> None:
    photo = replace(_KNOWN, at_second_look=False, missed_with=frozenset({800}))
    assert [photo.recognised_with(count) for count in (100, 200, 600, 800)] == [False, True, True, False]
    (row,) = _alone(10.0, (0.0, photo)).play(ONLY_CLOUD).rows
    assert row.outcome == "unknown"


def test_an_edge_answers_repeated_requests() -> None:
    rows = _alone(200.0, *((float(second), _KNOWN) for second in range(20))).play(EDGE_CACHE).rows
    assert rows[0].answered_by == "cloud"
    assert rows[-1].answered_by == "edge"
    assert rows[-1].latency_ms < 50 < rows[0].latency_ms


def test_a_photo_is_answered_that_an_edge_begins_to_forward_before_its_first_objects_come() -> None:
    costs = _EXACT.model_copy(update={"small_ms": 50.0})
    photos = [(0.05 * number, _KNOWN) for number in range(40)]
    rows = _alone(10.0, *photos, costs=costs).play(EDGE_CACHE).rows
    assert {row.answered_by for row in rows} == {"edge", "cloud"}
    assert max(row.latency_ms for row in rows) < 1000.0


def test_a_device_works_on_after_photos_that_began_just_before_their_deadline() -> None:
    """Its two workers begin the last two of six photos 5 ms before these expire."""
    slow = _EXACT.model_copy(update={"prepare_ms": 4945.0 / 2})
    photos = [(at_s, _KNOWN) for at_s in (*[0.0] * 6, 40.0, 50.0)]
    *_, first, second = _alone(10.0, *photos, costs=slow).play(ONLY_CLOUD).rows
    assert (first.outcome, second.outcome) == ("recognized", "recognized")


def test_the_cache_of_an_edge_is_settled_at_the_start_also_with_slow_builds() -> None:
    last = replace(_KNOWN, object_id=OBJECT_IDS[-1])
    taught = [(f"before-{number}", name) for number, name in enumerate(OBJECT_IDS)]
    slow = _EXACT.model_copy(update={"build_ms": ((1, 900.0), (100, 900.0))})
    (row,) = _alone(40.0, (0.0, last), costs=slow, taught=taught).play(EDGE_CACHE).rows
    assert row.answered_by == "edge", "it pauses 3.6 s between its first build and that with the last objects"


@pytest.fixture(scope="module")
def four_visitors() -> TwinSession:
    return crowd(Following(4, 20.0, 0.05))


@pytest.fixture(scope="module")
def outcomes(four_visitors: TwinSession) -> Mapping[str, TwinOutcome]:
    """By configuration."""
    return {name: four_visitors.play(name, tiers) for name, tiers in CONFIGURATIONS.items()}


def test_every_request_has_one_outcome_and_a_row_as_in_a_replay(
    four_visitors: TwinSession, outcomes: Mapping[str, TwinOutcome], tmp_path: Path
) -> None:
    for rows in (outcome.rows for outcome in outcomes.values()):
        assert len(rows) == sum(len(visitor.plan) for visitor in four_visitors.visitors)
        assert not accounting_errors(rows)
        write_rows(tmp_path / "rows.csv", rows)
        assert len(read_request_rows(tmp_path / "rows.csv")) == len(rows)


def test_devices_that_prefetch_answer_most_photos_locally_and_faster(
    outcomes: Mapping[str, TwinOutcome],
) -> None:
    cloud, edge, full = (outcomes[name] for name in (ONLY_CLOUD, EDGE_CACHE, ADAPTIVE))
    assert _share(full, "device") > 0.6
    assert _share(edge, "edge") > 0.7
    assert _median(full) < _median(edge) < _median(cloud)
    assert full.up_bytes < cloud.up_bytes / 2


@pytest.mark.system
def test_an_overloaded_edge_forwards_requests_or_reduces_its_cache() -> None:
    session = crowd(Following(80, 15.0, 0.05), Hardware(cloud=24, edge=1, device=4), earlier=180)
    plain, balanced, bounded = (session.play(name) for name in (EDGE_CACHE, LOAD_BALANCED, BOUNDED))
    assert _share(balanced, "cloud") > _share(plain, "cloud")
    assert bounded.cached_objects[0] < plain.cached_objects[0]


@pytest.mark.system
def test_an_overloaded_cloud_refuses_requests() -> None:
    session = crowd(Following(100, 15.0, 0.05), Hardware(cloud=1))
    outcome = replace(session, network=LinkShape(), transitions=()).play(ONLY_CLOUD)
    assert {"Overloaded", "recognized"} <= {row.outcome for row in outcome.rows}
    assert outcome.cpu_s["cloud"] == pytest.approx(17.0, abs=3.0)


_VIEWS = ((b"left", b"middle"), (b"middle", b"right"), (b"elsewhere",))


def _with_results(name: str, *, edge: bool = False, device: bool = False) -> TwinTiers:
    """A configuration whose result cache answers after one observation."""
    tiers, on = CONFIGURATIONS[name], {"result_cache": ResultCacheSettings(enabled=True, beta=1e9)}
    return replace(
        tiers,
        edge=tiers.edge.model_copy(update=on) if edge and tiers.edge is not None else tiers.edge,
        device=tiers.device.model_copy(update=on) if device else tiers.device,
    )


def test_a_repeated_photo_is_answered_by_the_result_cache_of_the_edge() -> None:
    session = _alone(100.0, (0.0, _KNOWN), (5.0, _KNOWN), (6.0, replace(_KNOWN, size_bytes=30_001)))
    plain, again = (
        session.play(EDGE_CACHE, tiers).rows for tiers in (None, _with_results(EDGE_CACHE, edge=True))
    )
    assert [row.answered_by for row in plain[:1]] == [row.answered_by for row in again[:1]] == ["cloud"]
    assert again[1].answered_by == "edge"
    assert again[1].answered == "0001"
    assert again[1].latency_ms < 10 < plain[1].latency_ms


def test_photos_with_a_common_key_hit_the_result_cache() -> None:
    """The result cache learns the first answer; the third photo shows another view."""
    photos = [replace(_KNOWN, size_bytes=30_000 + n, keys=keys) for n, keys in enumerate(_VIEWS)]
    rows = (
        _alone(100.0, *((5.0 * n, photo) for n, photo in enumerate(photos)))
        .play(EDGE_CACHE, _with_results(EDGE_CACHE, edge=True))
        .rows
    )
    assert [row.grain == "result" for row in rows] == [False, True, False]


def test_the_result_cache_of_a_device_answers_repeated_photos() -> None:
    """Hits of the result cache update prediction and prefetching like other answers."""
    photos = [(3.0 * n, (_KNOWN, replace(_KNOWN, object_id="0002"))[n // 4 % 2]) for n in range(16)]
    taught = [("earlier", f"000{1 + n % 2}") for n in range(40)]
    tiers = _with_results(ADAPTIVE, device=True)
    rows = _alone(30.0, *photos, taught=taught).play(ADAPTIVE, tiers).rows
    kept = [row for row in rows[8:] if row.number % 4]  # the first photo after a change is verified
    assert all(row.answered_by == "device" for row in kept)
    assert all(row.latency_ms < 5 for row in kept)


@pytest.mark.parametrize("name", [LOAD_BALANCED, ADAPTIVE])
def test_every_photo_is_answered_with_the_result_cache_on(name: str) -> None:
    outcome = crowd(_FEW).play(name, _with_results(name, edge=True, device=True))
    assert not accounting_errors(outcome.rows)
    assert all(row.is_answered for row in outcome.rows)


@pytest.mark.parametrize(("seconds", "counted_s"), [(0.0, 4.0), (3.0, 3.0)])
def test_cpu_time_is_counted_to_the_end_of_the_session_and_all_requests_get_their_answers(
    seconds: float, counted_s: float
) -> None:
    slow = Hardware(cloud=1, cloud_slowness=200.0)
    due = [(float(second), _KNOWN) for second in range(5)]
    session = _alone(10.0, *due, hardware=slow)
    whole, cut = (replace(session, seconds=length).play(ONLY_CLOUD) for length in (30.0, seconds))
    assert cut.rows == whole.rows
    assert whole.cpu_s["cloud"] > counted_s
    assert cut.cpu_s["cloud"] == pytest.approx(counted_s, abs=0.2)  # the first photo waits for its connection
    assert cut.up_bytes <= whole.up_bytes
