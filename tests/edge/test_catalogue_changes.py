"""Catalogues that change, are removed or do not exist: answers and requests of the edge."""

import pytest

from nearsight.common.errors import NotFound, Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from nearsight.protos import catalogue_pb2 as pb
from support.edge import (
    CATALOGUE,
    EdgeClient,
    ScriptedCloud,
    Serve,
    ask_until,
    cache_of,
    cached,
    exhibit,
    photo,
    serving,
    warm,
)
from support.waiting import LONG_S, wait_until


def version_held(edge: EdgeDaemon, name: str) -> int:
    model = cache_of(edge).holder.snapshot.models.get(name)
    return model.version if model is not None else 0


def test_the_cache_of_a_removed_catalogue_is_dropped(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.hidden = True
    wait_until(lambda: edge.caches.get(CATALOGUE) is None, what="the cache dropped")
    with pytest.raises(NotFound):
        device.send(photo(0)).result(LONG_S)


def test_a_recreated_catalogue_is_fetched_again(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    """The same ids and versions, other pictures."""
    warm(edge, device, [0, 1])
    old = cache_of(edge)
    cloud.set_models([exhibit(number, picture=number + 10) for number in range(3)])
    wait_until(lambda: cache_of(edge) is not old, what="a cache of the new catalogue")
    assert device.ask(photo(0)) == (None, "cloud")
    assert device.ask(photo(10)) == ("00", "cloud")


def test_a_catalogue_recreated_during_an_outage_is_detected_despite_an_equal_revision(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0, 1])
    old = cache_of(edge)
    cloud.stop()
    wait_until(lambda: edge.caches.cloud_lost, what="the cloud lost")
    back = ScriptedCloud([exhibit(number, picture=number + 10) for number in range(3)], listen=cloud.endpoint)
    try:
        assert back.revision == cloud.revision
        wait_until(lambda: cache_of(edge) is not old, what="a cache of the new catalogue")
        assert device.ask(photo(0)) == (None, "cloud")
    finally:
        back.stop()


def test_a_catalogue_that_is_temporarily_not_listed_keeps_its_cache(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    """As by another edge that has just started, or by an older cloud while it loads."""
    warm(edge, device, [0])
    cloud.listed_error = Unavailable("still loading")
    cloud.hidden = True
    asked = cloud.listings
    wait_until(lambda: cloud.listings >= asked + 3, what="further requests for the catalogues")
    assert device.ask(photo(0)) == ("00", "edge")
    cloud.listed_error = None
    wait_until(lambda: edge.caches.get(CATALOGUE) is None, what="the cache dropped")


def test_a_replaced_object_is_fetched_again(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    """Exhibit 0 gets picture 20: the new picture is recognised, the old one is not."""
    warm(edge, device, [0, 1])
    cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])

    wait_until(lambda: version_held(edge, "00") == 2, what="the new version in the cache")
    assert device.ask(photo(20)) == ("00", "edge")
    assert device.ask(photo(0)) == (None, "cloud")
    assert cloud.fetched_ids().count("00") == 2


def test_a_newer_revision_in_an_answer_triggers_a_sync_before_the_next_poll(
    cloud: ScriptedCloud, models: list[ObjectModel], serve: Serve
) -> None:
    with serve(poll_s=3600.0) as (edge, device):
        warm(edge, device, [1])
        cloud.set_models([*models, exhibit(30)])
        warm(edge, device, [30])
        assert device.ask(photo(30)) == ("30", "edge")


def test_requests_for_unknown_catalogues_create_no_cache(serve: Serve) -> None:
    with serve(catalogues_max=1) as (edge, device):
        device.ask(photo(0))
        cache_of(edge)
        for name in ("x", "y", "z"):
            with pytest.raises(NotFound):
                device.send(photo(0), catalogue=name).result(LONG_S)
        assert [cache.name for cache in edge.caches.all()] == [CATALOGUE]


def test_calls_that_name_no_catalogue_use_the_cache_of_the_only_one(
    edge: EdgeDaemon, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    wait_until(lambda: bool(edge.caches.listed), what="the listing of the cloud")
    with EdgeClient(edge.endpoint, catalogue="") as device:
        warm(edge, device, [0, 1])
        assert device.ask(photo(0)) == ("00", "edge")
        listed = device.catalogues.list_objects(pb.ListObjectsRequest(), timeout_s=LONG_S, catalogue="")
        assert len(listed.message.objects) == len(models)
        assert device.report("01").object_ids
        cloud.set_models(models[1:])
        wait_until(lambda: cached(edge) == {"01"}, what="exhibit 0 out of the cache")
        assert device.ask(photo(0)) == (None, "cloud")
    assert [cache.name for cache in edge.caches.all()] == [CATALOGUE]


def test_without_a_listing_of_the_cloud_calls_that_name_no_catalogue_create_no_cache(
    serve: Serve, cloud: ScriptedCloud
) -> None:
    cloud.catalogues_error = Unavailable("still loading")
    with serve() as (edge, _), EdgeClient(edge.endpoint, catalogue="") as device:
        assert device.ask(photo(0)) == ("00", "cloud")
        with pytest.raises(Unavailable, match="the catalogues of the cloud are not known"):
            device.catalogues.list_objects(pb.ListObjectsRequest(), timeout_s=LONG_S, catalogue="")
        assert edge.caches.all() == ()


def test_a_listed_version_that_the_cloud_does_not_send_yet_is_not_requested_in_a_loop(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    """While the cloud's index lags behind its list of objects, the model that it sends is outdated."""
    warm(edge, device, [1])
    cloud.replaced_models = {"00": models[0]}
    cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])
    wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list at the edge")
    ask_until(lambda: "00" in cloud.fetched_ids(), lambda: device.ask(photo(20)), "a request for exhibit 0")
    for _ in range(30):
        assert device.ask(photo(20)) == ("00", "cloud")
    assert version_held(edge, "00") == 0
    assert cloud.fetched_ids().count("00") < 15, "the pauses double; a loop would fetch it hundreds of times"
    cloud.replaced_models = {}
    wait_until(lambda: version_held(edge, "00") == 2, what="the new version in the cache")
    assert device.ask(photo(20)) == ("00", "edge")


def test_the_regret_compares_the_sizes_that_a_grown_catalogue_permits(
    cache_settings: CacheSettings, models: list[ObjectModel]
) -> None:
    """The cache is created for an empty catalogue, as during the first ingestion."""
    cloud = ScriptedCloud([])
    try:
        with serving(cloud, cache=cache_settings) as (edge, device):
            assert device.ask(photo(0)) == (None, "cloud")
            cache_of(edge)
            cloud.set_models(models)
            warm(edge, device, [0, 1])
            for number in (0, 1) * 10:
                assert device.ask(photo(number)) == (f"{number:02d}", "edge")
            assert cache_of(edge).regret.report().best_k == 2
    finally:
        cloud.stop()


@pytest.mark.parametrize("policy", ["adaptive", "lfu", "lru", "everything"])
def test_catalogues_of_no_and_one_object_are_served(
    models: list[ObjectModel], cache_settings: CacheSettings, policy: str
) -> None:
    settings = cache_settings.model_copy(update={"policy": policy})
    cloud = ScriptedCloud([])
    try:
        with serving(cloud, cache=settings) as (edge, device):
            for _ in range(12):
                assert device.ask(photo(0)) == (None, "cloud")
            cache = cache_of(edge)
            cache.improve()
            assert (cache.size, cache.optimizer.decision.k if cache.optimizer.decision else -1) == (0, 0)
            cloud.set_models(models[:1])
            warm(edge, device, [0])
            assert device.ask(photo(0)) == ("00", "edge")
            assert device.report("00").object_ids == ()
            cloud.set_models([])
            wait_until(lambda: cached(edge) == set(), what="an empty cache")
            assert device.ask(photo(0)) == (None, "cloud")
    finally:
        cloud.stop()
