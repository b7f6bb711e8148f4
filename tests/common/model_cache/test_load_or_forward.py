"""Load the model, forward the request, or use a stand-in: the earliest expected answer is chosen."""

import math

import numpy as np
import pytest

from nearsight.common.model_cache.load_or_forward import AccuracyBudget, Answerer, ExpectedTimes, soonest
from nearsight.common.model_cache.model_cache import Load, Wait
from nearsight.common.model_cache.policy import ModelCosts

COSTS = ModelCosts(1, load_ms=400.0, execution_ms=30.0)


@pytest.mark.parametrize(("decision", "here_ms"), [(Wait(), 80.0), (Load(), 630.0)])
def test_the_answerer_with_the_earliest_expected_answer_is_chosen(
    decision: Load | Wait, here_ms: float
) -> None:
    def who(forward_ms: float, stand_in_ms: float = math.inf) -> Answerer:
        return soonest(decision, COSTS, ExpectedTimes(200.0, 50.0, forward_ms, stand_in_ms))

    assert who(here_ms - 1.0) is Answerer.NEXT_TIER
    assert who(here_ms) is Answerer.HERE
    assert who(math.inf) is Answerer.HERE
    assert who(70.0, 69.0) is Answerer.STAND_IN
    assert who(70.0, 70.0) is Answerer.NEXT_TIER
    assert who(math.inf, here_ms) is Answerer.HERE


def test_a_model_without_measured_costs_is_not_loaded_if_another_can_answer() -> None:
    assert soonest(Load(), None, ExpectedTimes(0.0, 0.0, 1e6)) is Answerer.NEXT_TIER
    assert soonest(Load(), None, ExpectedTimes(0.0, 0.0, math.inf)) is Answerer.HERE
    assert soonest(Load(), None, ExpectedTimes(0.0, 0.0, math.inf, 5.0)) is Answerer.STAND_IN


@pytest.mark.parametrize("per_request", [0.001, 0.01, 0.2])
def test_the_mean_loss_never_exceeds_the_budget(per_request: float) -> None:
    budget, rng, lost, stood_in = AccuracyBudget(per_request), np.random.default_rng(1), 0.0, 0
    for requests in range(1, 3000):
        budget.requested("large")
        loss = float(rng.choice([0.02, 0.1]))
        if rng.random() < 0.7 and budget.allows("large", loss):
            budget.stood_in("large", loss)
            lost, stood_in = lost + loss, stood_in + 1
        assert lost <= per_request * requests + 1e-9
    assert stood_in > 20
    assert f"in {stood_in} of 2999 requests" in budget.why("large")
    assert not budget.why("another")


def test_the_saved_budget_is_limited() -> None:
    budget = AccuracyBudget(0.01)
    for _ in range(10_000):
        budget.requested("large")
    count = 0
    while budget.allows("large", 0.1):
        budget.stood_in("large", 0.1)
        count += 1
    assert count == 10


def test_without_a_budget_no_model_stands_in() -> None:
    budget = AccuracyBudget(0.0)
    budget.requested("large")
    assert not budget.allows("large", 0.0)
