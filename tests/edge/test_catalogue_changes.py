"""Catalogues that change, vanish or never were: what the edge answers of them, and what it asks for."""

import pytest

from nearsight.common.errors import NotFound, Unavailable
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
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
from support.waiting import wait_until


def version_held(edge: EdgeDaemon, name: str) -> int:
    model = cache_of(edge).holder.snapshot.models.get(name)
    return model.version if model is not None else 0


def test_a_catalogue_that_does_not_exist_is_not_found_and_gets_no_cache(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    with pytest.raises(NotFound):
        device.send(photo(0), catalogue="no-such").result(30)
    assert edge.caches.all() == ()


def test_a_catalogue_that_vanishes_loses_its_cache(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    cloud.hidden = True
    wait_until(lambda: edge.caches.get(CATALOGUE) is None, what="the cache dropped")
    with pytest.raises(NotFound):
        device.send(photo(0)).result(30)


def test_a_catalogue_that_was_begun_anew_under_its_old_name_is_fetched_anew(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    """The same ids and versions, other pictures."""
    warm(edge, device, [0, 1])
    old = cache_of(edge)
    cloud.set_models([exhibit(number, picture=number + 10) for number in range(3)])
    wait_until(lambda: cache_of(edge) is not old, what="a cache of the new catalogue")
    assert device.ask(photo(0)) == (None, "cloud")
    assert device.ask(photo(10)) == ("00", "cloud")


def test_a_catalogue_that_was_begun_anew_behind_an_outage_is_noticed_though_its_revision_is_the_same(
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


def test_a_catalogue_that_is_merely_not_listed_keeps_its_cache(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    """As by an edge in front of this one that has just started, or an older cloud that loads."""
    warm(edge, device, [0])
    cloud.listed_error = Unavailable("still loading")
    cloud.hidden = True
    asked = cloud.listings
    wait_until(lambda: cloud.listings >= asked + 3, what="further looks at the catalogues")
    assert device.ask(photo(0)) == ("00", "edge")
    cloud.listed_error = None
    wait_until(lambda: edge.caches.get(CATALOGUE) is None, what="the cache dropped")


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
    cloud: ScriptedCloud, models: list[ObjectModel], serve: Serve
) -> None:
    with serve(poll_s=3600.0) as (edge, device):
        warm(edge, device, [1])
        cloud.set_models([*models, exhibit(30)])
        warm(edge, device, [30])
        assert device.ask(photo(30)) == ("30", "edge")


def test_made_up_catalogues_cost_no_cache(serve: Serve) -> None:
    with serve(catalogues_max=1) as (edge, device):
        device.ask(photo(0))
        cache_of(edge)
        for name in ("x", "y", "z"):
            with pytest.raises(NotFound):
                device.send(photo(0), catalogue=name).result(30)
        assert [cache.name for cache in edge.caches.all()] == [CATALOGUE]


def test_a_cloud_that_lists_a_version_it_does_not_hand_out_yet_is_not_asked_in_a_loop(
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
    assert cloud.fetched_ids().count("00") <= 4
    cloud.replaced_models = {}
    wait_until(lambda: version_held(edge, "00") == 2, what="the new version in the cache")
    assert device.ask(photo(20)) == ("00", "edge")


@pytest.mark.parametrize("policy", ["adaptive", "lfu", "lru", "everything"])
def test_an_empty_catalogue_is_unknown_photos_and_one_object_is_a_cache_of_one(
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
            cloud.set_models([])
            wait_until(lambda: cached(edge) == set(), what="an empty cache")
            assert device.ask(photo(0)) == (None, "cloud")
    finally:
        cloud.stop()
