"""Requests in hindsight, compared with the best fixed set and the best known result."""

import numpy as np
import pytest

from nearsight.common.model_cache.hindsight import (
    Hindsight,
    Request,
    RequestLog,
    best_fixed_set,
    look_back,
)
from nearsight.common.model_cache.policy import ModelCosts

COSTS = {"a": ModelCosts(10, 1000.0), "b": ModelCosts(10, 1000.0), "c": ModelCosts(10, 500.0)}


def requests(models: str, *waited_ms: float | None) -> list[Request]:
    return [Request(10.0 * place, *one) for place, one in enumerate(zip(models, waited_ms, strict=True))]


@pytest.mark.parametrize("seed", range(20))
def test_the_fixed_set_has_the_highest_value_of_all_sets_that_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, sizes = rng.integers(0, 50, 10).astype(float), rng.integers(1, 100, 10)
    sets = (np.arange(1 << 10)[:, None] >> np.arange(10) & 1).astype(bool)
    kept = best_fixed_set(values, sizes, 150)
    assert sizes[kept].sum() <= 150
    assert values[kept].min(initial=1.0) > 0
    assert values[kept].sum() == (sets @ values)[sets @ sizes <= 150].max()


def test_the_fixed_set_of_many_models_is_at_least_the_greedy_choice() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1000, 2000, 3000)
    values = sizes + 100.0  # the bound ends hardly any branch
    kept, greedy, room = best_fixed_set(values, sizes, 100_050), 0.0, 100_050
    for place in np.argsort(-values / sizes):
        if sizes[place] <= room:
            greedy, room = greedy + values[place], room - sizes[place]
    assert sizes[kept].sum() <= 100_050
    assert values[kept].sum() >= greedy


def test_a_fixed_set_loads_other_models_for_each_request() -> None:
    found = look_back(requests("aabca", 1000, 0, 1000, 500, 1000), COSTS, 10)
    assert found is not None
    # b and c are loaded beside a; policies unload a and load it again
    assert (found.requests, found.waited_ms, found.fixed_set_ms, found.clairvoyant_ms) == (5, 700, 300, 300)


def test_the_clairvoyant_choice_changes_the_set() -> None:
    found = look_back(requests("aaabbb", 1000, 0, 0, 1000, 0, 0), COSTS, 10)
    assert found is not None
    assert (found.fixed_set_ms, found.clairvoyant_ms) == (500, pytest.approx(1000 / 6))


def test_the_clairvoyant_result_is_not_worse_than_what_was_measured() -> None:
    found = look_back(requests("abab", 100, 0, 0, 0), COSTS, 10)  # b was loaded before its request
    assert found is not None
    assert (found.waited_ms, found.fixed_set_ms, found.clairvoyant_ms) == (25, 500, 25)


def test_unfinished_requests_and_models_larger_than_the_budget_are_left_out() -> None:
    costs = {**COSTS, "c": ModelCosts(100, 1.0)}
    assert look_back(requests("abc", 1000, None, 0), costs, 20) == Hindsight(1, 1000, 0, 0)
    assert look_back(requests("b", None), costs, 20) is None


def test_the_log_keeps_one_hour_of_requests_with_their_waits() -> None:
    log = RequestLog()
    for at_s, model, resident in [
        (0, "a", False),
        (4000, "a", True),
        (4001, "b", False),
        (4001.5, "b", False),
    ]:
        log.requested(model, COSTS[model], at_s, resident=resident)
    assert [one.waited_ms for one in log.recent()] == [0, None, None]
    log.settled("b", 4002.0)
    assert [one.waited_ms for one in log.recent()] == [0, 1000, 500]
    for place in range(2500):
        log.requested("a", COSTS["a"], 4003 + 1e-3 * place, resident=True)
    assert len(log.recent()) == 2000
