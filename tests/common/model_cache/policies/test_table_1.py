"""CremeBrulee's Table I: 14 requests for models 0, 1 and 2 of penalty 1, 2 and 3; two fit."""

import itertools

import pytest

from nearsight.common.model_cache.model_cache import Load, ModelCache
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy

TRACE = "01210210202102"
PENALTIES = {"0": 1, "1": 2, "2": 3}


def play(policy: str) -> tuple[int, int, str]:
    """Number of misses, sum of their penalties, and the evicted models in order."""
    cache = ModelCache(2, make_policy(policy, Knowledge(TRACE)))
    missed, evicted = "", ""
    for now_s, model in enumerate(TRACE):
        decision = cache.request(model, ModelCosts(1, PENALTIES[model]), float(now_s))
        if isinstance(decision, Load):
            cache.loaded(model, float(now_s))
            missed += model
            evicted += "".join(victim.model for victim in decision.evict)
    return len(missed), sum(PENALTIES[model] for model in missed), evicted


@pytest.mark.parametrize(
    ("policy", "misses", "cost", "evicted"),
    [("belady-min", 8, 17, "012120"), ("cremebrulee-oracle", 8, 13, "010101")],
)
def test_misses_costs_and_evictions_are_those_of_the_table(
    policy: str, misses: int, cost: int, evicted: str
) -> None:
    assert play(policy) == (misses, cost, evicted)


@pytest.mark.parametrize(("policy", "misses", "cost"), [("cremebrulee", 8, 14), ("popularity", 10, 18)])
def test_counting_policies_on_the_requests_of_the_table(policy: str, misses: int, cost: int) -> None:
    assert play(policy)[:2] == (misses, cost)


def test_no_sequence_of_evictions_costs_less_than_the_oracle() -> None:
    best = {frozenset[str](): 0}
    for model in TRACE:
        after: dict[frozenset[str], int] = {}
        for held, cost in best.items():
            choices = (
                [held]
                if model in held
                else [frozenset(kept) | {model} for kept in itertools.combinations(held, min(len(held), 1))]
            )
            for state in choices:
                total = cost + (0 if model in held else PENALTIES[model])
                after[state] = min(total, after.get(state, total))
        best = after
    assert min(best.values()) == play("cremebrulee-oracle")[1]
