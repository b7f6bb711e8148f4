"""Decisions about requests: run, wait, load with evictions, refuse with numbers."""

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.model_cache import Load, ModelCache, Reason, Refuse, Run, Wait
from nearsight.common.model_cache.policies.lru import LeastRecentlyUsed
from nearsight.common.model_cache.policy import ModelCosts

ONE = ModelCosts(100, 50.0, 1.0)


def cache_of(*models: str, budget_bytes: int = 300) -> ModelCache:
    cache = ModelCache(budget_bytes, LeastRecentlyUsed())
    for now_s, model in enumerate(models):
        assert cache.request(model, ONE, float(now_s)) == Load()
        assert cache.loaded(model, float(now_s)) == ()
    return cache


def evicted(decision: object) -> list[str]:
    assert isinstance(decision, Load)
    return [victim.model for victim in decision.evict]


def test_a_model_is_loaded_once_for_several_requests() -> None:
    cache = cache_of()
    assert cache.request("a", ONE, 0.0) == Load()
    assert cache.request("a", ONE, 0.1) == cache.request("a", ONE, 0.2) == Wait()
    cache.loaded("a", 0.3)
    assert cache.request("a", ONE, 0.4) == Run()


def test_a_loading_model_occupies_its_memory() -> None:
    cache = cache_of(budget_bytes=150)
    cache.request("a", ONE, 0.0)
    assert cache.free_bytes == 50
    refused = cache.request("b", ONE, 0.1)
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.evictable_bytes) == (Reason.LOADING, 0)


def test_models_are_evicted_only_when_the_load_that_needs_their_memory_begins() -> None:
    cache = cache_of("a", "b", "c")
    assert evicted(cache.request("d", ONE, 3.0)) == ["a"]
    refused = cache.request("e", ONE, 4.0)
    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.LOADING
    assert cache.request("b", ONE, 5.0) == Run()
    cache.loaded("d", 6.0)
    assert evicted(cache.load("e", ONE, 6.0)) == ["c"]


def test_a_load_is_refused_while_its_memory_is_in_use_or_pinned() -> None:
    cache = cache_of("a", "b", "c")
    cache.began("a")
    cache.pinned.add("b")
    refused = cache.request("d", ModelCosts(200, 1.0), 3.0)
    assert refused == Refuse(Reason.IN_USE, "d", 200, 300, 0, 100)
    assert [*cache.resident] == ["a", "b", "c"]


def test_a_measurement_replaces_the_estimate_and_evicts_if_it_is_larger() -> None:
    cache = cache_of("a", "b")
    cache.request("c", ONE, 2.0)
    assert [victim.model for victim in cache.loaded("c", 2.5, ModelCosts(150, 60.0))] == ["a"]
    assert (cache.free_bytes, cache.resident["c"].load_ms) == (50, 60.0)


def test_a_smaller_budget_evicts_now_and_further_models_when_requests_end() -> None:
    cache = cache_of("a", "b", "c")
    cache.began("a")
    cache.began("c")
    assert [victim.model for victim in cache.resize(100, 4.0)] == ["b"]
    assert cache.free_bytes == -100
    assert [victim.model for victim in cache.ended("a", 5.0)] == ["a"]
    assert cache.ended("c", 6.0) == ()
    assert (cache.free_bytes, [*cache.resident]) == (0, ["c"])
    assert [entry.made_room_for for entry in cache.evictions] == ["", ""]


def test_a_model_whose_process_died_is_loaded_again() -> None:
    cache = cache_of("a")
    cache.began("a")
    cache.lost("a", 1.0)
    assert cache.ended("a", 2.0) == ()
    assert cache.free_bytes == 300
    assert cache.request("a", ONE, 3.0) == Load()


@pytest.mark.parametrize("report", ["loaded", "failed", "began", "ended", "lost"])
def test_a_report_about_a_model_in_another_state_is_an_error(report: str) -> None:
    cache = cache_of("a")
    arguments = (3.0,) if report in {"loaded", "ended", "lost"} else ()
    model = "a" if report == "ended" else "b"
    with pytest.raises(InvalidArgument, match=model):
        getattr(cache, report)(model, *arguments)


@pytest.mark.parametrize(("size_bytes", "load_ms"), [(0, 1.0), (-1, 1.0), (1, -1.0), (1, float("nan"))])
def test_costs_that_cannot_be_are_refused(size_bytes: int, load_ms: float) -> None:
    with pytest.raises(InvalidArgument):
        ModelCosts(size_bytes, load_ms)
