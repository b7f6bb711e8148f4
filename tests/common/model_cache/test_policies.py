"""The contract of all eviction policies."""

import random
from collections.abc import Sequence
from math import isnan

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.model_cache.model_cache import Load, ModelCache, Run
from nearsight.common.model_cache.policy import Knowledge, ModelCosts, Policy
from nearsight.common.model_cache.registry import make_policy, policy_names

MODELS = [f"model-{number}" for number in range(12)]
COSTS = {model: ModelCosts(100 + 37 * (n % 5), 50.0 + 11 * (n % 7), 1.0) for n, model in enumerate(MODELS)}


def trace(length: int, seed: int = 1) -> list[str]:
    return random.Random(seed).choices(MODELS, weights=[1 / (rank + 1) for rank in range(12)], k=length)


def knowledge(requests: Sequence[str]) -> Knowledge:
    rates = {model: requests.count(model) / max(1, len(requests)) for model in MODELS}
    return Knowledge(requests, rates, seed=1)


@pytest.fixture(params=policy_names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def replay(policy: Policy, requests: Sequence[str], budget_bytes: int) -> list[tuple]:
    """Each miss with its victims; one request per second, loads take no time."""
    cache = ModelCache(budget_bytes, policy)
    misses = []
    for now_s, model in enumerate(requests):
        decision = cache.request(model, COSTS[model], float(now_s))
        if isinstance(decision, Load):
            cache.loaded(model, float(now_s))
            misses.append((model, *(victim.model for victim in decision.evict)))
        else:
            assert isinstance(decision, Run)
        assert 0 <= cache.free_bytes == budget_bytes - sum(c.size_bytes for c in cache.resident.values())
    return misses


class TestEveryPolicy:
    def test_victims_are_evictable_and_free_enough_memory(self, name: str) -> None:
        requests = trace(400)
        policy = make_policy(name, knowledge(requests))
        policy.resized(3000)
        for now_s, model in enumerate(requests[:300]):
            policy.requested(model, float(now_s))
            if model in requests[:now_s]:
                continue
            policy.loaded(model, COSTS[model], float(now_s))
        evictable = {model: COSTS[model] for model in MODELS[3:]}
        for needed_bytes in (1, 100, 600, sum(costs.size_bytes for costs in evictable.values())):
            chosen = [victim.model for victim in policy.victims(evictable, needed_bytes, 300.0)]
            assert len(set(chosen)) == len(chosen)
            assert set(chosen) <= evictable.keys()
            assert sum(COSTS[model].size_bytes for model in chosen) >= needed_bytes

    def test_the_budget_holds_at_every_request(self, name: str) -> None:
        requests = trace(600)
        assert replay(make_policy(name, knowledge(requests)), requests, budget_bytes=800)

    def test_the_same_requests_give_the_same_evictions(self, name: str) -> None:
        requests = trace(300)
        first, second = (replay(make_policy(name, knowledge(requests)), requests, 700) for _ in range(2))
        assert first == second

    def test_hundreds_of_models_are_supported(self, name: str) -> None:
        requests = [f"model-{number % 500}" for number in range(1000)]
        cache = ModelCache(300, make_policy(name, knowledge(requests)))
        for now_s, model in enumerate(requests):
            if isinstance(cache.request(model, ModelCosts(1, 1.0), float(now_s)), Load):
                cache.loaded(model, float(now_s))
            assert model in cache.resident
        assert len(cache.resident) == 300

    def test_it_still_works_after_days_without_requests(self, name: str) -> None:
        requests = trace(300)
        cache = ModelCache(900, make_policy(name, knowledge(requests)))
        hits = 0
        for place, model in enumerate(requests):
            now_s = place + 40 * 86_400.0 * (place >= 150)
            decision = cache.request(model, COSTS[model], now_s)
            if isinstance(decision, Load):
                assert not any(isnan(victim.score) for victim in decision.evict)
                cache.loaded(model, now_s)
            elif place >= 150:
                hits += 1
        assert hits > 30, "of 150 requests after the silence"

    def test_nothing_is_evicted_while_all_models_fit(self, name: str) -> None:
        requests = trace(300)
        misses = replay(make_policy(name, knowledge(requests)), requests, budget_bytes=10_000)
        assert misses == [(model,) for model in dict.fromkeys(requests)]

    def test_the_log_explains_evictions_in_their_order(self, name: str) -> None:
        requests = trace(300)
        cache = ModelCache(700, make_policy(name, knowledge(requests)))
        named = []
        for now_s, model in enumerate(requests):
            decision = cache.request(model, COSTS[model], float(now_s))
            if isinstance(decision, Load):
                cache.loaded(model, float(now_s))
                named += [(now_s, *victim, model) for victim in decision.evict]
        assert [(e.at_s, e.model, e.score, e.made_room_for) for e in cache.evictions] == named
        assert all(
            (e.size_bytes, e.load_ms) == (COSTS[e.model].size_bytes, COSTS[e.model].load_ms)
            for e in cache.evictions
        )


def test_the_error_for_an_unknown_policy_lists_the_existing_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no policy 'mru'.*cremebrulee, .*lru"):
        make_policy("mru")


def test_the_window_of_iam_is_configurable() -> None:
    """a was requested often long ago, b recently: a short window evicts a, a long one b."""
    costs = ModelCosts(10, 100.0)
    for window_s, victim in ((20.0, "a"), (1000.0, "b")):
        policy = make_policy("iam", Knowledge(window_s=window_s))
        for now_s in range(10):
            policy.requested("a", float(now_s))
        policy.loaded("a", costs, 10.0)
        policy.requested("b", 98.0)
        policy.loaded("b", costs, 98.0)
        for now_s in (100.0, 120.0, 140.0):
            policy.requested("b", now_s)
        assert [one.model for one in policy.victims({"a": costs, "b": costs}, 10, 140.0)] == [victim]
