"""The edge from a device's point of view: a real daemon between a real client and a cloud that may fail."""

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
from support.waiting import wait_until


def test_a_missed_object_is_answered_by_the_cloud_then_fetched_then_answered_here(
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


def test_an_answer_of_the_cloud_keeps_the_hops_of_both_tiers(edge: EdgeDaemon, device: EdgeClient) -> None:
    reply = device.send(photo(0)).result(30)
    assert [hop.tier for hop in reply.hops] == ["cloud", "edge"]
    assert reply.hops[1].next_tier_ms >= reply.hops[0].compute_ms > 0
    warm(edge, device, [0])
    assert [hop.tier for hop in device.send(photo(0)).result(30).hops] == ["edge"]


def test_what_the_cloud_does_not_know_either_is_passed_on_and_not_counted(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    warm(edge, device, [0])
    counted = sum(cache_of(edge).estimator.counts().values())
    assert device.ask(photo(77)) == (None, "cloud")
    assert device.ask(photo(1)) == ("01", "cloud")
    wait_until(lambda: "01" in cache_of(edge).estimator.counts(), what="the second answer counted")
    assert sum(cache_of(edge).estimator.counts().values()) == pytest.approx(counted + 1, abs=0.1)


def test_cached_objects_are_answered_while_the_cloud_is_gone_and_others_again_when_it_is_back(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    warm(edge, device, [0])
    endpoint = cloud.endpoint
    cloud.stop()
    wait_until(lambda: not edge.ready(), what="the edge not ready")
    assert device.ask(photo(0)) == ("00", "edge")
    with pytest.raises(Unavailable, match="cloud"):
        device.send(photo(1), timeout_s=3.0).result(30)

    back = ScriptedCloud(models, listen=endpoint)
    try:
        wait_until(edge.ready, what="the edge ready")
        assert device.ask(photo(1)) == ("01", "cloud")
    finally:
        back.stop()


def test_a_cloud_that_does_not_answer_ends_with_the_devices_deadline(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.gate.clear()
    with pytest.raises(DeadlineExceeded):
        device.send(photo(1), timeout_s=0.3).result(30)
    assert device.ask(photo(0)) == ("00", "edge"), "no worker waits for the cloud"


def test_the_cloud_learns_how_much_time_is_left(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    device.ask(photo(0), timeout_s=3.0)
    assert 1.0 < cloud.seconds_left[-1] <= 3.0


def test_many_waiting_requests_leave_the_workers_free(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.gate.clear()
    waiting = [device.send(photo(1)) for _ in range(10)]
    assert device.ask(photo(0)) == ("00", "edge")
    assert not any(future.done() for future in waiting)
    cloud.gate.set()
    assert {answer_of(future.result(30)) for future in waiting} <= {("01", "cloud"), ("01", "edge")}


def test_an_overloaded_cloud_is_passed_on(edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud) -> None:
    cloud.recognize_error = Overloaded("too many requests", advice="try later")
    with pytest.raises(Overloaded):
        device.send(photo(0)).result(30)


def test_concurrent_requests_during_swaps_always_see_a_complete_snapshot(
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
        assert all(future.result(30) > 0 for future in running)
    assert wrong == []
    assert builds[-1] == EXHIBITS


@pytest.mark.parametrize("state", ["empty", "warm"])
def test_malformed_requests_are_refused_and_the_daemon_lives(
    edge: EdgeDaemon, device: EdgeClient, state: str
) -> None:
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
            device.send_raw(request, sent).result(30)
    assert device.ask(photo(0))[0] == "00"


@pytest.mark.parametrize("state", ["empty", "warm"])
def test_broken_images_are_refused_and_black_ones_unknown(
    edge: EdgeDaemon, device: EdgeClient, state: str
) -> None:
    if state == "warm":
        warm(edge, device, [0])
    for name, image in broken_images().items():
        if name in {"black", "1 x 1"}:
            assert device.ask(image)[0] is None
        else:
            with pytest.raises(InvalidArgument):
                device.send(image).result(30)
    assert device.ask(photo(0))[0] == "00"
