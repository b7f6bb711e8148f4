"""The edge daemon: start, stop, health and metrics."""

import math
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from nearsight.cloud.network_intake import RemoteNetworks
from nearsight.common.errors import (
    AddressInUse,
    ConfigurationError,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    Unavailable,
)
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Channel
from nearsight.common.settings import SettingsGroup
from nearsight.edge import memory_budget
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, FetchSettings, LoadSettings
from nearsight.protos import health_pb2
from support.edge import (
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    cache_of,
    edge_server,
    edge_settings,
    photo,
    running_edge,
    serving,
    warm,
)
from support.waiting import LONG_S, wait_until


def test_an_edge_starts_without_its_cloud_and_is_ready_once_it_is_reachable(
    models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    first = ScriptedCloud(models)
    endpoint = first.endpoint
    first.stop()
    with running_edge(endpoint, cache=cache_settings) as edge, EdgeClient(edge.endpoint) as device:
        assert not edge.ready()
        with pytest.raises(Unavailable):
            device.send(photo(0)).result(LONG_S)
        cloud = ScriptedCloud(models, listen=endpoint)
        try:
            wait_until(edge.ready, what="the edge ready")
            assert device.ask(photo(0)) == ("00", "cloud")
        finally:
            cloud.stop()


def test_a_cloud_that_is_unreachable_at_the_start_is_one_line_of_the_log() -> None:
    with capture_logs() as logs, running_edge("tcp://127.0.0.1:1") as edge:
        wait_until(lambda: edge.caches.cloud_lost, what="the first poll")
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert (line["event"], line["endpoint"]) == ("cloud unreachable", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("group", "name"),
    [(CacheSettings, "prior"), (LoadSettings, "interarrival_seed_ms"), (LoadSettings, "compute_seed_ms")],
)
def test_infinite_values_that_no_estimate_accepts_are_refused_by_the_settings(
    group: type[SettingsGroup], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=name):
        group(**{name: math.inf})


def test_an_edge_that_gets_no_models_for_a_quick_profile_uses_the_default(
    cloud: ScriptedCloud,
) -> None:
    cloud.silent = {f"{number:02d}" for number in range(EXHIBITS)}
    quick = FetchSettings(timeout_s=0.2)
    with serving(cloud, cache=CacheSettings(build_share=1.0), fetch=quick) as (edge, device):
        device.ask(photo(0))
        wait_until(lambda: len(cloud.fetched) >= 1, what="models asked for")
        assert [device.ask(photo(number)) for number in (0, 1)] == [("00", "cloud"), ("01", "cloud")]
        assert "not measured" in cache_of(edge).profiler.profile.dataset


def test_an_edge_can_be_restarted_during_requests(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    with running_edge(cloud.endpoint, cache=cache_settings) as edge:
        endpoint = edge.endpoint
        device = EdgeClient(endpoint)
        assert device.ask(photo(0))[0] == "00"
        futures = [device.send(photo(0)) for _ in range(6)]
    same_port = edge_server(endpoint)
    with device, running_edge(cloud.endpoint, cache=cache_settings, server=same_port):
        for future in futures:
            error = future.exception(LONG_S)
            assert error is None or isinstance(error, (Unavailable, DeadlineExceeded, Overloaded))
        assert device.ask(photo(0))[0] == "00"


def test_health_contains_the_state_of_the_cache(edge: EdgeDaemon, device: EdgeClient) -> None:
    warm(edge, device, [0])
    device.ask(photo(0))
    check = device.health.check(health_pb2.HealthRequest(), timeout_s=LONG_S).message
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


def test_a_port_in_use_is_reported_and_the_state_files_are_closed(
    edge: EdgeDaemon, cloud: ScriptedCloud, cache_settings: CacheSettings, tmp_path: Path
) -> None:
    changes = {"cache": cache_settings, "state": tmp_path / "edge.db", "standby_mb": 50}
    taken = edge_settings(cloud.endpoint, server=edge_server(edge.endpoint), **changes)
    second = EdgeDaemon(taken, DaemonMetrics("edge"))
    with pytest.raises(AddressInUse):
        second.start()
    with running_edge(cloud.endpoint, **changes):
        pass


def test_an_invalid_backend_prevents_the_start() -> None:
    recognition = edge_settings("x").recognition.model_copy(update={"backend": "no-such"})
    with pytest.raises(ConfigurationError, match="no-such"):
        EdgeDaemon(edge_settings("tcp://127.0.0.1:1", recognition=recognition), DaemonMetrics("edge"))


def test_the_object_of_the_first_request_is_counted(edge: EdgeDaemon) -> None:
    with EdgeClient(edge.endpoint) as device:
        device.ask(photo(3))
    cache = cache_of(edge)
    wait_until(lambda: cache.estimator.ranking().seen == 1, what="the first request to count")


def test_an_edge_refuses_changes_of_networks_and_names_the_next_step(edge: EdgeDaemon) -> None:
    with (
        Channel(edge.endpoint, client_id="test") as channel,
        pytest.raises(
            InvalidArgument, match="an edge does not change networks; give the address of the cloud"
        ),
    ):
        RemoteNetworks(channel).remove("birds")


def test_an_edge_without_networks_does_not_report_their_memory(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recognition cache could use more than all of its memory."""
    monkeypatch.setattr(memory_budget, "_EVERY_S", 0.02)
    with serve(memory_mb=1) as (edge, device):
        device.ask(photo(0))
        wait_until(lambda: edge.memory.networks.limit_bytes == 0, what="a division of the memory")
    assert "memory for networks" not in capsys.readouterr().err
