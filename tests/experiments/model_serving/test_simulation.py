"""Requests in virtual time: times of load, queue and execution."""

import numpy as np
import pytest

from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policies.lru import LeastRecentlyUsed
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.registry import make_policy
from nearsight.experiments.model_serving.simulation import knowledge_of, preload, replay, serve_in_turn
from nearsight.experiments.traces.model_requests import ModelRequests

COSTS = {
    "a": ModelCosts(1, 2000.0, 100.0),
    "b": ModelCosts(1, 5000.0, 300.0),
    "huge": ModelCosts(9, 1.0, 1.0),
}


def requests(*arrivals: tuple[float, str]) -> ModelRequests:
    times, names = zip(*arrivals, strict=True)
    return ModelRequests(
        np.array(times), np.array([[*COSTS].index(n) for n in names], np.int32), tuple(COSTS)
    )


def cache(budget_bytes: int) -> ModelCache:
    return ModelCache(budget_bytes, LeastRecentlyUsed())


def test_replay_charges_each_miss_with_the_load_of_its_model() -> None:
    served = replay(requests((0, "a"), (0.1, "a"), (0.2, "b"), (0.3, "a")), COSTS, cache(1))
    assert served.load_ms.tolist() == [2000, 0, 5000, 2000]
    assert (served.hit_ratio, served.load_ms_per_request, served.load_ms_per_miss) == (0.25, 2250, 3000)


def test_requests_queue_during_loads_and_later_count_as_hits() -> None:
    served = serve_in_turn(requests((0, "a"), (0.5, "a"), (1.0, "b"), (60.0, "a")), COSTS, cache(2))
    assert served.missed.tolist() == [True, False, True, False]
    assert served.queue_ms == pytest.approx([0, 1600, 1200, 0])
    assert served.latency_ms == pytest.approx([2100, 1700, 6500, 100])


@pytest.mark.parametrize("run", [replay, serve_in_turn])
def test_a_model_larger_than_the_budget_is_refused_without_delay(run) -> None:
    served = run(requests((0, "huge"), (0.1, "a")), COSTS, cache(2))
    assert served.refused.tolist() == [True, False]
    assert served.latency_ms.tolist() == [0, 2100]
    assert served.hit_ratio == 0


def test_a_cache_is_preloaded_with_random_models_that_fit() -> None:
    filled = cache(2)
    preload(filled, COSTS, np.random.default_rng(1))
    assert {*filled.resident} == {"a", "b"}
    assert replay(requests((0, "a"), (1, "b")), COSTS, filled).hit_ratio == 1
    sets = set()
    for seed in range(20):
        one = cache(1)
        preload(one, COSTS, np.random.default_rng(seed))
        sets.add(*one.resident)
    assert sets == {"a", "b"}


def test_the_oracle_has_the_rates_and_requests_of_the_trace() -> None:
    trace = requests(*((float(n), "ab"[n % 2]) for n in range(20)))
    clairvoyant = ModelCache(1, make_policy("cremebrulee-oracle", knowledge_of(trace)))
    assert serve_in_turn(trace, COSTS, clairvoyant).missed.all()
    assert knowledge_of(trace).rates == {"a": 10 / 19, "b": 10 / 19, "huge": 0}
