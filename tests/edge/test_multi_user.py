"""Many users at one edge: a bounded cache and explicit load balancing, as parts and in the running daemon."""

import threading

import numpy as np
import pytest

from nearsight.common.clock import SYSTEM_CLOCK, ManualClock
from nearsight.common.errors import Overloaded
from nearsight.common.recognition.results import RecognizedObject
from nearsight.edge.load import RECOGNIZE, LoadControl
from nearsight.edge.query import EdgeQuery
from nearsight.edge.settings import CacheSettings, LoadSettings
from nearsight.protos import health_pb2
from support.edge import (
    ScriptedCloud,
    Serve,
    cache_of,
    cached,
    edge_server,
    photo,
    warm,
)
from support.waiting import LONG_S, wait_until

SHARE_1 = LoadSettings(share=1.0)


def arrivals(load: LoadControl, clock: ManualClock, count: int, every_ms: float) -> int:
    """Record arrivals; returns the number that the edge may process."""
    worked = 0
    for _ in range(count):
        clock.advance(every_ms / 1e3)
        load.arrived(RECOGNIZE)
        worked += load.may_work()
    return worked


def test_without_a_method_all_requests_are_processed_and_any_size_is_allowed() -> None:
    clock = ManualClock()
    load = LoadControl("none", SHARE_1, 1, clock)
    assert arrivals(load, clock, 200, 1.0) == 200
    assert load.largest_size(np.arange(101.0), 100) == 100


def test_bounded_lookups_take_no_longer_than_the_interval_of_requests() -> None:
    clock = ManualClock()
    load = LoadControl("bounded", SHARE_1, 1, clock)
    arrivals(load, clock, 101, 30.0)
    assert load.largest_size(np.arange(101.0), 100) in (29, 30)  # f(k) = k ms
    assert load.largest_size(np.arange(101.0), 7) == 7
    assert LoadControl("bounded", SHARE_1, 2, clock).largest_size(np.arange(101.0) * 100, 100) == 4
    assert "k <= " in load.why() or "no size" in load.why()


def test_balanced_the_edge_processes_the_share_that_it_can_compute() -> None:
    clock = ManualClock()
    load = LoadControl("load-balanced", SHARE_1, 1, clock)
    for _ in range(100):
        load.computed(40.0)
    arrivals(load, clock, 101, 10.0)
    assert "P(edge) = 0.25" in load.why()
    assert arrivals(load, clock, 2000, 10.0) == pytest.approx(500, rel=0.12)
    assert "passed on" in load.why()


def test_balanced_runs_with_the_same_seed_pass_on_the_same_requests() -> None:
    def routes(seed: int) -> list[bool]:
        clock = ManualClock()
        load = LoadControl("load-balanced", LoadSettings(seed=seed), 1, clock)
        for _ in range(100):
            load.computed(40.0)
        kept = []
        for _ in range(300):
            clock.advance(0.01)
            load.arrived(RECOGNIZE)
            kept.append(load.may_work())
        return kept

    assert routes(7) == routes(7)
    assert routes(7) != routes(8)


def test_only_photos_count_as_load() -> None:
    clock = ManualClock()
    load = LoadControl("none", SHARE_1, 1, clock)
    for _ in range(200):
        clock.advance(0.010)
        load.arrived(RECOGNIZE)
        load.arrived("nearsight.v1.Health.Check")
    assert "a request every 10.0 ms" in load.why()


def test_requests_are_counted_at_their_arrival_while_workers_are_busy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = edge_server(workers=1, queue_limit=5)
    few = LoadSettings(window=20, interarrival_seed_ms=10_000.0)
    with serve(server=one, load=few) as (edge, device):
        warm(edge, device, [0])
        cache, free = cache_of(edge), threading.Event()
        look = cache.look

        def busy(query: EdgeQuery) -> RecognizedObject | None:
            assert free.wait(LONG_S)
            return look(query)

        monkeypatch.setattr(cache, "look", busy)
        answers = [device.send(photo(0)) for _ in range(40)]
        wait_until(lambda: sum(answer.done() for answer in answers) > 30, what="refusals of most requests")
        free.set()
        outcomes = [type(answer.exception(LONG_S)) for answer in answers]
        assert outcomes.count(Overloaded) > 30
        check = device.health.check(health_pb2.HealthRequest(), timeout_s=LONG_S).message
        load = {fact.name: fact.value for fact in check.details}["load"]
        every_ms = float(load.split("every ")[1].split(" ms")[0])
        assert every_ms < 5000.0, "the mean of the accepted requests alone would contain the initial 10 s"


def test_a_busy_edge_passes_requests_on_without_a_lookup(cloud: ScriptedCloud, serve: Serve) -> None:
    # Assumed computing time of hours per request: the edge is overloaded from the start.
    slow = LoadSettings(window=10_000, compute_seed_ms=1e7)
    with serve(multi_user="load-balanced", load=slow) as (edge, device):
        device.ask(photo(0))
        warm(edge, device, [0])
        tiers = [device.ask(photo(0))[1] for _ in range(30)]
        assert tiers.count("cloud") > 20, "although the object is cached"
        check = device.health.check(health_pb2.HealthRequest(), timeout_s=LONG_S).message
        assert "passed on" in {fact.name: fact.value for fact in check.details}["load"]


def test_extracting_features_for_the_cloud_counts_as_load(serve: Serve) -> None:
    few = LoadSettings(window=5, compute_seed_ms=1e-6)
    nothing = CacheSettings(k_max=0)
    with serve(multi_user="load-balanced", load=few, cache=nothing, forward="features") as (edge, device):
        for _ in range(10):
            assert device.ask(photo(0)) == ("00", "cloud")
        work_ms = float(edge.caches.services.load.why().split(", ")[1].split(" ms")[0])
        assert work_ms > 0.0, "the edge extracted the features of each photo"


def test_a_bounded_cache_shrinks_when_many_requests_arrive(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = LoadSettings(window=5)
    with serve(multi_user="bounded", load=bounded) as (edge, device):
        warm(edge, device, [0, 1])
        load = edge.caches.services.load
        monkeypatch.setattr(load, "_clock", ManualClock(SYSTEM_CLOCK.monotonic()))
        for _ in range(10):
            load.arrived(RECOGNIZE)  # all at once
        cache_of(edge).improve()
        assert cached(edge) == set(), "although the expected latency favours both"
