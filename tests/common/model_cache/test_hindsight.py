"""Requests in hindsight, compared with the best fixed set and a clairvoyant policy."""

import pytest

from nearsight.common.model_cache.hindsight import Hindsight, Request, RequestLog, look_back
from nearsight.common.model_cache.policy import ModelCosts

COSTS = {"a": ModelCosts(10, 1000.0), "b": ModelCosts(10, 1000.0), "c": ModelCosts(10, 500.0)}


def requests(models: str, *waited_ms: float | None) -> list[Request]:
    return [Request(10.0 * place, *one) for place, one in enumerate(zip(models, waited_ms, strict=True))]


def test_a_fixed_set_loads_other_models_for_each_request() -> None:
    found = look_back(requests("aabca", 1000, 0, 1000, 500, 1000), COSTS, 10)
    assert found is not None
    assert (found.requests, found.waited_ms, found.fixed_set_ms) == (5, 700, 300)
    # it begins with a, and need not load it again: b, c, then a
    assert found.clairvoyant_ms == pytest.approx(500)


def test_the_clairvoyant_choice_changes_the_set() -> None:
    found = look_back(requests("aaabbb", *[0] * 6), COSTS, 10)
    assert found is not None
    assert (found.fixed_set_ms, found.clairvoyant_ms) == (500, pytest.approx(1000 / 6))


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
