"""The edge as a daemon: how it starts and stops, what it says of itself."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from nearsight.common.errors import (
    AddressInUse,
    ConfigurationError,
    CorruptStore,
    DeadlineExceeded,
    Overloaded,
    Unavailable,
)
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.server import ServerSettings
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, FetchSettings
from nearsight.protos import health_pb2
from support.edge import (
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    cache_of,
    edge_settings,
    photo,
    running_edge,
    serving,
    warm,
)
from support.waiting import wait_until


def test_an_edge_starts_without_its_cloud_and_is_ready_once_that_is_there(
    models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    first = ScriptedCloud(models)
    endpoint = first.endpoint
    first.stop()
    with running_edge(endpoint, cache=cache_settings) as edge, EdgeClient(edge.endpoint) as device:
        assert not edge.ready()
        with pytest.raises(Unavailable):
            device.send(photo(0), timeout_s=2.0).result(30)
        cloud = ScriptedCloud(models, listen=endpoint)
        try:
            wait_until(edge.ready, what="the edge ready")
            assert device.ask(photo(0)) == ("00", "cloud")
        finally:
            cloud.stop()


def test_an_edge_without_a_profile_says_so_and_measures_one_with_the_catalogues_own_models(
    cloud: ScriptedCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(cloud, cache=CacheSettings(build_share=1.0)) as (edge, device):
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
    with serving(cloud, cache=CacheSettings(build_share=1.0), fetch=quick) as (edge, device):
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


def test_metrics_count_hits_misses_and_fetched_models(serve: Serve) -> None:
    metrics = DaemonMetrics("edge")
    with serve(metrics) as (edge, device):
        warm(edge, device, [0])
        device.ask(photo(0))
        device.ask(photo(77))
    text = generate_latest(metrics.registry).decode()
    assert 'nearsight_edge_fetched_models_total{catalogue="museum"} 1.0' in text
    assert 'nearsight_edge_cached_objects{catalogue="museum"} 1.0' in text
    assert 'nearsight_edge_hits_total{catalogue="museum"}' in text
    assert 'nearsight_edge_misses_total{catalogue="museum"}' in text


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


def test_what_the_very_first_request_was_for_counts_as_asked_for(edge: EdgeDaemon) -> None:
    with EdgeClient(edge.endpoint) as device:
        device.ask(photo(3))
    cache = cache_of(edge)
    wait_until(lambda: cache.estimator.ranking().seen == 1, what="the first request to count")
