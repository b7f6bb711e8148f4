"""Objects that devices may request next are prefetched while the edge is idle, and counted."""

import numpy as np
import pytest
from prometheus_client import generate_latest

from nearsight.common.metrics import DaemonMetrics
from nearsight.edge.cache_size import Costs
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.prediction import IdlePrefetch, PrefetchCount
from nearsight.edge.settings import CacheSettings, PrefetchSettings
from support.edge import EdgeClient, ScriptedCloud, Serve, cache_of, cached, make_misses_costly, photo
from support.waiting import wait_until

COSTS = Costs(0.5 * np.arange(21.0), np.full(21, 0.9), 100.0)
QUICK = PrefetchSettings(every_s=0.05, idle_s=0.05)


def test_only_objects_that_pay_are_prefetched() -> None:
    expected = {"likely": 0.5, "possible": 0.02, "unlikely": 0.001}
    prefetch = IdlePrefetch(8)
    assert prefetch.choose(expected, {"x"}, COSTS) == ("likely", "possible")
    assert prefetch.choose(expected, {"likely"}, COSTS) == ("possible",)
    assert IdlePrefetch(1).choose(expected, {"x"}, COSTS) == ("likely",)
    assert IdlePrefetch(0).choose(expected, {"x"}, COSTS) == ()


def test_of_two_similar_objects_the_cached_one_is_kept() -> None:
    prefetch = IdlePrefetch(1)
    prefetch.built({"b"}, set())
    assert prefetch.choose({"a": 0.5, "b": 0.45}, {"x"}, COSTS) == ("b",)
    assert prefetch.choose({"a": 0.5, "b": 0.2}, {"x"}, COSTS) == ("a",)


def test_each_prefetched_object_becomes_useful_wasted_or_a_resident() -> None:
    prefetch = IdlePrefetch(8)
    prefetch.built({"a", "b", "c"}, {"x"})
    assert prefetch.requested("a")
    assert not prefetch.requested("a"), "counted once"
    assert not prefetch.requested("x")
    assert prefetch.count == PrefetchCount(3, 1, 0)
    prefetch.built({"b"}, {"x", "a"})
    assert prefetch.count == PrefetchCount(3, 1, 1), "c left the cache without a request"
    prefetch.built(set(), {"x", "a", "b"})
    assert prefetch.count == PrefetchCount(3, 1, 1), "b became a resident"


def test_wrong_predictions_reduce_the_trust_until_nothing_is_prefetched() -> None:
    """If requests follow no paths, transitions with few observations predict wrong objects."""
    rng = np.random.default_rng(1)
    prefetch, wasted = IdlePrefetch(8), 0
    for _ in range(200):
        expected = {str(number): 0.1 for number in rng.choice(1000, size=8, replace=False)}
        chosen = prefetch.choose(expected, {"x"}, COSTS)
        prefetch.built(chosen, {"x"})
        prefetch.requested(None)
        wasted += len(chosen)
    assert prefetch.trust < 0.1
    assert chosen == ()
    assert wasted < 400, "of 1600 that were predicted"
    for _ in range(1500):
        prefetch.choose({}, {"x"}, COSTS)
    assert prefetch.choose({"a": 0.5}, {"x"}, COSTS) == ("a",), "the trust recovers slowly"


def test_correct_predictions_are_trusted() -> None:
    rng = np.random.default_rng(1)
    prefetch = IdlePrefetch(8)
    for _ in range(300):
        chosen = prefetch.choose({"a": 0.5, "b": 0.2}, {"x"}, COSTS)
        prefetch.built(chosen, {"x"})
        prefetch.requested(str(rng.choice(["a", "b", "other"], p=[0.5, 0.2, 0.3])))
    assert set(chosen) == {"a", "b"}
    assert prefetch.trust > 0.8


def tour(edge: EdgeDaemon, objects: list[str], visitors: int) -> None:
    for visitor in range(visitors):
        for name in objects:
            cache_of(edge).markov.observe(f"former visitor {visitor}", name)


def test_a_predicted_object_is_recognised_at_the_edge_at_its_first_request(serve: Serve) -> None:
    """Former visitors saw 0, 3, 5; without requests for 3 and 5, these have no popularity."""
    metrics = DaemonMetrics("edge")
    with serve(metrics, prefetch=QUICK) as (edge, device):
        device.ask(photo(0))
        tour(edge, ["00", "03", "05"], visitors=5)
        make_misses_costly(edge)
        assert device.ask(photo(0))[0] == "00"
        wait_until(lambda: {"00", "03"} <= cached(edge), what="the next exhibit in the cache")
        assert cache_of(edge).estimator.counts().keys() == {"00"}
        before = cache_of(edge).prefetch.count.useful  # 00 may have been prefetched, too
        assert device.ask(photo(3)) == ("03", "edge")
        assert cache_of(edge).prefetch.count.useful == before + 1
    text = generate_latest(metrics.registry).decode()
    assert f'nearsight_edge_prefetch_useful_total{{catalogue="museum"}} {before + 1}.0' in text
    assert 'nearsight_edge_prefetched_total{catalogue="museum"}' in text


def test_without_room_for_spare_models_an_object_is_prefetched_with_one_fetch(
    cloud: ScriptedCloud, serve: Serve, cache_settings: CacheSettings
) -> None:
    with serve(prefetch=QUICK, cache=cache_settings.model_copy(update={"library_mb": 0})) as (edge, device):
        prefetch_one(edge, device)
    assert cloud.fetched_ids().count("03") == 1


def prefetch_one(edge: EdgeDaemon, device: EdgeClient) -> None:
    """Let the edge cache 00 as a resident, and 03 by prefetching."""
    device.ask(photo(0))
    tour(edge, ["00", "03"], visitors=5)
    make_misses_costly(edge)
    device.ask(photo(0))
    wait_until(lambda: {"00", "03"} <= cached(edge), what="the prefetched object")


def test_a_prefetched_object_that_was_requested_stays(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next objects of its visitor are others, and no decision is due after one hit."""
    with serve(prefetch=QUICK) as (edge, device):
        prefetch_one(edge, device)
        assert device.ask(photo(3)) == ("03", "edge")
        looked = count_looks(edge, monkeypatch)
        wait_until(lambda: sum(idle_s >= QUICK.idle_s for idle_s in looked) >= 3, what="three predictions")
        assert device.ask(photo(3)) == ("03", "edge")
        assert cache_of(edge).prefetch.count.wasted == 0


def test_prefetched_objects_stay_when_residents_change(
    serve: Serve,
) -> None:
    with serve(prefetch=QUICK) as (edge, device):
        prefetch_one(edge, device)
        device.ask(photo(1))
        wait_until(lambda: {"00", "01"} <= cached(edge), what="a new resident")
        assert cached(edge) <= {"00", "01", "03"}


def test_prefetched_objects_are_evicted_with_the_last_resident_if_lookups_are_too_slow(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(prefetch=QUICK) as (edge, device):
        prefetch_one(edge, device)
        monkeypatch.setattr(edge.caches.services.load, "idle_s", lambda: 0.0)
        cache = cache_of(edge)
        for _ in range(50):
            cache.profiler.observe_lookup(2, 1e6)
        edge.caches.services.background.submit(cache.improve)
        wait_until(lambda: cached(edge) == set(), what="an empty cache")


def test_a_prefetched_object_that_is_removed_from_the_catalogue_is_evicted(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    with serve(prefetch=QUICK) as (edge, device):
        prefetch_one(edge, device)
        held = cloud.recognizer.models
        cloud.set_models([model for name, model in held.items() if name != "03"])
        wait_until(lambda: cached(edge) == {"00"}, what="the eviction of the prefetched object")
        assert device.ask(photo(3)) == (None, "cloud")


def count_looks(edge: EdgeDaemon, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Idle times of the edge at its checks, from now on."""
    looked: list[float] = []
    load = edge.caches.services.load
    idle_s = load.idle_s

    def counted() -> float:
        looked.append(idle_s())
        return looked[-1]

    monkeypatch.setattr(load, "idle_s", counted)
    return looked


@pytest.mark.parametrize(
    "settings",
    [PrefetchSettings(every_s=0.02, idle_s=3600.0), PrefetchSettings(objects=0, every_s=0.02, idle_s=0.0)],
    ids=["never idle", "switched off"],
)
def test_an_edge_that_is_busy_or_may_not_prefetch_fetches_requested_objects_only(
    cloud: ScriptedCloud, serve: Serve, settings: PrefetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(prefetch=settings) as (edge, device):
        device.ask(photo(0))
        tour(edge, ["00", "03", "05"], visitors=5)
        make_misses_costly(edge)
        device.ask(photo(0))
        wait_until(lambda: cached(edge) == {"00"}, what="the resident")
        if settings.objects:
            looked = count_looks(edge, monkeypatch)
            wait_until(lambda: len(looked) >= 3, what="three checks whether the edge is idle")
        assert cloud.fetched_ids() == ["00"]
        assert cache_of(edge).prefetch.count.entered == 0
