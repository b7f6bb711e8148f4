"""Decisions of a device: the minimum over sizes and numbers of features, and explanations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.object_cache.next_objects import NextObjects
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.device.prefetching.decision import (
    ExtractionCurves,
    PrefetchDecision,
    PrefetchFacts,
    PrefetchOptimizer,
    why_empty,
)

TABLE_4_1 = {
    200: ((170.34, 0.70), (0.81, -0.00619)),
    400: ((221.24, 1.13), (0.87, -0.00324)),
    600: ((265.01, 1.74), (0.88, -0.00119)),
    800: ((310.99, 2.05), (0.87, -0.00146)),
}


def curves_of_table_4_1(k_max: int = 100) -> list[ExtractionCurves]:
    k = np.arange(k_max + 1.0)
    curves = []
    for features, ((a, b), (c, d)) in TABLE_4_1.items():
        lookup_ms = a + b * k
        lookup_ms[0] = 0.0
        curves.append(ExtractionCurves(features, lookup_ms, np.clip(c + d * k, 0, 1)))
    return curves


def following(probabilities: list[float]) -> NextObjects:
    p = np.sort(np.array(probabilities))[::-1]
    return NextObjects(tuple(f"next-{rank}" for rank in range(len(p))), p)


def zipf(count: int, exponent: float) -> list[float]:
    weights = np.arange(1, count + 1, dtype=float) ** -exponent
    return list(weights / weights.sum())


@given(
    weights=st.lists(st.floats(0.001, 1), max_size=30),
    mass=st.floats(0.1, 1),
    miss_ms=st.floats(0, 5000),
    stays=st.floats(0, 1),
    k_max=st.integers(0, 100),
)
def test_no_choice_of_table_4_1_is_better_than_the_chosen_one(
    weights: list[float], mass: float, miss_ms: float, stays: float, k_max: int
) -> None:
    p = sorted((mass * weight / sum(weights) for weight in weights), reverse=True)
    facts = PrefetchFacts(following(p), miss_ms, "now", stays, 1.0)
    decision = PrefetchOptimizer(curves_of_table_4_1()).decide(facts, k_max)
    gains = [stays, *((1 - stays) * one for one in p)]
    brute = {}
    for features, ((a, b), (c, d)) in TABLE_4_1.items():
        for k in range(min(len(gains), k_max) + 1):
            lookup_ms = a + b * k if k else 0.0
            brute[k, features] = lookup_ms + (1 - max(0.0, c + d * k) * min(1.0, sum(gains[:k]))) * miss_ms
    assert decision.terms.expected_ms == pytest.approx(min(brute.values()))
    assert brute[decision.terms.k, decision.terms.features] == pytest.approx(min(brute.values()))
    assert len(decision.object_ids) == decision.terms.k
    if decision.terms.k:
        assert decision.object_ids[0] == "now"


def decide(miss_ms: float, probabilities: list[float], stays: float = 0.0) -> PrefetchDecision:
    facts = PrefetchFacts(following(probabilities), miss_ms, "now", stays, 1.0)
    return PrefetchOptimizer(curves_of_table_4_1()).decide(facts, 100)


def test_few_likely_objects_need_few_features_and_many_need_more() -> None:
    """Section 4.5.2: recall with 200 features falls fast as k grows."""
    few = decide(400.0, [0.9, 0.05, 0.05])
    many = decide(3000.0, zipf(60, 0.1))
    assert few.terms.features == 200
    assert many.terms.features == 600
    assert few.terms.k < many.terms.k


def test_an_empty_device_explains_it_in_one_sentence() -> None:
    likely = PrefetchFacts(following([0.5, 0.4]), 1e4, "here", 0.5, 1.0)
    kept = PrefetchOptimizer(curves_of_table_4_1()).decide(likely, 10)
    assert "no object was recognised" in why_empty(None, recognised=False, edge_away=False)
    assert "has not predicted" in why_empty(None, recognised=True, edge_away=False)
    assert "the edge does not answer" in why_empty(None, recognised=True, edge_away=True)
    assert f"models are still being fetched (k={kept.terms.k})" in why_empty(
        kept, recognised=True, edge_away=False
    )
    near = PrefetchFacts(following([0.5, 0.4]), 1.0, "here", 0.5, 1.0)
    offload = PrefetchOptimizer(curves_of_table_4_1()).decide(near, 10)
    assert "asking the edge takes 1 ms" in why_empty(offload, recognised=True, edge_away=False)


def test_a_fast_edge_makes_plain_offloading_best() -> None:
    decision = decide(100.0, [0.9, 0.1])
    assert (decision.terms.k, decision.object_ids, decision.terms.expected_ms) == (0, (), 100.0)


def test_the_smaller_of_equal_choices_is_taken() -> None:
    flat = [ExtractionCurves(features, np.zeros(4), np.zeros(4)) for features in (800, 200, 400)]
    facts = PrefetchFacts(following([0.5, 0.5]), 10.0, "now", 0.0, 1.0)
    decision = PrefetchOptimizer(flat).decide(facts, 3)
    assert (decision.terms.k, decision.terms.features) == (0, 200)


def test_the_current_object_is_not_held_twice() -> None:
    facts = PrefetchFacts(following([0.6, 0.4]), 5000.0, "next-0", 0.0, 1.0)
    decision = PrefetchOptimizer(curves_of_table_4_1()).decide(facts, 100)
    assert decision.object_ids == ("next-0", "next-1")
    assert decision.terms.cached_probability == pytest.approx(0.4)


def test_without_a_prediction_only_the_current_object_is_held() -> None:
    facts = PrefetchFacts(NextObjects.nothing(), 1000.0, "now", 0.9, 1.0)
    decision = PrefetchOptimizer(curves_of_table_4_1()).decide(facts, 100)
    assert decision.object_ids == ("now",)


def test_a_decision_lists_the_costs_of_alternatives() -> None:
    decision = decide(1000.0, zipf(80, 1.0))
    k, features = decision.terms.k, decision.terms.features
    alternatives = {(other.k, other.features) for other in decision.alternatives}
    assert {(0, features), (k - 1, features), (k + 1, features)} <= alternatives
    assert {number for _, number in alternatives} == set(TABLE_4_1)
    assert all(other.expected_ms >= decision.terms.expected_ms for other in decision.alternatives)
    assert f"k={k} with {features} features" in decision.why
    assert f"k=0 with {features} features: 1000.00 ms" in decision.why


def test_extraction_counts_only_for_photos_that_are_looked_up() -> None:
    profile = CacheProfile(
        backend="auto",
        query_features=400,
        largest_k=50,
        lookup_ms=(2.0, 0.1),
        recall=(0.9,),
        extraction_ms=6.0,
    )
    curves = ExtractionCurves.of_profile(profile, 100)
    assert curves.query_features == 400
    assert curves.lookup_ms[:3] == pytest.approx([0.0, 8.1, 8.2])
    facts = PrefetchFacts(following([0.9]), 1000.0, "now", stays=0.5, correction=2.0)
    assert PrefetchOptimizer([curves]).decide(facts, 100).terms.lookup_ms == pytest.approx(2 * 8.2)
