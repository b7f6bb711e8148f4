"""The victims free enough memory with the smallest loss."""

import itertools

import numpy as np
import pytest

from nearsight.common.model_cache.policies.forecast import cheapest_that_suffice
from nearsight.common.model_cache.policy import ModelCosts, Victim


def drawn(count: int, seed: int) -> tuple[list[Victim], dict[str, ModelCosts]]:
    rng = np.random.default_rng(seed)
    names = [f"model-{number}" for number in range(count)]
    costs = {name: ModelCosts(int(rng.integers(1, 100)), 1.0) for name in names}
    return [Victim(name, float(rng.random())) for name in names], costs


@pytest.mark.parametrize("seed", range(10))
def test_no_other_subset_has_a_smaller_loss(seed: int) -> None:
    chosen, costs = drawn(7, seed)
    needed_bytes = int(0.6 * sum(one.size_bytes for one in costs.values()))

    def loss(victims: tuple[Victim, ...]) -> float:
        return sum(victim.score * costs[victim.model].size_bytes for victim in victims)

    best = min(
        loss(subset)
        for count in range(1, 8)
        for subset in itertools.combinations(chosen, count)
        if sum(costs[victim.model].size_bytes for victim in subset) >= needed_bytes
    )
    found = cheapest_that_suffice(chosen, costs, needed_bytes)
    assert sum(costs[victim.model].size_bytes for victim in found) >= needed_bytes
    assert loss(tuple(found)) == pytest.approx(best)


def test_of_many_models_no_unnecessary_one_is_evicted() -> None:
    chosen, costs = drawn(40, 1)
    needed_bytes = int(0.6 * sum(one.size_bytes for one in costs.values()))
    found = cheapest_that_suffice(chosen, costs, needed_bytes)
    freed = sum(costs[victim.model].size_bytes for victim in found)
    assert freed >= needed_bytes
    assert all(freed - costs[victim.model].size_bytes < needed_bytes for victim in found)


def test_a_single_candidate_is_chosen() -> None:
    chosen = [Victim("a", 1.0)]
    assert cheapest_that_suffice(chosen, {"a": ModelCosts(5, 1.0)}, 3) == chosen
