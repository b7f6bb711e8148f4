"""The policy of mCache: ranks, a queue that is rebuilt periodically, a shadow queue, and rate estimates."""

import math

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.model_cache.policies import iam
from nearsight.common.model_cache.policies.iam import (
    ExponentialAverage,
    ImportanceAware,
    ImportanceQueue,
    SlidingWindow,
    TrueRates,
)
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy

UNIT = ModelCosts(1, 1.0)


def in_order(policy: ImportanceAware, *models: str, now_s: float) -> list[str]:
    """These models in the order of their eviction."""
    return [one.model for one in policy.victims(dict.fromkeys(models, UNIT), len(models), now_s)]


def lowest(policy: ImportanceAware, *models: str, now_s: float) -> str:
    return policy.victims(dict.fromkeys(models, UNIT), 1, now_s)[0].model


def test_the_rank_is_the_logarithm_of_the_number_of_lower_utilities() -> None:
    utilities = {"a": 0.5, "b": 3.0, "c": 1.0}
    victims = ImportanceQueue(utilities).lowest(dict.fromkeys("abc", UNIT), 3)
    assert [(one.model, one.score) for one in victims] == [
        ("a", math.log(1)),
        ("c", math.log(2)),
        ("b", math.log(3)),
    ]


def test_the_order_of_ranks_is_that_of_utilities() -> None:
    utilities = {f"model-{n}": (7 * n % 11) / 3 for n in range(11)}
    victims = ImportanceQueue(utilities).lowest(dict.fromkeys(utilities, UNIT), 11)
    assert [one.model for one in victims] == sorted(utilities, key=utilities.__getitem__)


def test_hits_do_not_change_the_queue_before_it_is_rebuilt() -> None:
    policy = ImportanceAware(SlidingWindow(100.0), rebuild_s=10.0)
    policy.requested("a", 1.0)
    policy.loaded("a", UNIT, 1.0)
    for now_s in (2.0, 2.5):
        policy.requested("b", now_s)
    policy.loaded("b", UNIT, 2.5)
    for now_s in (3.0, 4.0, 5.0):
        policy.requested("a", now_s)
    assert lowest(policy, "a", "b", now_s=6.0) == "a"
    policy.requested("a", 13.0)
    assert lowest(policy, "a", "b", now_s=13.0) == "b"


def test_changes_during_a_rebuild_are_in_both_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iam, "_AT_A_TIME", 1)
    rates = {"a": 3.0, "b": 4.0, "c": 5.0}
    policy = ImportanceAware(TrueRates(rates), rebuild_s=10.0)
    for model in rates:
        policy.loaded(model, UNIT, 1.0)
    rates["d"] = 1.0
    policy.requested("c", 11.0)  # the next queue has c
    policy.loaded("d", UNIT, 11.0)
    policy.evicted("a", 11.0)
    rates |= {"b": 0.5, "c": 0.1}
    assert in_order(policy, "b", "c", "d", now_s=12.0) == ["d", "b", "c"]
    policy.requested("b", 12.0)  # the next queue is complete, and replaces the former
    assert in_order(policy, "b", "c", "d", now_s=12.0) == ["b", "d", "c"]


def test_utility_grows_with_penalty_and_rate_and_falls_with_size() -> None:
    knowledge = Knowledge(rates={"slow": 1.0, "small": 1.0, "asked": 3.0, "plain": 1.0})
    policy = make_policy("iam-true-rates", knowledge)
    costs = {model: ModelCosts(4, 1.0) for model in knowledge.rates}
    costs |= {"slow": ModelCosts(4, 2.0), "small": ModelCosts(1, 1.0)}
    for model, its in costs.items():
        policy.loaded(model, its, 0.0)
    order = [one.model for one in policy.victims(costs, sum(its.size_bytes for its in costs.values()), 0.0)]
    assert order == ["plain", "slow", "asked", "small"]


def test_a_sliding_window_counts_the_requests_in_it() -> None:
    rates = SlidingWindow(10.0)
    for now_s in (0.0, 1.0, 5.0):
        rates.requested("a", now_s)
    assert rates.rate("a", 6.0) == pytest.approx(0.3)
    assert rates.rate("a", 10.5) == pytest.approx(0.2)
    assert (rates.rate("a", 30.0), rates.rate("never", 30.0)) == (0.0, 0.0)


def test_an_exponential_average_follows_a_steady_rate_and_decays_afterwards() -> None:
    rates = ExponentialAverage(50.0)
    for number in range(2000):
        rates.requested("a", number / 4)
    assert rates.rate("a", 500.0) == pytest.approx(4.0, rel=0.01)
    assert rates.rate("a", 550.0) == pytest.approx(4.0 / math.e, rel=0.01)
    assert rates.rate("never", 1.0) == 0.0


@pytest.mark.parametrize("estimator", [SlidingWindow, ExponentialAverage])
def test_an_estimator_without_memory_is_refused(estimator: type) -> None:
    with pytest.raises(InvalidArgument):
        estimator(0.0)
