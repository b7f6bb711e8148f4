"""The edge from a device's point of view: a real daemon between a real client and a cloud that may fail."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from nearsight.common.errors import (
    AddressInUse,
    ConfigurationError,
    CorruptStore,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Overloaded,
    Unavailable,
)
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.server import ServerSettings
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, FetchSettings
from nearsight.protos import health_pb2
from nearsight.protos.recognition_pb2 import FeaturesMessage, ImageInput, RecognizeRequest
from support.caching import profile_of_table_3_2
from support.edge import (
    CATALOGUE,
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    answer_of,
    ask_until,
    cache_of,
    cached,
    edge_settings,
    exhibit,
    features_of,
    make_misses_costly,
    photo,
    running_edge,
    warm,
)
from support.pictures import broken_images
from support.waiting import wait_until


def version_held(edge: EdgeDaemon, name: str) -> int:
    model = cache_of(edge).recognizer.snapshot.models.get(name)
    return model.version if model is not None else 0


def test_a_missed_object_is_answered_by_the_cloud_then_fetched_then_answered_here(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    assert device.ask(photo(3)) == ("03", "cloud")
    warm(edge, device, [3])
    assert device.ask(photo(3)) == ("03", "edge")
    assert cloud.fetched_ids() == ["03"]


def test_requests_for_one_missing_object_fetch_its_model_once(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    device.ask(photo(0))
    make_misses_costly(edge)
    futures = [device.send(photo(2)) for _ in range(12)]
    assert {answer_of(future.result(15))[0] for future in futures} == {"02"}
    ask_until(lambda: "02" in cached(edge), lambda: device.ask(photo(2)), "exhibit 2 in the cache")
    assert cloud.fetched_ids().count("02") == 1


def test_features_are_recognised_like_images(edge: EdgeDaemon, device: EdgeClient) -> None:
    features = features_of(photo(1))
    assert device.ask(features) == ("01", "cloud")
    warm(edge, device, [1])
    assert device.ask(features) == ("01", "edge")


def test_an_answer_of_the_cloud_keeps_the_hops_of_both_tiers(edge: EdgeDaemon, device: EdgeClient) -> None:
    reply = device.send(photo(0)).result(10)
    assert [hop.tier for hop in reply.hops] == ["cloud", "edge"]
    assert reply.hops[1].next_tier_ms >= reply.hops[0].compute_ms > 0
    warm(edge, device, [0])
    assert [hop.tier for hop in device.send(photo(0)).result(10).hops] == ["edge"]


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
        device.send(photo(1), timeout_s=3.0).result(10)

    back = ScriptedCloud(models, listen=endpoint)
    try:
        wait_until(edge.ready, what="the edge ready")
        assert device.ask(photo(1)) == ("01", "cloud")
    finally:
        back.stop()


def test_an_edge_starts_without_its_cloud_and_is_ready_once_that_is_there(
    models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    first = ScriptedCloud(models)
    endpoint = first.endpoint
    first.stop()
    with running_edge(endpoint, cache=cache_settings) as edge, EdgeClient(edge.endpoint) as device:
        assert not edge.ready()
        with pytest.raises(Unavailable):
            device.send(photo(0), timeout_s=2.0).result(10)
        cloud = ScriptedCloud(models, listen=endpoint)
        try:
            wait_until(edge.ready, what="the edge ready")
            assert device.ask(photo(0)) == ("00", "cloud")
        finally:
            cloud.stop()


def test_a_cloud_that_does_not_answer_ends_with_the_devices_deadline(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.gate.clear()
    with pytest.raises(DeadlineExceeded):
        device.send(photo(1), timeout_s=0.3).result(5)
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
    assert {answer_of(future.result(10)) for future in waiting} <= {("01", "cloud"), ("01", "edge")}


def test_an_overloaded_cloud_is_passed_on(edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud) -> None:
    cloud.recognize_error = Overloaded("too many requests", advice="try later")
    with pytest.raises(Overloaded):
        device.send(photo(0)).result(10)


def test_a_catalogue_that_does_not_exist_is_not_found_and_gets_no_cache(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    with pytest.raises(NotFound):
        device.send(photo(0), catalogue="no-such").result(10)
    assert edge.caches.all() == ()


def test_a_catalogue_that_vanishes_loses_its_cache(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.hidden = True
    wait_until(lambda: edge.caches.get(CATALOGUE) is None, what="the cache dropped")
    with pytest.raises(NotFound):
        device.send(photo(0)).result(10)


def test_a_removed_object_is_not_answered_any_more(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    warm(edge, device, [0, 1])
    cloud.set_models(models[1:])
    wait_until(lambda: cached(edge) == {"01"}, what="exhibit 0 out of the cache")
    assert device.ask(photo(0)) == (None, "cloud")
    assert device.ask(photo(1)) == ("01", "edge")


def test_a_replaced_object_is_fetched_anew(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    """Exhibit 0 hangs a new picture, number 20: the old one is not answered, the new one is."""
    warm(edge, device, [0, 1])
    cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])

    wait_until(lambda: version_held(edge, "00") == 2, what="the new version in the cache")
    assert device.ask(photo(20)) == ("00", "edge")
    assert device.ask(photo(0)) == (None, "cloud")
    assert cloud.fetched_ids().count("00") == 2


def test_a_newer_version_in_an_answer_is_noticed_before_the_next_poll(
    cloud: ScriptedCloud, models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, poll_s=3600.0) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        warm(edge, device, [1])
        cloud.set_models([*models, exhibit(30)])
        warm(edge, device, [30])
        assert device.ask(photo(30)) == ("30", "edge")


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
        assert all(future.result(20) > 0 for future in running)
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
            device.send_raw(request, sent).result(10)
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
                device.send(image).result(10)
    assert device.ask(photo(0))[0] == "00"


def test_a_model_that_cannot_be_fetched_does_not_hold_up_the_others(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    cloud.fetch_errors = {"01": Unavailable("no")}
    cloud.malformed = {"02"}
    cloud.silent = {"03"}
    device.ask(photo(0))
    make_misses_costly(edge)
    for number in (1, 2, 3):
        device.ask(photo(number))
    warm(edge, device, [0, 4, 5])
    assert cached(edge) == {"00", "04", "05"}
    assert device.ask(photo(2)) == ("02", "cloud")

    cloud.fetch_errors, cloud.malformed, cloud.silent = {}, set(), set()
    wait_until(
        lambda: len(cached(edge)) == EXHIBITS, what="all exhibits once they can be fetched", timeout_s=20
    )


def test_a_fetch_that_failed_is_tried_again_soon(cloud: ScriptedCloud, cache_settings: CacheSettings) -> None:
    cloud.fetch_errors = {"00": Unavailable("no")}
    patient = FetchSettings(timeout_s=600.0)
    with (
        running_edge(cloud.endpoint, cache=cache_settings, fetch=patient) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        device.ask(photo(0))
        make_misses_costly(edge)
        device.ask(photo(0))
        wait_until(lambda: cloud.fetched_ids() == ["00"], what="the first attempt")
        cloud.fetch_errors = {}
        wait_until(lambda: cached(edge) == {"00"}, what="exhibit 0 in the cache", timeout_s=5)


def test_without_room_everything_is_forwarded_and_nothing_fetched(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    none = cache_settings.model_copy(update={"k_max": 0})
    with running_edge(cloud.endpoint, cache=none) as edge, EdgeClient(edge.endpoint) as device:
        assert {device.ask(photo(0)) for _ in range(12)} == {("00", "cloud")}
        assert cloud.fetched == []
        assert cache_of(edge).size == 0


def test_a_cache_that_does_not_pay_stays_empty(cloud: ScriptedCloud, tmp_path: Path) -> None:
    """Lookups of five seconds and a cloud on loopback, however busy this machine: forwarding is faster."""
    path = tmp_path / "slow.json"
    profile_of_table_3_2().model_copy(update={"lookup_ms": (5000.0, 1.87)}).save(path)
    slow = CacheSettings(profile=path, miss_prior_ms=10.0)
    with running_edge(cloud.endpoint, cache=slow) as edge, EdgeClient(edge.endpoint) as device:
        for _ in range(25):
            assert device.ask(photo(0)) == ("00", "cloud")
        decision = cache_of(edge).optimizer.decision
        assert decision is not None
        assert decision.k == 0
        assert cloud.fetched == []


@pytest.mark.parametrize(("forward", "kind"), [("image", "image"), ("features", "features")])
def test_the_cloud_gets_what_the_setting_says(
    cloud: ScriptedCloud, cache_settings: CacheSettings, forward: str, kind: str
) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, forward=forward) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        warm(edge, device, [0])
        assert device.ask(photo(1)) == ("01", "cloud")
        assert set(cloud.received) == {kind}
        device.ask(features_of(photo(77)))
        assert cloud.received[-1] == "features", "an edge cannot make an image of features"


def test_the_cloud_gets_the_photo_whose_features_it_does_not_know(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, forward="features") as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        warm(edge, device, [0])
        cloud.received.clear()
        assert device.ask(photo(77)) == (None, "cloud")
        assert cloud.received == ["features", "image"]
        assert device.ask(features_of(photo(77))) == (None, "cloud")
        assert cloud.received == ["features", "image", "features"]
        cloud.image_error = Unavailable("gone")
        assert device.ask(photo(77)) == (None, "cloud"), "what the features said stands"


def test_a_photo_that_a_device_sends_after_its_features_goes_on_as_an_image(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    """The cloud is asked twice per unknown photo, not with the same features once more."""
    with (
        running_edge(cloud.endpoint, cache=cache_settings, forward="features") as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        warm(edge, device, [0])
        cloud.received.clear()
        cloud.told_unknown.clear()
        for _ in range(3):
            assert device.ask(features_of(photo(77))) == (None, "cloud")
            assert answer_of(device.send(photo(77), features_unknown=True).result(10)) == (None, "cloud")
        assert cloud.received == ["features", "image"] * 3
        assert cloud.told_unknown == [False, True] * 3

        lookups = cache_of(edge).regret.report().requests
        assert answer_of(device.send(photo(0), features_unknown=True).result(10)) == ("00", "cloud")
        assert cloud.received[-1] == "image"
        assert cache_of(edge).regret.report().requests == lookups, "the cache was asked already"


def test_where_photos_are_mostly_unknown_the_cloud_gets_each_once(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    asked = []
    for number in range(80):
        cloud.received.clear()
        assert device.ask(photo(77 + number % 3)) == (None, "cloud")
        asked.append(tuple(cloud.received))
    assert set(asked) <= {("features", "image"), ("image",)}
    assert asked[-20:].count(("image",)) >= 19, "but for a trial"


def test_the_cloud_gets_whichever_has_fewer_bytes(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    image = photo(1)
    features = sum(map(len, features_to_proto(features_of(image), 0)[1]))
    padded = image + bytes(max(0, features - len(image)) + 1)  # decoders ignore what follows a JPEG
    device.ask(padded)
    assert cloud.received[-1] == "features"
    tiny = features_of(image).strongest(20)
    device.ask(tiny)
    assert cloud.received[-1] == "features"


def test_an_edge_without_a_profile_says_so_and_measures_one_with_the_catalogues_own_models(
    cloud: ScriptedCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        running_edge(cloud.endpoint, cache=CacheSettings(build_share=1.0)) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        device.ask(photo(0))
        profiler = cache_of(edge).profiler
        wait_until(lambda: "models of the catalogue" in profiler.profile.dataset, what="a quick profile")
        assert profiler.profile.lookup_ms[0] > 0
        assert device.ask(photo(0))[0] == "00"
    assert "no profile given: measuring a quick one" in capsys.readouterr().err


def test_an_edge_whose_quick_profile_never_gets_its_models_serves_with_the_default(
    cloud: ScriptedCloud,
) -> None:
    cloud.silent = {f"{number:02d}" for number in range(EXHIBITS)}
    quick = FetchSettings(timeout_s=0.2)
    with (
        running_edge(cloud.endpoint, cache=CacheSettings(build_share=1.0), fetch=quick) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        device.ask(photo(0))
        wait_until(lambda: len(cloud.fetched) >= 1, what="models asked for")
        assert [device.ask(photo(number)) for number in (0, 1)] == [("00", "cloud"), ("01", "cloud")]
        assert "not measured" in cache_of(edge).profiler.profile.dataset


def test_an_edge_restarts_while_requests_come(cloud: ScriptedCloud, cache_settings: CacheSettings) -> None:
    with running_edge(cloud.endpoint, cache=cache_settings) as edge:
        endpoint = edge.endpoint
        device = EdgeClient(endpoint)
        assert device.ask(photo(0))[0] == "00"
        futures = [device.send(photo(0), timeout_s=8.0) for _ in range(6)]
    same_port = ServerSettings(listen=endpoint, workers=2)
    with device, running_edge(cloud.endpoint, cache=cache_settings, server=same_port):
        for future in futures:
            error = future.exception(15)
            assert error is None or isinstance(error, (Unavailable, DeadlineExceeded, Overloaded))
        assert device.ask(photo(0))[0] == "00"


def test_health_and_metrics_show_what_the_cache_does(edge: EdgeDaemon, device: EdgeClient) -> None:
    warm(edge, device, [0])
    device.ask(photo(0))
    check = device.health.check(health_pb2.HealthRequest(), timeout_s=5.0).message
    facts = {detail.name: detail.value for detail in check.details}
    assert check.ready
    assert facts["museum: cached objects"].startswith(f"1 of {EXHIBITS}")
    assert "k=1" in facts["museum: decision"]
    assert "requests" in facts["museum: hit ratio"]


def test_metrics_count_hits_misses_and_fetched_models(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    metrics = DaemonMetrics("edge")
    daemon = EdgeDaemon(edge_settings(cloud.endpoint, cache=cache_settings), metrics)
    daemon.start()
    try:
        with EdgeClient(daemon.endpoint) as device:
            warm(daemon, device, [0])
            device.ask(photo(0))
    finally:
        daemon.stop(2.0)
    text = generate_latest(metrics.registry).decode()
    assert 'nearsight_edge_fetched_models_total{catalogue="museum"} 1.0' in text
    assert 'nearsight_edge_cached_objects{catalogue="museum"} 1.0' in text
    assert 'nearsight_edge_hits_total{catalogue="museum"}' in text
    assert 'nearsight_edge_misses_total{catalogue="museum"}' in text


def test_made_up_catalogues_cost_no_cache(cloud: ScriptedCloud, cache_settings: CacheSettings) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, catalogues_max=1) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        device.ask(photo(0))
        cache_of(edge)
        for name in ("x", "y", "z"):
            with pytest.raises(NotFound):
                device.send(photo(0), catalogue=name).result(10)
        assert [cache.name for cache in edge.caches.all()] == [CATALOGUE]


def test_a_port_in_use_is_reported_and_leaves_nothing_running(
    edge: EdgeDaemon, cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    taken = ServerSettings(listen=edge.endpoint)
    second = EdgeDaemon(
        edge_settings(cloud.endpoint, cache=cache_settings, server=taken), DaemonMetrics("edge")
    )
    with pytest.raises(AddressInUse):
        second.start()


def test_an_edge_without_a_cloud_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="--cloud"):
        EdgeDaemon(edge_settings(""), DaemonMetrics("edge"))


def test_a_wrong_profile_or_backend_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    with pytest.raises(CorruptStore, match="profile"):
        EdgeDaemon(
            edge_settings("tcp://127.0.0.1:1", cache=CacheSettings(profile=path)), DaemonMetrics("edge")
        )
    recognition = edge_settings("x").recognition.model_copy(update={"backend": "no-such"})
    with pytest.raises(ConfigurationError, match="no-such"):
        EdgeDaemon(edge_settings("tcp://127.0.0.1:1", recognition=recognition), DaemonMetrics("edge"))


def test_a_cloud_that_lists_a_version_it_does_not_hand_out_yet_is_not_asked_in_a_loop(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    """While the cloud's index lags behind its list of objects, the model that it sends is outdated."""
    warm(edge, device, [1])
    cloud.handed_out = {"00": models[0]}
    cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])
    wait_until(lambda: cache_of(edge).revision == 2, what="the new list at the edge")
    ask_until(lambda: "00" in cloud.fetched_ids(), lambda: device.ask(photo(20)), "a request for exhibit 0")
    for _ in range(30):
        assert device.ask(photo(20)) == ("00", "cloud")
    assert version_held(edge, "00") == 0
    assert cloud.fetched_ids().count("00") <= 4
    cloud.handed_out = {}
    wait_until(lambda: version_held(edge, "00") == 2, what="the new version in the cache")
    assert device.ask(photo(20)) == ("00", "edge")


def test_slow_fetches_end_by_their_timeout(cloud: ScriptedCloud, cache_settings: CacheSettings) -> None:
    cloud.silent = {"00"}
    with (
        running_edge(cloud.endpoint, cache=cache_settings, fetch=FetchSettings(timeout_s=0.2)) as edge,
        EdgeClient(edge.endpoint) as device,
    ):
        device.ask(photo(0))
        make_misses_costly(edge)
        device.ask(photo(0))
        wait_until(lambda: len(cloud.fetched) >= 2, what="a second attempt")
        cloud.silent = set()
        wait_until(lambda: cached(edge) == {"00"}, what="exhibit 0 in the cache")


@pytest.mark.parametrize("policy", ["adaptive", "lfu", "lru", "everything"])
def test_an_empty_catalogue_is_unknown_photos_and_one_object_is_a_cache_of_one(
    models: list[ObjectModel], cache_settings: CacheSettings, policy: str
) -> None:
    settings = cache_settings.model_copy(update={"policy": policy})
    cloud = ScriptedCloud([])
    try:
        with running_edge(cloud.endpoint, cache=settings) as edge, EdgeClient(edge.endpoint) as device:
            for _ in range(12):
                assert device.ask(photo(0)) == (None, "cloud")
            cache = cache_of(edge)
            cache.improve()
            assert (cache.size, cache.optimizer.decision.k if cache.optimizer.decision else -1) == (0, 0)
            cloud.set_models(models[:1])
            warm(edge, device, [0])
            assert device.ask(photo(0)) == ("00", "edge")
            cloud.set_models([])
            wait_until(lambda: cached(edge) == set(), what="an empty cache")
            assert device.ask(photo(0)) == (None, "cloud")
    finally:
        cloud.stop()
