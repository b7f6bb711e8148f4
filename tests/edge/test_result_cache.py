"""The result cache of an edge: real sockets, real recognition, changing catalogues, a killed edge."""

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
from support.waiting import wait_until

TRUSTING = ResultCacheSettings(enabled=True, beta=1e9)
"""One answer of the classifier is enough."""


def ask(device: EdgeClient, number: int) -> Reply:
    return device.send(photo(number)).result(20)


def grain_of(device: EdgeClient, number: int) -> str:
    """What the answer to a photo was found in."""
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


def test_a_photo_that_brings_a_thumbnail_is_not_decoded(cloud: ScriptedCloud, serve: Serve) -> None:
    """What is known without the picture is answered without it."""
    with serve(result_cache=TRUSTING) as (_edge, device):
        assert served(device, 0).message.thumbnail_wanted
        cells = thumbnail_of(load_image(photo(0), ImageLimits(longest_side=KEY_SIDE_PX)).pixels)
        image = ImageInput(size_bytes=3, thumbnail=cells)
        reply = device.send_raw(RecognizeRequest(image=image), [b"abc"]).result(20)
        assert (answer_of(reply), reply.message.grain) == (("00", "edge"), "result")
        image.thumbnail = b"too short"
        with pytest.raises(InvalidArgument, match="a thumbnail has 64 bytes"):
            device.send_raw(RecognizeRequest(image=image), [photo(0)]).result(20)


def test_a_thumbnail_of_another_photo_misleads_only_who_sent_it(cloud: ScriptedCloud, serve: Serve) -> None:
    cells = thumbnail_of(load_image(photo(0), ImageLimits(longest_side=KEY_SIDE_PX)).pixels)
    lie = RecognizeRequest(image=ImageInput(size_bytes=len(photo(1)), thumbnail=cells))
    with (
        serve(result_cache=TRUSTING) as (edge, device),
        EdgeClient(edge.endpoint, device_id="liar") as liar,
    ):
        served(device, 0)
        wait_until(
            lambda: liar.send_raw(lie, [photo(1)]).result(20).message.grain == "result",
            what="an answer of the result cache",
        )
        for client, misled in ((liar, "01"), (device, "00")):
            reply = ask(client, 0)
            assert (answer_of(reply), reply.message.grain) == ((misled, "edge"), "result")


def test_features_that_are_sent_again_are_answered_as_well(cloud: ScriptedCloud, serve: Serve) -> None:
    features = features_of(photo(0))
    with serve(result_cache=TRUSTING) as (_edge, device):
        wait_until(
            lambda: device.send(features).result(20).message.grain == "result",
            what="an answer of the result cache",
        )
        asked = len(cloud.received)
        assert device.ask(features) == ("00", "edge")
    assert len(cloud.received) == asked


def test_devices_do_not_share_answers(cloud: ScriptedCloud, serve: Serve) -> None:
    with (
        serve(result_cache=TRUSTING) as (edge, device),
        EdgeClient(edge.endpoint, device_id="other") as other,
    ):
        served(device, 0)
        assert grain_of(other, 0) != "result"
        assert grain_of(device, 0) == "result"


def test_the_usual_back_off_verifies_five_times_before_it_serves(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True)) as (edge, device):
        ask(device, 1)
        cache_of(edge)
        grains = [grain_of(device, 0) for _ in range(6)]
    assert [grain == "result" for grain in grains] == [False] * 5 + [True]


def test_without_it_nothing_is_answered_again(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve() as (edge, device):
        cache = cache_of(edge) if ask(device, 0) else None
        assert not any(grain_of(device, 0) == "result" for _ in range(12))
        assert not ask(device, 0).message.thumbnail_wanted
    assert cache is not None
    assert cache.stages == (cache,)


def test_hits_count_as_requests_and_as_steps(cloud: ScriptedCloud, serve: Serve) -> None:
    """Popularity and transitions see them, and the answers say what may follow."""
    with serve(result_cache=TRUSTING) as (edge, device):
        for number in (0, 1):
            served(device, number)
        cache, before = cache_of(edge), cache_of(edge).estimator.ranking()
        hits = cache.result.state.counts.served
        for number in (0, 1):
            ask(device, number)  # who comes back is verified
            for _ in range(10):
                following = ask(device, number).message.next_objects
                assert following.object_ids[0] == f"{1 - number:02d}"
        after = cache.estimator.ranking()
        assert cache.result.state.counts.served == hits + 20
    assert after.probability_of(["00", "01"]) > before.probability_of(["00", "01"])


def test_it_stands_before_the_object_cache_and_learns_from_it(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True, beta=100.0)) as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        served(device, 0)
        assert cloud.received == []
        assert cache_of(edge).result.state.counts.corrections == 0


def test_a_view_that_nobody_knew_is_passed_on_without_a_look(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(result_cache=ResultCacheSettings(enabled=True)) as (edge, device):
        warm(edge, device, [0])
        looks = cache_of(edge).profiler
        for expected in (1, 0):
            with mock.patch.object(looks, "observe_lookup") as looked:
                assert device.ask(photo(99)) == (None, "cloud")
            assert looked.call_count == expected


def test_a_view_that_the_edge_does_not_know_is_passed_on_before_the_cloud_answers(
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
        assert {answer_of(one.result(20)) for one in (first, second)} == {(None, "cloud")}
        assert looked.call_count == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_object_is_not_answered_from_before(
    cloud: ScriptedCloud, serve: Serve, models: list[ObjectModel], number: int
) -> None:
    """Exhibit 0 is removed, exhibit 1 hangs another picture."""
    with serve(result_cache=TRUSTING) as (edge, device):
        served(device, number)
        cloud.set_models([exhibit(1, version=2, picture=21), *models[2:]])
        wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list at the edge")
        assert all(answer_of(ask(device, number))[0] is None for _ in range(5))


def test_an_answer_that_comes_after_the_catalogue_changed_is_not_kept(
    cloud: ScriptedCloud, serve: Serve, models: list[ObjectModel]
) -> None:
    with serve(result_cache=TRUSTING) as (edge, device):
        ask(device, 1)
        cache = cache_of(edge)
        cloud.gate.clear()
        waiting = device.send(photo(0))
        wait_until(lambda: len(cloud.received) == 2, what="the question at the cloud")
        cloud.revision += 1
        wait_until(lambda: cache.listing.revision == 2, what="the new list at the edge")
        cloud.gate.set()
        assert answer_of(waiting.result(20))[0] == "00"
        wait_until(lambda: cache.misses >= 1, what="the lesson")
        assert cache.result.state.entries == 0
        assert grain_of(device, 0) != "result"


def test_an_answer_from_before_a_change_that_the_edge_knows_is_not_kept(
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


def test_photos_that_cannot_be_read_are_refused(serve: Serve) -> None:
    with serve(result_cache=TRUSTING) as (_edge, device):
        served(device, 0)
        with pytest.raises(InvalidArgument):
            device.send(photo(0)[:200]).result(20)
        assert grain_of(device, 0) == "result"


def test_it_tells_what_it_did(cloud: ScriptedCloud, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `nearsight status`, `nearsight explain` and metrics; also that it stopped, as nothing is gained."""
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
    """As if looks had taken an hour each."""
    result = cache_of(edge).result
    assert result is not None
    for _ in range(2 * Payoff.WINDOW):
        result._payoff.looked(3.6e6, SYSTEM_CLOCK.monotonic(), hit=False)


@pytest.mark.system
def test_an_edge_that_was_killed_has_nothing_stale_afterwards(
    tmp_path: Path, models: list[ObjectModel]
) -> None:
    """The catalogue changes while it is away; what it learnt of popularity it keeps, what it answered not."""
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
