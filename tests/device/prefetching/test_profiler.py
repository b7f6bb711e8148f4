"""Latency of misses from reports of the edge and the measured round trip."""

import math
from collections.abc import Iterator

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.rpc.client import Channel
from nearsight.device.prefetching.device_profile import default_device_profile
from nearsight.device.prefetching.predictions import EdgeTimes
from nearsight.device.prefetching.profiler import DeviceProfiler, PhotoTransfer
from nearsight.device.prefetching.tier_clients import EdgeClient
from support.gallery import exhibit_models
from support.predicting_edge import PredictingEdge
from support.waiting import LONG_S


def profiler() -> DeviceProfiler:
    return DeviceProfiler(default_device_profile())


def test_the_latency_of_a_photo_is_the_time_of_the_edge_and_the_round_trip() -> None:
    after = profiler()
    for _ in range(2):
        after.observe_answer(743.0, 743.0, avoidable=True, transfer_ms=12.0)
    for _ in range(2):
        after.observe_edge(EdgeTimes(answer_ms=8.0, transfer_ms=5.0))
    assert after.miss_ms == 20.0


def test_reports_of_the_cloud_say_nothing_about_the_edge() -> None:
    after = profiler()
    after.observe_answer(300.0, 300.0, avoidable=True)
    after.observe_edge(EdgeTimes(answer_ms=8.0, transfer_ms=5.0))
    assert after.miss_ms == 300.0


@pytest.mark.parametrize("tier_ms", [math.inf, -math.inf, math.nan, 1e9])
def test_a_tier_cannot_take_longer_than_its_answer_whatever_it_reports(tier_ms: float) -> None:
    after = profiler()
    for _ in range(3):
        after.observe_answer(300.0, tier_ms, avoidable=False)
    assert 0 <= after.miss_ms <= 300.0


@pytest.fixture(scope="module")
def edge() -> Iterator[PredictingEdge]:
    edge = PredictingEdge(exhibit_models(2))
    yield edge
    edge.stop()


@pytest.fixture
def client(edge: PredictingEdge) -> Iterator[EdgeClient]:
    client = EdgeClient(Channel(edge.endpoint, client_id="phone"), "museum")
    yield client
    client.close()


def test_lookups_and_hits_are_counted_also_without_a_time() -> None:
    profiler = DeviceProfiler(default_device_profile())
    profiler.observe_lookup(3, 200, None, hit=True)
    profiler.observe_lookup(3, 123, 9.0, hit=False)
    assert (profiler.lookups, profiler.hits, profiler.correction) == (2, 1, 1.0)
    profiler.observe_lookup(3, 200, 9.0, hit=True)
    assert profiler.correction > 1.0


@pytest.mark.parametrize("k", [40, 41, 400])
def test_lookups_are_compared_with_the_costs_that_decisions_use_for_every_size(k: int) -> None:
    profiler, profile = DeviceProfiler(default_device_profile()), default_device_profile()
    for curves in profile.curves(k):
        profiler.observe_lookup(k, curves.query_features, float(curves.lookup_ms[k]), hit=True)
    assert profiler.correction == 1.0


def reported(edge: PredictingEdge, client: EdgeClient, answer_ms: float) -> EdgeTimes | None:
    """The state of a device after such an answer to a report; every answer has a prediction."""
    edge.answer_ms = answer_ms
    prediction = client.get_next_objects("exhibit-0", 10.0).result(LONG_S)
    assert prediction.following.object_ids == ("exhibit-1",)
    return prediction.now


def test_a_reported_time_of_the_edge_is_used(edge: PredictingEdge, client: EdgeClient) -> None:
    now = reported(edge, client, 12.5)
    assert now is not None
    assert now.answer_ms == 12.5
    assert now.transfer_ms > 0


@pytest.mark.parametrize("answer_ms", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_an_answer_with_a_missing_or_invalid_time_still_predicts(
    edge: PredictingEdge, client: EdgeClient, answer_ms: float
) -> None:
    assert reported(edge, client, answer_ms) is None


def test_an_answer_whose_times_exceed_the_round_trip_still_predicts(edge: PredictingEdge) -> None:
    """With a clock that stands still, the edge claims more time than its answer took."""
    client = EdgeClient(Channel(edge.endpoint, client_id="phone"), "museum", ManualClock())
    try:
        assert reported(edge, client, 12.5) is None
    finally:
        client.close()


def test_repeated_invalid_times_are_logged_once(
    edge: PredictingEdge, client: EdgeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        reported(edge, client, -1.0)
    assert capsys.readouterr().err.count("are invalid and ignored") == 1


def after(photos_ms: list[float], small_ms: list[float]) -> PhotoTransfer:
    transfer = PhotoTransfer()
    for photo in photos_ms:
        transfer.observe_photo(photo)
    for small in small_ms:
        transfer.observe_small(small)
    return transfer


@pytest.mark.parametrize(("photos_ms", "small_ms"), [([], []), ([30.0], []), ([], [10.0])])
def test_the_latency_is_unknown_before_a_photo_and_a_small_message(
    photos_ms: list[float], small_ms: list[float]
) -> None:
    assert after(photos_ms, small_ms).expected_ms is None


def test_under_constant_conditions_it_is_the_time_of_photos() -> None:
    assert after([30.0, 34.0, 32.0], [10.0, 10.0]).expected_ms == 32.0


def test_a_way_that_becomes_longer_makes_photos_longer_by_as_much() -> None:
    assert after([30.0], [10.0, 25.0, 25.0]).expected_ms == 45.0


def test_one_late_small_message_is_ignored() -> None:
    assert after([30.0], [10.0, 10.0, 900.0]).expected_ms == 30.0


def test_a_photo_is_never_quicker_than_a_small_message() -> None:
    assert after([5.0], [10.0]).expected_ms == 10.0


def test_the_cost_of_bytes_follows_the_last_photos() -> None:
    transfer = after([30.0], [10.0])
    for _ in range(5):
        transfer.observe_photo(15.0)
    transfer.observe_small(10.0)
    assert transfer.expected_ms == 15.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_invalid_times_are_ignored(wrong: float) -> None:
    transfer = after([30.0, wrong], [wrong, 10.0, wrong])
    assert transfer.expected_ms == 30.0
