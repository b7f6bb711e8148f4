"""The edge in front of the real cloud daemon, also while objects are replaced and removed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nearsight.cloud.daemon import CloudDaemon
from nearsight.cloud.service import CatalogueService
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.common.rpc.server import ServerSettings
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from nearsight.protos import catalogue_pb2 as pb
from support.caching import profile_of_table_3_2
from support.cloud import CloudClient, cloud_settings, running_cloud
from support.edge import EdgeClient, cache_of, is_cached, photo, running_edge, warm
from support.pictures import picture_jpeg
from support.waiting import LONG_S, wait_until


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudDaemon]:
    with running_cloud(tmp_path / "cloud.db") as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"{number:02d}": [picture_jpeg(number)] for number in range(4)})
        client.add({"00": [picture_jpeg(50)], "01": [picture_jpeg(51)]}, catalogue="library")
        yield daemon


@pytest.fixture
def cache_settings(tmp_path: Path) -> CacheSettings:
    path = tmp_path / "profile.json"
    profile_of_table_3_2().model_copy(update={"lookup_ms": (1.0, 0.05)}).save(path)
    return CacheSettings(build_share=1.0, miss_window=10_000, profile=path)


@pytest.fixture
def edge(cloud: CloudDaemon, cache_settings: CacheSettings) -> Iterator[EdgeDaemon]:
    with running_edge(cloud.endpoint, cache=cache_settings) as daemon:
        yield daemon


def test_the_edge_answers_as_the_cloud_does(edge: EdgeDaemon, cloud: CloudDaemon) -> None:
    with EdgeClient(edge.endpoint) as device, EdgeClient(cloud.endpoint) as direct:
        for number in range(4):
            warm(edge, device, [number])
        for number in range(4):
            ours = device.send(photo(number)).result(LONG_S).message
            theirs = direct.send(photo(number)).result(LONG_S).message
            assert (ours.answered_by, theirs.answered_by) == ("edge", "cloud")
            assert ours.object.object_id == theirs.object.object_id == f"{number:02d}"
            assert ours.object.label == theirs.object.label
            assert ours.object.version == theirs.object.version
            for mine, other in zip(ours.object.corners, theirs.object.corners, strict=True):
                assert (mine.x, mine.y) == pytest.approx((other.x, other.y), abs=4.0)


def test_objects_replaced_and_removed_in_the_cloud_follow_at_the_edge(
    edge: EdgeDaemon, cloud: CloudDaemon
) -> None:
    with EdgeClient(edge.endpoint) as device, CloudClient(cloud.endpoint) as curator:
        warm(edge, device, [0])
        warm(edge, device, [1])
        curator.remove("01")
        wait_until(lambda: not is_cached(edge, "01"), what="the eviction of the removed object")
        assert device.ask(photo(1)) == (None, "cloud")

        curator.add({"00": [picture_jpeg(60)]})
        version = {entry.object_id: entry.version for entry in curator.objects().objects}["00"]

        def holds_the_new_version() -> bool:
            model = cache_of(edge).holder.snapshot.models.get("00")
            return model is not None and model.version == version

        wait_until(holds_the_new_version, what="the new version cached")
        assert device.ask(photo(60)) == ("00", "edge")
        assert device.ask(photo(0)) == (None, "cloud")


def test_catalogues_have_separate_caches(edge: EdgeDaemon) -> None:
    with EdgeClient(edge.endpoint) as device, EdgeClient(edge.endpoint, "library") as reader:
        warm(edge, device, [0])
        assert reader.ask(photo(50)) == ("00", "cloud")
        assert reader.ask(photo(0)) == (None, "cloud")
        wait_until(lambda: len(edge.caches.all()) == 2, what="a second cache")
        assert device.ask(photo(0)) == ("00", "edge")


def test_with_several_catalogues_calls_must_name_one(edge: EdgeDaemon) -> None:
    wait_until(lambda: len(edge.caches.listed) == 2, what="the listing of the cloud")
    with EdgeClient(edge.endpoint, catalogue="") as device:
        with pytest.raises(InvalidArgument, match="no catalogue was named"):
            device.ask(photo(0))
        with pytest.raises(InvalidArgument, match="no catalogue was named"):
            device.catalogues.list_objects(pb.ListObjectsRequest(), timeout_s=LONG_S, catalogue="")
    assert edge.caches.all() == ()


def test_the_least_recently_used_catalogue_is_dropped(
    cloud: CloudDaemon, cache_settings: CacheSettings
) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, catalogues_max=1) as edge,
        EdgeClient(edge.endpoint) as device,
        EdgeClient(edge.endpoint, "library") as reader,
    ):
        warm(edge, device, [0])
        reader.ask(photo(50))
        wait_until(
            lambda: [cache.name for cache in edge.caches.all()] == ["library"], what="the new cache alone"
        )
        assert device.ask(photo(0)) == ("00", "cloud")


class SlowLoading:
    """Delays the loading of databases, and counts requests for the catalogues."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.listings = 0
        load, listed = CatalogueStore.changes_since, CatalogueService.list_catalogues

        def slow(*call: object) -> object:
            assert self.go_on.wait(LONG_S)
            return load(*call)

        def count(*call: object) -> object:
            self.listings += 1
            return listed(*call)

        monkeypatch.setattr(CatalogueStore, "changes_since", slow)
        monkeypatch.setattr(CatalogueService, "list_catalogues", count)


def test_caches_are_kept_while_a_restarted_cloud_loads(
    tmp_path: Path, cache_settings: CacheSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_cloud(tmp_path / "cloud.db") as cloud, CloudClient(cloud.endpoint) as client:
        client.add({"00": [picture_jpeg(0)]})
        listen = cloud.endpoint
    with (
        ThreadPoolExecutor(1) as pool,
        running_edge(listen, cache=cache_settings) as edge,
        EdgeClient(edge.endpoint) as device,
        CloudClient(listen) as client,
    ):
        server = ServerSettings(listen=listen, workers=2, queue_timeout_s=LONG_S)
        with running_cloud(tmp_path / "cloud.db", server=server):
            warm(edge, device, [0])
        loading = SlowLoading(monkeypatch)
        again = CloudDaemon(cloud_settings(tmp_path / "cloud.db", server=server))
        try:
            started = pool.submit(again.start)
            wait_until(lambda: loading.listings >= 3, what="requests while the cloud loads")
            assert device.ask(photo(0)) == ("00", "edge")
            health = client.check()
            assert not health.ready
            assert "0 of 1 objects" in {one.name: one.value for one in health.details}["loading"]
            with pytest.raises(Unavailable, match="loading"):
                client.objects()
            loading.go_on.set()
            started.result(LONG_S)
            wait_until(lambda: not edge.caches.cloud_problem, what="the cloud reached")
            assert device.ask(photo(0)) == ("00", "edge")
        finally:
            loading.go_on.set()
            again.stop(2.0)
