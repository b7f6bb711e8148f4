"""The result cache of an edge, over real sockets: changing catalogues, a killed edge."""

from pathlib import Path
from unittest import mock

import pytest
from prometheus_client import generate_latest

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InvalidArgument
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.recognition.settings import ImageLimits
from nearsight.common.result_cache.image_keys import thumbnail_of
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.stage import KEY_SIDE_PX, Payoff
from nearsight.common.rpc.client import Reply
from nearsight.edge.daemon import EdgeDaemon
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest
from support.caching import profile_of_table_3_2
from support.daemon_process import daemon_process
from support.edge import (
    EdgeClient,
    ScriptedCloud,
    Serve,
    answer_of,
    cache_of,
    exhibit,
    features_of,
    photo,
    warm,
)
from support.waiting import LONG_S, wait_until

TRUSTING = ResultCacheSettings(enabled=True, beta=1e9)
"""Results are reused after one confirmation."""


def ask(device: EdgeClient, number: int) -> Reply:
    return device.send(photo(number)).result(LONG_S)


def grain_of(device: EdgeClient, number: int) -> str:
    """The grain of the answer to a photo."""
    return ask(device, number).message.grain


def served(device: EdgeClient, number: int) -> Reply:
    """Ask until the result cache answers."""
    wait_until(lambda: grain_of(device, number) == "result", what="an answer of the result cache")
    return ask(device, number)


def test_a_photo_that_is_sent_again_is_answered_without_recognition(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    with serve(result_cache=TRUSTING) as (_edge, device):
        reply = served(device, 0)
        asked = len(cloud.received)
        again = ask(device, 0)
    assert len(cloud.received) == asked
    for one in (reply, again):
        assert answer_of(one) == ("00", "edge")
        assert one.message.grain == "result"
        assert one.message.object.label == "exhibit 0"
        assert list(one.message.object.corners) == []
        assert [hop.tier for hop in one.hops] == ["edge"]


def test_a_photo_with_a_thumbnail_is_not_decoded(cloud: ScriptedCloud, serve: Serve) -> None:
    """A hit needs the thumbnail only."""
    with serve(result_cache=TRUSTING) as (_edge, device):
        assert served(device, 0).message.thumbnail_wanted
        cells = thumbnail_of(load_image(photo(0), ImageLimits(longest_side=KEY_SIDE_PX)).pixels)
        image = ImageInput(size_bytes=3, thumbnail=cells)
        reply = device.send_raw(RecognizeRequest(image=image), [b"abc"]).result(LONG_S)
        assert (answer_of(reply), reply.message.grain) == (("00", "edge"), "result")
        image.thumbnail = b"too short"
        with pytest.raises(InvalidArgument, match="a thumbnail has 64 bytes"):
            device.send_raw(RecognizeRequest(image=image), [photo(0)]).result(LONG_S)


def test_a_false_thumbnail_misleads_only_its_sender(cloud: ScriptedCloud, serve: Serve) -> None:
    cells = thumbnail_of(load_image(photo(0), ImageLimits(longest_side=KEY_SIDE_PX)).pixels)
    false_request = RecognizeRequest(image=ImageInput(size_bytes=len(photo(1)), thumbnail=cells))
    with (
        serve(result_cache=TRUSTING) as (edge, device),
        EdgeClient(edge.endpoint, device_id="sender") as sender,
    ):
        served(device, 0)
        wait_until(
            lambda: sender.send_raw(false_request, [photo(1)]).result(LONG_S).message.grain == "result",
            what="an answer of the result cache",
        )
        for client, misled in ((sender, "01"), (device, "00")):
            reply = ask(client, 0)
            assert (answer_of(reply), reply.message.grain) == ((misled, "edge"), "result")


def test_features_that_are_sent_again_are_answered_from_the_cache(cloud: ScriptedCloud, serve: Serve) -> None:
    features = features_of(photo(0))
    with serve(result_cache=TRUSTING) as (_edge, device):
        wait_until(
            lambda: device.send(features).result(LONG_S).message.grain == "result",
            what="an answer of the result cache",
        )
        asked = len(cloud.received)
        assert device.ask(features) == ("00", "edge")
    assert len(cloud.received) == asked


def test_without_a_result_cache_every_photo_is_recognised(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve() as (edge, device):
        cache = cache_of(edge) if ask(device, 0) else None
        assert not any(grain_of(device, 0) == "result" for _ in range(12))
        assert not ask(device, 0).message.thumbnail_wanted
    assert cache is not None
    assert cache.stages == (cache,)


def test_hits_count_for_popularity_and_transitions(cloud: ScriptedCloud, serve: Serve) -> None:
    """The answers contain the next objects."""
    with serve(result_cache=TRUSTING) as (edge, device):
        for number in (0, 1):
            served(device, number)
        cache, before = cache_of(edge), cache_of(edge).estimator.ranking()
        hits = cache.result.state.counts.served
        for number in (0, 1):
            ask(device, number)  # the first one is verified
            for _ in range(10):
                following = ask(device, number).message.next_objects
                assert following.object_ids[0] == f"{1 - number:02d}"
        after = cache.estimator.ranking()
        assert cache.result.state.counts.served == hits + 20
    assert after.probability_of(["00", "01"]) > before.probability_of(["00", "01"])


def test_the_result_cache_learns_from_the_object_cache(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True, beta=100.0)) as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        served(device, 0)
        assert cloud.received == []
        assert cache_of(edge).result.state.counts.corrections == 0


def test_a_repeated_unknown_photo_is_forwarded_without_a_lookup(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True)) as (edge, device):
        warm(edge, device, [0])
        looks = cache_of(edge).profiler
        for expected in (1, 0):
            with mock.patch.object(looks, "observe_lookup") as looked:
                assert device.ask(photo(99)) == (None, "cloud")
            assert looked.call_count == expected


def test_a_photo_repeated_before_the_answer_of_the_cloud_is_forwarded_without_a_lookup(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True)) as (edge, device):
        warm(edge, device, [0])
        cloud.gate.clear()
        cloud.received.clear()
        first = device.send(photo(99))
        wait_until(lambda: len(cloud.received) == 1, what="the first photo at the cloud")
        with mock.patch.object(cache_of(edge).profiler, "observe_lookup") as looked:
            second = device.send(photo(99))
            wait_until(lambda: len(cloud.received) == 2, what="the second photo at the cloud")
        cloud.gate.set()
        assert {answer_of(one.result(LONG_S)) for one in (first, second)} == {(None, "cloud")}
        assert looked.call_count == 0


@pytest.mark.parametrize("number", [0, 1])
def test_results_of_a_changed_object_are_not_reused(
    cloud: ScriptedCloud, serve: Serve, models: list[ObjectModel], number: int
) -> None:
    """Exhibit 0 is removed, exhibit 1 gets another picture."""
    with serve(result_cache=TRUSTING) as (edge, device):
        served(device, number)
        cloud.set_models([exhibit(1, version=2, picture=21), *models[2:]])
        wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list at the edge")
        assert all(answer_of(ask(device, number))[0] is None for _ in range(5))


def test_an_answer_of_an_outdated_version_is_not_stored(
    cloud: ScriptedCloud, serve: Serve, models: list[ObjectModel]
) -> None:
    """While the cloud's index lags behind its list of objects."""
    with serve(result_cache=TRUSTING) as (edge, device):
        ask(device, 1)
        cache, lagging = cache_of(edge), cloud.recognizer
        cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])
        wait_until(lambda: cache.listing.revision == 2, what="the new list at the edge")
        cloud.recognizer = lagging
        for _ in range(5):
            reply = ask(device, 0)
            assert (reply.message.object.version, reply.message.grain) == (1, "")


def test_invalid_photos_are_refused(serve: Serve) -> None:
    with serve(result_cache=TRUSTING) as (_edge, device):
        served(device, 0)
        with pytest.raises(InvalidArgument):
            device.send(photo(0)[:200]).result(LONG_S)
        assert grain_of(device, 0) == "result"


def test_status_explanation_and_metrics_contain_the_result_cache(
    cloud: ScriptedCloud, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that it is switched off because it does not pay."""
    monkeypatch.setattr(Payoff, "WINDOW_S", 0.0)
    metrics = DaemonMetrics("edge")
    with serve(metrics, result_cache=TRUSTING) as (edge, device):
        warm(edge, device, [0, 1])
        wait_until(lambda: bool(edge.explanations()), what="a decision")
        served(device, 0)

        def told() -> str:
            facts = dict(edge.explanations()[0].facts)
            assert dict(edge.details())["museum: result cache"] == facts["result cache"]
            return facts["result cache"]

        assert told().startswith("on: ")
        scrape = generate_latest(metrics.registry).decode()
        assert 'nearsight_result_cache_hits_total{catalogue="museum"} ' in scrape
        assert 'nearsight_result_cache_wrong_share_bound{catalogue="museum"} ' in scrape
        assert 'nearsight_result_cache_on{catalogue="museum"} 1.0' in scrape
        pay_nothing(edge)
        assert told().startswith("off, tried again later: ")
        assert (
            'nearsight_result_cache_on{catalogue="museum"} 0.0' in generate_latest(metrics.registry).decode()
        )
        assert grain_of(device, 0) != "result"


def pay_nothing(edge: EdgeDaemon) -> None:
    """Record lookups of an hour each."""
    result = cache_of(edge).result
    assert result is not None
    for _ in range(2 * Payoff.WINDOW):
        result._payoff.looked(3.6e6, SYSTEM_CLOCK.monotonic(), hit=False)


@pytest.mark.system
def test_a_restarted_edge_reuses_no_outdated_results(tmp_path: Path, models: list[ObjectModel]) -> None:
    """The catalogue changes meanwhile; the edge stores popularity, but no results."""
    profile_of_table_3_2().save(tmp_path / "profile.json")
    flags = [
        "metrics_listen=",
        "state_every_s=0.1",
        "poll_s=0.1",
        "result_cache.enabled=true",
        "result_cache.beta=1e9",
    ]
    settings = [part for one in flags for part in ("--set", one)]
    files = ["--profile", str(tmp_path / "profile.json"), "--state", str(tmp_path / "edge.db")]
    cloud = ScriptedCloud(models)
    command = ("edge", "--cloud", cloud.endpoint, *files, *settings)
    try:
        with daemon_process(tmp_path, *command) as edge, EdgeClient(edge.endpoint) as device:
            served(device, 0)
            edge.kill()
        cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])
        with daemon_process(tmp_path, *command) as edge, EdgeClient(edge.endpoint) as device:
            first = ask(device, 0)
            assert answer_of(first)[0] is None
            assert answer_of(served(device, 20)) == ("00", "edge")
            assert answer_of(ask(device, 0))[0] is None
    finally:
        cloud.stop()
