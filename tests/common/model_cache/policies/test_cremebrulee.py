"""CremeBrulee: its utility, and its eviction set."""

from collections.abc import Mapping

from nearsight.common.model_cache.policies.cremebrulee import CremeBrulee
from nearsight.common.model_cache.policy import Knowledge, ModelCosts
from nearsight.common.model_cache.registry import make_policy


def after(requests: str, costs: Mapping[str, ModelCosts]) -> CremeBrulee:
    policy = CremeBrulee()
    for model, its in costs.items():
        policy.loaded(model, its, 0.0)
    for now_s, model in enumerate(requests):
        policy.requested(model, float(now_s))
    return policy


def test_utility_is_penalty_over_size_times_the_share_of_requests() -> None:
    evictable = {"a": ModelCosts(4, 12.0), "b": ModelCosts(2, 1.0)}
    victims = after("aaab", evictable).victims(evictable, 5, 4.0)
    assert {one.model: one.score for one in victims} == {"a": 12 / 4 * 3 / 5, "b": 1 / 2 * 1 / 5}


def test_models_of_low_utility_are_kept_if_a_larger_victim_suffices() -> None:
    # By utility: a, b, c until 6 bytes are found. c has them alone.
    evictable = {"a": ModelCosts(1, 1.0), "b": ModelCosts(2, 6.0), "c": ModelCosts(6, 60.0)}
    assert [one.model for one in after("abc", evictable).victims(evictable, 6, 3.0)] == ["c"]
    assert [one.model for one in after("abc", evictable).victims(evictable, 3, 3.0)] == ["b", "a"]


def test_the_order_of_utilities_changes_with_each_request() -> None:
    # The next request for x is in 2, for y in 5; one request later in 1 and 4.
    policy = make_policy("cremebrulee-oracle", Knowledge("z-x--y"))
    evictable = {"x": ModelCosts(1, 1.0), "y": ModelCosts(1, 3.0)}
    for model, its in evictable.items():
        policy.loaded(model, its, 0.0)
    policy.requested("z", 0.0)
    assert policy.victims(evictable, 1, 0.0)[0].model == "x"
    policy.requested("-", 1.0)
    assert policy.victims(evictable, 1, 1.0)[0].model == "y"
