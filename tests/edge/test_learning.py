"""Learning from earlier runs: an edge continues with the state of a former one, even of a killed one."""

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import CorruptStore, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.operation.explain import ask_explanations
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.catalogue_caches import Journal
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from nearsight.edge.state_store import StateStore
from nearsight.protos import catalogue_pb2 as pb
from support.caching import profile_of_table_3_2
from support.daemon_process import DaemonProcess, daemon_process
from support.edge import (
    CATALOGUE,
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    cache_of,
    cached,
    edge_settings,
    photo,
    running_edge,
    serving,
    warm,
)
from support.objects import random_model
from support.waiting import LONG_S, wait_until

OBJECTS = 200


def edge_process(cloud: str, folder: Path) -> AbstractContextManager[DaemonProcess]:
    """An edge in a process of its own."""
    settings = ["metrics_listen=", "state_every_s=0.1", "cache.half_life_s=1e7", "poll_s=0.1"]
    flags = [part for setting in settings for part in ("--set", setting)]
    files = ["--profile", str(folder / "profile.json"), "--state", str(folder / "edge.db")]
    return daemon_process(folder, "edge", "--cloud", cloud, *files, *flags)


def last_decision(edge: DaemonProcess) -> Explanation | None:
    """None before the first."""
    (answer,) = ask_explanations([edge.endpoint], timeout_s=LONG_S)
    return answer.decisions[0] if answer.decisions else None


def wait_for_cache(device: EdgeClient) -> None:
    """The edge lists objects as soon as the catalogue has a cache."""
    device.catalogues.list_objects(pb.ListObjectsRequest(), timeout_s=LONG_S, catalogue=CATALOGUE)


def decided(edge: DaemonProcess) -> Explanation:
    wait_until(lambda: last_decision(edge) is not None, what="a decision")
    decision = last_decision(edge)
    assert decision is not None
    return decision


@pytest.mark.system
def test_an_edge_continues_with_the_cache_size_and_predictions_of_a_killed_one(tmp_path: Path) -> None:
    """Devices report popularity and transitions, so no photos are needed."""
    costly = profile_of_table_3_2().model_copy(update={"lookup_ms": (1.0, 0.4)})
    costly.save(tmp_path / "profile.json")
    rng = np.random.default_rng(3)
    weights = np.arange(1, OBJECTS + 1) ** -0.8
    popular = rng.choice(OBJECTS, size=1500, p=weights / weights.sum())
    cloud = ScriptedCloud([random_model(f"{number:03d}", number) for number in range(OBJECTS)])
    try:
        with edge_process(cloud.endpoint, tmp_path) as edge:
            with EdgeClient(edge.endpoint, device_id="visitor") as device:
                device.report("000")
                wait_for_cache(device)
                for number in popular:
                    device.report(f"{number:03d}")
                for _ in range(30):
                    device.report("150")
                    following = device.report("151")
                predicted = device.report("150")
            before = decided(edge)
            wait_until(lambda: (now := last_decision(edge)) is not None and now.age_s > 0.5, what="quiet")
            before = decided(edge)
            edge.kill()
        assert following.object_ids[0] == "150"
        with edge_process(cloud.endpoint, tmp_path) as edge:
            first = decided(edge)
            with EdgeClient(edge.endpoint, device_id="another") as device:
                again = device.report("150")
    finally:
        cloud.stop()
    assert before.chosen.k > 20
    assert first.chosen.k == pytest.approx(before.chosen.k, rel=0.1)
    assert first.object_ids[:5] == before.object_ids[:5]
    assert again.object_ids[0] == predicted.object_ids[0] == "151"
    assert again.probabilities[0] == pytest.approx(predicted.probabilities[0], rel=0.05)


def test_a_killed_edge_loses_only_the_requests_since_its_last_write(tmp_path: Path) -> None:
    """Requests before the last write are kept."""
    profile_of_table_3_2().save(tmp_path / "profile.json")
    cloud = ScriptedCloud([random_model(f"{number:03d}", number) for number in range(3)])

    def written() -> list[int]:
        return [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("edge.db*"))]

    asked, due = 0, list[int]()
    try:
        with edge_process(cloud.endpoint, tmp_path) as edge, EdgeClient(edge.endpoint) as device:
            device.report("001")
            wait_for_cache(device)
            for _ in range(10):  # one write may be several changes of the files
                due.append(asked)
                before = written()
                while written() == before:
                    device.report("000")
                    asked += 1
            edge.kill()
    finally:
        cloud.stop()
    with StateStore(tmp_path / "edge.db", SYSTEM_CLOCK) as store:
        kept = sum(one.count for one in store.load(CATALOGUE).popularity if one.object_id == "000")
    assert 0 < due[4] * 0.99 <= kept <= asked


def test_a_restarted_edge_fills_its_cache_before_the_first_request(
    cloud: ScriptedCloud, serve: Serve, tmp_path: Path
) -> None:
    state = tmp_path / "edge.db"
    with serve(state=state) as (edge, device):
        warm(edge, device, [0, 1, 2])
    asked = len(cloud.received)
    with serve(state=state) as (edge, device):
        wait_until(lambda: cached(edge) == {"00", "01", "02"}, what="the former cache")
        assert len(cloud.received) == asked
        assert device.ask(photo(1)) == ("01", "edge")
        assert cache_of(edge).profiler.costs(0).miss_ms > 100


def test_without_a_profile_a_quick_one_is_measured_and_stored(
    cloud: ScriptedCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "edge.db"
    with serving(cloud, cache=CacheSettings(), state=state) as (edge, device):
        device.ask(photo(77))
        profiler = cache_of(edge).profiler
        wait_until(lambda: "quick" in profiler.profile.dataset, what="a quick profile")
        device.ask(photo(0))
        measured = profiler.profile
    assert "no profile given: measuring a quick one" in capsys.readouterr().err
    fetched = len(cloud.fetched)
    with running_edge(cloud.endpoint, cache=CacheSettings(k_max=0), state=state) as edge:
        assert cache_of(edge).profiler.profile == measured
        assert len(cloud.fetched) == fetched


def test_a_quick_profile_is_measured_once_the_catalogue_has_objects_and_again_if_it_grows(
    models: list[ObjectModel],
) -> None:
    cloud = ScriptedCloud([])
    try:
        with serving(cloud, cache=CacheSettings()) as (edge, device):
            assert device.ask(photo(0)) == (None, "cloud")
            profiler = cache_of(edge).profiler
            cloud.set_models(models[:1])
            wait_until(lambda: "quick: 1 models" in profiler.profile.dataset, what="a quick profile")
            assert profiler.profile.largest_k == 1
            cloud.set_models(models)
            wait_until(lambda: profiler.profile.largest_k == len(models), what="another one")
    finally:
        cloud.stop()


def test_the_built_in_profile_of_an_earlier_run_is_replaced_by_a_measured_one(
    cloud: ScriptedCloud, tmp_path: Path
) -> None:
    state = tmp_path / "edge.db"
    cloud.fetch_errors = {f"{number:02d}": Unavailable("no") for number in range(EXHIBITS)}
    with serving(cloud, cache=CacheSettings(), state=state) as (edge, device):
        device.ask(photo(77))
        cache_of(edge)
        device.ask(photo(0))
        wait_until(lambda: cache_of(edge).profiler.measured() is not None, what="a measured miss")
    cloud.fetch_errors = {}
    with running_edge(cloud.endpoint, cache=CacheSettings(), state=state) as edge:
        profiler = cache_of(edge).profiler
        wait_until(lambda: "quick" in profiler.profile.dataset, what="a quick profile")


def test_objects_removed_between_two_runs_are_dropped(
    cloud: ScriptedCloud, serve: Serve, tmp_path: Path, models: list[ObjectModel]
) -> None:
    state = tmp_path / "edge.db"
    with serve(state=state) as (edge, device):
        warm(edge, device, [0, 1])
    cloud.set_models(models[1:])
    with serve(state=state) as (edge, device):
        wait_until(lambda: cached(edge) == {"01"}, what="the remaining object")
        assert device.ask(photo(0)) == (None, "cloud")
        assert "00" not in device.report("01").object_ids


def test_an_edge_that_starts_before_its_cloud_restores_its_cache_later(
    cache_settings: CacheSettings, tmp_path: Path, models: list[ObjectModel]
) -> None:
    state = tmp_path / "edge.db"
    cloud = ScriptedCloud(models)
    endpoint = cloud.endpoint
    try:
        with (
            running_edge(endpoint, cache=cache_settings, state=state) as edge,
            EdgeClient(edge.endpoint) as device,
        ):
            warm(edge, device, [0])
    finally:
        cloud.stop()
    with running_edge(endpoint, cache=cache_settings, state=state) as edge:
        wait_until(lambda: bool(edge.caches.cloud_problem), what="the missing cloud")
        cloud = ScriptedCloud(models, listen=endpoint)
        try:
            wait_until(lambda: cached(edge) == {"00"}, what="the former cache")
        finally:
            cloud.stop()


def test_a_file_of_another_program_prevents_the_start_and_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "edge.db"
    path.write_bytes(b"somebody's diary" * 1000)
    with pytest.raises(CorruptStore, match=r"edge\.db"):
        EdgeDaemon(edge_settings("tcp://127.0.0.1:1", state=path), DaemonMetrics("edge"))
    assert path.read_bytes() == b"somebody's diary" * 1000


def test_a_failed_write_is_reported_and_repeated(serve: Serve, tmp_path: Path) -> None:
    state = tmp_path / "edge.db"
    with serve(state=state, state_every_s=0.05) as (edge, device):
        device.ask(photo(0))
        cache_of(edge)
        store = edge.caches.services.store
        assert store is not None
        store._connection.execute("PRAGMA query_only = ON")  # as on a read-only disk
        device.report("03")
        wait_until(lambda: bool(edge.caches.journal_problem), what="the report of the problem")
        assert any(name == "state" and "edge.db" in value for name, value in edge.details())
        store._connection.execute("PRAGMA query_only = OFF")
        wait_until(lambda: not edge.caches.journal_problem, what="the next write")
        wait_until(
            lambda: "03" in {one.object_id for one in store.load(CATALOGUE).popularity},
            what="the count on disk",
        )


def test_without_changes_nothing_is_written(serve: Serve, tmp_path: Path) -> None:
    with serve(state=tmp_path / "edge.db", state_every_s=3600.0) as (edge, device):
        device.ask(photo(0))
        cache_of(edge)
        store = edge.caches.services.store
        assert store is not None
        journal = Journal(store, edge.caches.all, edge.caches.services.background, 3600.0)

        def written() -> int:
            before = store._connection.total_changes
            journal.write(edge.caches.all())
            return store._connection.total_changes - before

        device.report("03")
        assert written() > 0
        # The edge still measures its costs for a while after the first request.
        wait_until(lambda: not any(written() for _ in range(20)), what="twenty rounds without a write")
        device.report("04")
        assert written() > 0
