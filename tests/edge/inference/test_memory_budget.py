"""Networks and recognition caches share one budget: real cloud, edge and SDK in this process."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from nearsight import Recognizer
from nearsight.__main__ import main
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.inference.leases import Lease
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.metrics import DaemonMetrics
from nearsight.edge import memory_budget
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.inference.networks import EdgeNetworks
from nearsight.edge.memory_budget import RequestRates
from nearsight.edge.settings import CacheSettings
from support.caching import profile_of_table_3_2
from support.cloud import CloudClient, running_cloud
from support.edge import EdgeClient, ask_until, cache_of, make_misses_costly, photo, running_edge
from support.networks import add_network, colour_network, photo_of
from support.pictures import picture_jpeg
from support.recognizers import PATIENT
from support.waiting import wait_until

MB = 10**6
OBJECTS = 12


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudDaemon]:
    models = ModelSettings(folder=tmp_path / "models")
    with running_cloud(tmp_path / "cloud.db", models=models) as daemon:
        with CloudClient(daemon.endpoint) as client:
            client.add({f"{number:02d}": [picture_jpeg(number)] for number in range(OBJECTS)})
        add_network(daemon.networks.repository, "colours", colour_network(tmp_path / "c.onnx", weights_mb=3))
        yield daemon


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Settings of an edge that divides its memory often, by the latest requests.

    On loopback the cloud may answer as soon as a network executes here: then its memory saves nothing.
    """
    monkeypatch.setattr(EdgeNetworks, "_expected_forward_ms", lambda *_: 2000.0)
    monkeypatch.setattr(memory_budget, "_EVERY_S", 0.02)
    monkeypatch.setattr(memory_budget, "RATE_WINDOW_S", 0.2)
    path = tmp_path / "profile.json"
    profile_of_table_3_2().model_copy(update={"lookup_ms": (1.0, 0.05)}).save(path)
    cache = CacheSettings(build_share=1.0, miss_window=10_000, profile=path, library_mb=1)
    return {"cache": cache, "models": ModelSettings(folder=tmp_path / "edge-models", memory_mb=20)}


def used_bytes(edge: EdgeDaemon) -> int:
    """Memory of all parts at one time; memory moves between the parts."""
    cache = cache_of(edge)

    def parts() -> tuple[int, int, int]:
        spare_bytes = cache.supply.library.size_bytes
        return cache.holder.snapshot.size_bytes, spare_bytes, edge.networks.memory.state.used_bytes

    while (found := parts()) != parts():
        pass
    return sum(found)


def test_memory_follows_the_requests_and_answers_stay_correct(
    cloud: CloudDaemon, settings: dict[str, object], stack: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = DaemonMetrics("edge")
    edge = stack.enter_context(running_edge(cloud.endpoint, metrics, memory_mb=4, **settings))
    device = stack.enter_context(EdgeClient(edge.endpoint))
    recognizer = stack.enter_context(Recognizer(edge.endpoint, None, "colours", settings=PATIENT))
    memory = edge.networks.memory

    def visit() -> None:
        for number in range(OBJECTS):
            assert device.ask(photo(number))[0] == f"{number:02d}"
            assert used_bytes(edge) <= 4 * MB

    def name_colours() -> None:
        for colour in ("red", "green", "blue"):
            assert recognizer.recognize_blocking(photo_of(colour)).label == colour
            assert used_bytes(edge) <= 4 * MB

    visit()
    make_misses_costly(edge)
    ask_until(lambda: cache_of(edge).size == OBJECTS, visit, "all objects in the cache")
    ask_until(partial(memory.is_resident, "colours"), name_colours, "the network in memory")
    assert cache_of(edge).size < OBJECTS
    assert recognizer.recognize_blocking(photo_of("red")).answered_by == "edge"
    details = dict(edge.details())
    assert details["memory"].endswith("of 4 MB")
    assert "which save" in details["memory of networks"]
    assert main(["explain", edge.endpoint]) == 0
    told = capsys.readouterr().out
    assert "memory: " in told
    assert "; all networks: 3." in told

    in_use = memory.request("colours")
    assert isinstance(in_use, Lease)
    ask_until(lambda: edge.memory.networks.limit_bytes < 3 * MB, visit, "less memory for networks")
    visit()
    assert memory.is_resident("colours")  # it executes
    assert cache_of(edge).size < OBJECTS
    in_use.release()
    ask_until(lambda: cache_of(edge).size == OBJECTS, visit, "all objects in the cache again")
    assert not memory.is_resident("colours")
    series = generate_latest(metrics.registry).decode()
    assert 'nearsight_edge_memory_bytes{catalogue="",of="networks"} 0.0' in series
    assert 'nearsight_edge_memory_limit_bytes{catalogue="museum",of="objects"}' in series
    name_colours()  # by the cloud


@pytest.mark.parametrize("memory_mb", [0, 64])
def test_with_enough_memory_nothing_is_limited(
    cloud: CloudDaemon, settings: dict[str, object], stack: ExitStack, memory_mb: int
) -> None:
    edge = stack.enter_context(running_edge(cloud.endpoint, memory_mb=memory_mb, **settings))
    device = stack.enter_context(EdgeClient(edge.endpoint))
    recognizer = stack.enter_context(Recognizer(edge.endpoint, None, "colours", settings=PATIENT))

    def ask() -> None:
        recognizer.recognize_blocking(photo_of("red"))
        for number in range(OBJECTS):
            device.ask(photo(number))

    ask()
    make_misses_costly(edge)
    ask_until(
        lambda: cache_of(edge).size == OBJECTS and edge.networks.memory.is_resident("colours"), ask, "all"
    )
    assert edge.networks.memory.state.budget_bytes == 20 * MB
    if memory_mb:
        wait_until(lambda: "museum" in edge.memory.caches, what="a division")
        assert "no limit" in edge.memory.why("museum")
    else:
        assert "memory" not in dict(edge.details())


def test_rates_decay_and_a_reset_count_is_no_negative_rate() -> None:
    rates = RequestRates(10.0)
    assert rates.update({"a": 0}, 0.0) == {"a": 0.0}
    for second in range(1, 101):
        found = rates.update({"a": 3 * second, "b": 0}, float(second))
    assert found["a"] == pytest.approx(3.0, rel=1e-3)
    later = {"a": 3.0 / 2.71828, "b": 0.0632}
    assert rates.update({"a": 5, "b": 1}, 110.0) == pytest.approx(later, rel=1e-3)
    assert rates.update({"a": 5, "b": 1}, 100_000.0) == pytest.approx(later, rel=1e-3)  # a quiet night
