"""The adaptive policy."""

import numpy as np

from nearsight.edge.optimizer import AdaptivePolicy, Optimizer, Situation
from nearsight.edge.profiler import Costs
from nearsight.edge.request_distribution import RequestDistribution

CHEAP = Costs(0.001 * np.arange(101.0), np.full(101, 0.9), 1000.0)


def ranking_of(counts: dict[str, int]):
    distribution = RequestDistribution([f"o{i}" for i in range(100)])
    for name, count in counts.items():
        distribution.count(name, 0.0, count)
    return distribution.ranking(0.0)


def test_only_objects_that_were_asked_for_are_cached_however_cheap_that_is() -> None:
    decision = AdaptivePolicy(0.01).choose(Situation(ranking_of({"o3": 5, "o7": 1}), CHEAP), 100)
    assert decision.object_ids == ("o3", "o7")


def test_the_bound_of_the_settings_is_kept() -> None:
    decision = AdaptivePolicy(0.01).choose(Situation(ranking_of({"o3": 5, "o7": 1}), CHEAP), 1)
    assert decision.object_ids == ("o3",)


def test_the_last_decision_can_be_looked_at() -> None:
    optimizer = Optimizer(AdaptivePolicy(0.01))
    assert optimizer.decision is None
    decision = optimizer.decide(Situation(ranking_of({"o3": 5}), CHEAP), 100)
    assert optimizer.decision is decision
