"""The optimizer finds the true minimum, and explains it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.object_cache.expected_latency import ExpectedLatency
from nearsight.edge.cache_size import Costs, choose_size
from nearsight.edge.request_distribution import RequestDistribution
from support.caching import profile_of_table_3_2, ranking_of, zipf_ranking


def linear(count: int, intercept_ms: float, slope_ms: float, recall: float, miss_ms: float) -> Costs:
    """f(k) = a + b k, also at 0, so that the threshold rule holds from the first object on."""
    return Costs(intercept_ms + slope_ms * np.arange(count + 1.0), np.full(count + 1, recall), miss_ms)


@given(
    weights=st.lists(st.floats(0.001, 1000), min_size=1, max_size=60),
    intercept_ms=st.floats(0, 100),
    slope_ms=st.floats(0.001, 50),
    recall=st.floats(0.05, 1),
    miss_ms=st.floats(1, 5000),
)
def test_with_a_linear_lookup_time_objects_that_save_more_than_they_cost_are_cached(
    weights: list[float], intercept_ms: float, slope_ms: float, recall: float, miss_ms: float
) -> None:
    p = np.sort(np.array(weights))[::-1]
    p /= p.sum()
    decision = choose_size(linear(len(p), intercept_ms, slope_ms, recall, miss_ms), ranking_of(p))
    saves_ms = recall * p * miss_ms - slope_ms
    margin_ms = 1e-9 * (intercept_ms + slope_ms * len(p) + miss_ms)
    assert (saves_ms > margin_ms).sum() <= decision.k <= (saves_ms > -margin_ms).sum()


@given(
    steps=st.lists(st.floats(0, 20), min_size=1, max_size=40),
    recall=st.lists(st.floats(0, 1), min_size=41, max_size=41),
    exponent=st.floats(0, 2),
    miss_ms=st.floats(0, 2000),
)
def test_no_size_is_better_than_the_chosen_one(
    steps: list[float], recall: list[float], exponent: float, miss_ms: float
) -> None:
    lookup = np.concatenate([[0.0], np.cumsum(steps)])
    recalls = np.array(recall[: len(lookup)])
    ranking = zipf_ranking(len(steps), exponent)
    decision = choose_size(Costs(lookup, recalls, miss_ms), ranking)
    brute = [
        lookup[k] + (1 - recalls[k] * min(1.0, sum(ranking.probabilities[:k]))) * miss_ms
        for k in range(len(lookup))
    ]
    assert decision.terms.expected_ms == pytest.approx(min(brute))
    assert brute[decision.k] == pytest.approx(min(brute))


def test_of_equally_good_sizes_the_smallest_is_chosen() -> None:
    assert choose_size(Costs(np.zeros(5), np.zeros(5), 100.0), zipf_ranking(4, 1.0)).k == 0


def test_a_local_minimum_at_0_does_not_end_the_search() -> None:
    """The fixed cost of a lookup pays from some 30 objects on: the paper's local scan would stop at 0."""
    curves = profile_of_table_3_2().curves(400)
    decision = choose_size(Costs(curves.lookup_ms, curves.recall, 370.0), zipf_ranking(400, 0.8))
    latency = ExpectedLatency(
        curves.lookup_ms, curves.recall, zipf_ranking(400, 0.8).cumulative, 370.0
    ).evaluate()
    assert latency[1] > latency[0]
    assert decision.k > 20


@pytest.mark.parametrize("k_max", [0, 1, 3])
def test_the_upper_bound_is_kept(k_max: int) -> None:
    decision = choose_size(linear(10, 0.0, 0.01, 1.0, 1000.0), zipf_ranking(10, 0.0), k_max)
    assert decision.k == k_max
    assert len(decision.object_ids) == k_max


def test_an_empty_catalogue_needs_no_cache() -> None:
    decision = choose_size(linear(10, 1.0, 1.0, 0.9, 100.0), RequestDistribution().ranking(0.0))
    assert (decision.k, decision.object_ids) == (0, ())


def test_a_catalogue_of_one_object_is_cached_if_it_pays() -> None:
    distribution = RequestDistribution(["only"])
    distribution.count("only", 0.0)
    decision = choose_size(linear(1, 0.0, 1.0, 0.9, 100.0), distribution.ranking(0.0))
    assert decision.object_ids == ("only",)


def test_a_decision_contains_the_costs_of_its_neighbours_and_of_no_cache() -> None:
    curves = profile_of_table_3_2().curves(400)
    decision = choose_size(Costs(curves.lookup_ms, curves.recall, 370.0), zipf_ranking(400, 0.8))
    assert {one.k for one in decision.alternatives} == {0, decision.k - 1, decision.k + 1, 400}
    assert decision.alternatives[0].expected_ms == 370.0
    assert all(other.expected_ms >= decision.terms.expected_ms for other in decision.alternatives)
    assert f"k={decision.k}" in decision.why
    assert "k=0: 370.00 ms" in decision.why


def test_the_latency_of_the_chosen_objects_is_that_of_the_decision() -> None:
    curves = profile_of_table_3_2().curves(400)
    costs = Costs(curves.lookup_ms, curves.recall, 370.0)
    ranking = zipf_ranking(400, 0.8)
    decision = choose_size(costs, ranking)
    expected_ms = costs.terms_of(decision.object_ids, ranking).expected_ms
    assert expected_ms == pytest.approx(decision.terms.expected_ms)
    unpopular = ranking.top(400)[-decision.k :]
    assert costs.terms_of(unpopular, ranking).expected_ms > expected_ms
