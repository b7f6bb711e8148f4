"""Load the model, forward the request, or use a stand-in: the earliest expected answer is chosen."""

from math import inf

import numpy as np
import pytest

from nearsight.common.model_cache.load_or_forward import AccuracyBudget, Answerer, soonest


def test_the_answerer_with_the_earliest_expected_answer_is_chosen() -> None:
    assert soonest(80.0, 79.0, inf) is Answerer.NEXT_TIER
    assert soonest(80.0, 80.0, inf) is Answerer.HERE
    assert soonest(80.0, inf, inf) is Answerer.HERE
    assert soonest(80.0, 70.0, 69.0) is Answerer.STAND_IN
    assert soonest(80.0, 70.0, 70.0) is Answerer.NEXT_TIER
    assert soonest(80.0, inf, 80.0) is Answerer.HERE


def test_a_model_that_cannot_be_loaded_now_answers_only_if_nobody_else_can() -> None:
    assert soonest(inf, 1e6, inf) is Answerer.NEXT_TIER
    assert soonest(inf, inf, inf) is Answerer.HERE
    assert soonest(inf, inf, 5.0) is Answerer.STAND_IN


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
