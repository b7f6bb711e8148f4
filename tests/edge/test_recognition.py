"""Recognition by the edge daemon, between a real client and a cloud that may fail."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nearsight.common.errors import DeadlineExceeded, InvalidArgument, Overloaded, Unavailable
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.daemon import EdgeDaemon
from nearsight.protos.recognition_pb2 import FeaturesMessage, ImageInput, RecognizeRequest
from support.edge import (
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    answer_of,
    cache_of,
    cached,
    features_of,
    photo,
    warm,
)
from support.pictures import broken_images
from support.waiting import LONG_S, wait_until


def test_an_object_is_recognised_by_the_cloud_then_fetched_and_recognised_by_the_edge(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    assert device.ask(photo(3)) == ("03", "cloud")
    warm(edge, device, [3])
    assert device.ask(photo(3)) == ("03", "edge")
    assert cloud.fetched_ids() == ["03"]


def test_features_are_recognised_like_images(edge: EdgeDaemon, device: EdgeClient) -> None:
    features = features_of(photo(1))
    assert device.ask(features) == ("01", "cloud")
    warm(edge, device, [1])
    assert device.ask(features) == ("01", "edge")


def test_an_answer_of_the_cloud_has_the_hops_of_both_tiers(edge: EdgeDaemon, device: EdgeClient) -> None:
    reply = device.send(photo(0)).result(LONG_S)
    assert [hop.tier for hop in reply.hops] == ["cloud", "edge"]
    assert reply.hops[1].next_tier_ms >= reply.hops[0].compute_ms > 0
    warm(edge, device, [0])
    assert [hop.tier for hop in device.send(photo(0)).result(LONG_S).hops] == ["edge"]


def test_unknown_answers_of_the_cloud_are_returned_and_not_counted(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    warm(edge, device, [0])
    counted = sum(cache_of(edge).estimator.counts().values())
    assert device.ask(photo(77)) == (None, "cloud")
    assert device.ask(photo(1)) == ("01", "cloud")
    wait_until(lambda: "01" in cache_of(edge).estimator.counts(), what="the count of the second answer")
    assert sum(cache_of(edge).estimator.counts().values()) == pytest.approx(counted + 1, abs=0.1)


def test_during_an_outage_of_the_cloud_cached_objects_are_recognised(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    warm(edge, device, [0])
    endpoint = cloud.endpoint
    cloud.stop()
    wait_until(lambda: not edge.ready(), what="the edge not ready")
    assert device.ask(photo(0)) == ("00", "edge")
    with pytest.raises(Unavailable, match="cloud"):
        device.send(photo(1)).result(LONG_S)

    back = ScriptedCloud(models, listen=endpoint)
    try:
        wait_until(edge.ready, what="the edge ready")
        assert device.ask(photo(1)) == ("01", "cloud")
    finally:
        back.stop()


def test_the_wait_for_the_cloud_ends_at_the_deadline_of_the_device(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.gate.clear()
    with pytest.raises(DeadlineExceeded):
        device.send(photo(1), timeout_s=0.3).result(LONG_S)
    assert device.ask(photo(0)) == ("00", "edge"), "the workers are free"


def test_the_remaining_time_is_passed_to_the_cloud(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    device.ask(photo(0), timeout_s=90.0)
    assert 45.0 < cloud.seconds_left[-1] <= 90.0


def test_requests_that_wait_for_the_cloud_block_no_worker(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.gate.clear()
    waiting = [device.send(photo(1)) for _ in range(10)]
    assert device.ask(photo(0)) == ("00", "edge")
    assert not any(future.done() for future in waiting)
    cloud.gate.set()
    assert {answer_of(future.result(LONG_S)) for future in waiting} <= {("01", "cloud"), ("01", "edge")}


def test_the_error_of_an_overloaded_cloud_is_passed_on(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    cloud.recognize_error = Overloaded("too many requests", advice="try later")
    with pytest.raises(Overloaded):
        device.send(photo(0)).result(LONG_S)


def test_requests_during_builds_use_complete_snapshots(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    stop = threading.Event()
    wrong: list[object] = []

    def visit(number: int) -> int:
        answers = 0
        with EdgeClient(edge.endpoint) as visitor:
            while not stop.is_set():
                object_id, tier = visitor.ask(photo(number))
                if object_id != f"{number:02d}" or (number == 0 and tier != "edge"):
                    wrong.append((number, object_id, tier))
                answers += 1
        return answers

    builds: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(visit, number) for number in (0, 0, 1)]
        for number in range(1, EXHIBITS):
            warm(edge, device, [number])
            builds.append(len(cached(edge)))
        stop.set()
        assert all(future.result(LONG_S) > 0 for future in running)
    assert wrong == []
    assert builds[-1] == EXHIBITS


@pytest.mark.parametrize("state", ["empty", "warm"])
def test_malformed_requests_are_refused(edge: EdgeDaemon, device: EdgeClient, state: str) -> None:
    if state == "warm":
        warm(edge, device, [0])
    message, blobs = features_to_proto(features_of(photo(0)), 0)
    too_many = FeaturesMessage()
    too_many.CopyFrom(message)
    too_many.count = 2**31
    elsewhere = FeaturesMessage()
    elsewhere.CopyFrom(message)
    elsewhere.first_blob = 2**32 - 1
    for request, sent in [
        (RecognizeRequest(), []),
        (RecognizeRequest(image=ImageInput(size_bytes=5)), []),
        (RecognizeRequest(features=message), []),
        (RecognizeRequest(features=message), [blobs[0][:-1], *blobs[1:]]),
        (RecognizeRequest(features=too_many), blobs),
        (RecognizeRequest(features=elsewhere), blobs),
    ]:
        with pytest.raises(InvalidArgument):
            device.send_raw(request, sent).result(LONG_S)
    assert device.ask(photo(0))[0] == "00"


@pytest.mark.parametrize("state", ["empty", "warm"])
def test_invalid_images_are_refused_and_black_ones_unknown(
    edge: EdgeDaemon, device: EdgeClient, state: str
) -> None:
    if state == "warm":
        warm(edge, device, [0])
    for name, image in broken_images().items():
        if name in {"black", "1 x 1"}:
            assert device.ask(image)[0] is None
        else:
            with pytest.raises(InvalidArgument):
                device.send(image).result(LONG_S)
    assert device.ask(photo(0))[0] == "00"
