"""One loader concurrent with executions: waiting times, and loading ahead."""

import numpy as np
import pytest

from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policies.lru import LeastRecentlyUsed
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.experiments.model_serving.loader import Machine, serve_with_loader
from nearsight.experiments.traces.model_requests import ModelRequests

COSTS = {"a": ModelCosts(1, 2000.0), "b": ModelCosts(1, 5000.0), "c": ModelCosts(1, 1000.0)}


def requests(*arrivals: tuple[float, str]) -> ModelRequests:
    times, names = zip(*arrivals, strict=True)
    return ModelRequests(
        np.array(times), np.array([[*COSTS].index(n) for n in names], np.int32), tuple(COSTS)
    )


def cache(budget_bytes: int) -> ModelCache:
    return ModelCache(budget_bytes, LeastRecentlyUsed())


def test_loads_are_serial_and_requests_for_resident_models_do_not_wait() -> None:
    trace = requests((0, "a"), (3, "b"), (4, "c"), (4.5, "a"), (6, "b"))
    served = serve_with_loader(trace, COSTS, cache(3))
    assert served.load_ms == pytest.approx([2000, 5000, 5000, 0, 2000])
    assert served.missed.tolist() == [True, True, True, False, True]


def test_a_load_waits_until_memory_is_free() -> None:
    served = serve_with_loader(requests((0, "a"), (1, "b")), COSTS, cache(1))
    assert served.load_ms == pytest.approx([2000, 6000])


def test_a_load_is_longer_by_the_time_in_which_its_victims_are_unloaded() -> None:
    models = cache(1)
    served = serve_with_loader(requests((0, "a"), (3, "b")), COSTS, models, unload_ms={"a": 300.0, "b": 9.0})
    assert served.load_ms == pytest.approx([2000, 5300])
    assert models.resident["b"].load_ms == 5300.0, "as an edge measures it"


def test_a_model_serves_requests_until_the_load_that_evicts_it_begins() -> None:
    costs = {**COSTS, "d": ModelCosts(1, 1000.0)}
    trace = ModelRequests(
        np.array([0.0, 3.0, 9.0, 10.0, 12.0]), np.array([0, 2, 1, 3, 2], np.int32), tuple(costs)
    )
    served = serve_with_loader(trace, costs, cache(2))  # a, c; b evicts a; then d evicts c
    assert served.load_ms == pytest.approx([2000, 1000, 5000, 5000, 0])


def test_requests_that_wait_for_one_model_share_its_load() -> None:
    served = serve_with_loader(requests((0, "a"), (1, "b"), (1.5, "b")), COSTS, cache(1))
    assert served.load_ms == pytest.approx([2000, 6000, 5500])


def test_a_model_larger_than_the_budget_is_refused() -> None:
    served = serve_with_loader(requests((0, "a")), {**COSTS, "a": ModelCosts(5, 1.0)}, cache(1))
    assert served.refused.tolist() == [True]


def test_an_idle_loader_loads_ahead_and_delays_requests_that_arrive_meanwhile() -> None:
    trace = requests((0, "a"), (8, "b"), (8.5, "c"))

    def b_once(models: ModelCache, now_s: float) -> str | None:
        return "b" if now_s >= 2 and "b" not in models.resident else None

    served = serve_with_loader(trace, COSTS, cache(3), b_once)
    assert served.load_ms == pytest.approx([2000, 0, 1000])
    late = serve_with_loader(requests((0, "a"), (3, "c")), COSTS, cache(3), b_once)
    assert late.load_ms == pytest.approx([2000, 5000])


def test_loads_and_executions_share_the_cores() -> None:
    costs = {"a": ModelCosts(1, 1000.0, 1000.0), "b": ModelCosts(1, 1000.0)}
    trace = requests((0, "a"), (1, "b"))
    alone = serve_with_loader(trace, costs, cache(2))
    assert (alone.load_ms[1], alone.queue_ms[0]) == pytest.approx((1000, 0))
    together = serve_with_loader(trace, costs, cache(2), machine=Machine(cores=1))
    assert (together.load_ms[1], together.queue_ms[0]) == pytest.approx((2000, 1000))
    shared = serve_with_loader(requests((0, "a")), costs, cache(2), machine=Machine(cores=2, others=3))
    assert shared.load_ms[0] == pytest.approx(2000), "one of four jobs on two cores"


def test_a_model_is_not_evicted_while_it_executes() -> None:
    costs = {"a": ModelCosts(1, 1000.0, 3000.0), "b": ModelCosts(1, 1000.0)}
    served = serve_with_loader(requests((0, "a"), (2, "b")), costs, cache(1))
    assert served.load_ms == pytest.approx([1000, 3000])


def test_clients_of_a_closed_loop_send_the_next_request_after_each_answer() -> None:
    costs = {name: ModelCosts(1, 1000.0, 500.0) for name in COSTS}
    trace = requests((0, "a"), (100, "b"), (200, "a"), (300, "c"))
    one = serve_with_loader(trace, costs, cache(3), clients=1)
    assert one.latency_ms == pytest.approx([1500, 1500, 500, 1500])
    two = serve_with_loader(trace, costs, cache(3), clients=2)
    assert two.latency_ms == pytest.approx([1500, 2500, 500, 1500]), (
        "b waits for the load of a; c does not wait"
    )


def test_requests_wait_for_a_free_worker_and_those_that_waited_for_a_load_for_a_free_thread() -> None:
    costs = {"a": ModelCosts(1, 0.0, 4000.0), "b": ModelCosts(1, 1000.0, 2000.0), "c": ModelCosts(1, 0.0)}
    trace = requests((0, "a"), (10, "a"), (11, "b"), (15, "b"), (15.5, "b"))
    served = serve_with_loader(trace, costs, cache(3), machine=Machine(workers=1))
    # The worker executes the second request from 10 to 14 s. Then it takes the third one, whose model is
    # loaded at 15 s. It executes the fourth while a thread executes the third, and takes the last at 17 s.
    assert served.load_ms == pytest.approx([0, 0, 1000, 0, 0])
    assert served.queue_ms == pytest.approx([0, 0, 3000, 0, 1500])
