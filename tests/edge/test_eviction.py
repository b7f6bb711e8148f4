"""What every baseline keeps to, and what each one keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.edge.eviction import (
    Everything,
    EvictionPolicy,
    FixedLfu,
    FixedLru,
    NoCache,
    Recency,
    decision_for,
)
from nearsight.edge.request_distribution import Ranking, RequestDistribution
from support.caching import profile_of_table_3_2

OBJECTS = tuple("abcdefgh")
POLICIES: tuple[EvictionPolicy, ...] = (NoCache(), FixedLfu(3), FixedLru(3), Everything())
REQUESTS = st.lists(st.sampled_from(OBJECTS), max_size=30)


def asked(requests: list[str] | str, catalogue: tuple[str, ...] = OBJECTS) -> tuple[Ranking, Recency]:
    distribution, recency = RequestDistribution(catalogue), Recency()
    for object_id in requests:
        distribution.count(object_id, 0.0)
        recency.observe(object_id)
    return distribution.ranking(0.0), recency


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
class TestEveryPolicy:
    @given(requests=REQUESTS, k_max=st.integers(0, 10))
    def test_chooses_different_objects_of_the_catalogue_and_not_too_many(
        self, policy: EvictionPolicy, requests: list[str], k_max: int
    ) -> None:
        ranking, recency = asked(requests)
        chosen = policy.choose(ranking, recency.latest_first(), k_max)
        assert len(set(chosen)) == len(chosen) <= k_max
        assert set(chosen) <= set(OBJECTS)

    @given(requests=REQUESTS)
    def test_never_chooses_an_object_that_left_the_catalogue(
        self, policy: EvictionPolicy, requests: list[str]
    ) -> None:
        _, recency = asked(requests)
        ranking, _ = asked([], OBJECTS[1:])
        assert "a" not in policy.choose(ranking, recency.latest_first(), 10)

    @given(requests=REQUESTS)
    def test_is_the_beginning_of_what_it_would_choose_with_more_room(
        self, policy: EvictionPolicy, requests: list[str]
    ) -> None:
        ranking, recency = asked(requests)
        most = policy.choose(ranking, recency.latest_first(), 10)
        assert [policy.choose(ranking, recency.latest_first(), k) for k in range(10)] == [
            most[:k] for k in range(10)
        ]

    @given(requests=REQUESTS)
    def test_its_decision_has_the_terms_of_the_expected_latency(
        self, policy: EvictionPolicy, requests: list[str]
    ) -> None:
        ranking, recency = asked(requests)
        curves = profile_of_table_3_2().curves(8)
        chosen = policy.choose(ranking, recency.latest_first(), 8)
        decision = decision_for(policy, chosen, ranking, curves.lookup_ms, curves.recall, 370.0)
        k = len(chosen)
        p = float(ranking.probability_of(chosen))
        assert decision.object_ids == chosen
        assert decision.k == decision.terms.k == k
        assert decision.terms.expected_ms == pytest.approx(
            curves.lookup_ms[k] + (1 - curves.recall[k] * p) * 370.0
        )
        assert policy.name in decision.why

    def test_works_with_an_empty_catalogue(self, policy: EvictionPolicy) -> None:
        ranking, recency = asked([], ())
        assert policy.choose(ranking, recency.latest_first(), 10) == ()


def test_lfu_keeps_what_was_asked_for_most_often() -> None:
    ranking, recency = asked("aaabbbccdhhhh")
    assert FixedLfu(3).choose(ranking, recency.latest_first(), 10) == ("h", "a", "b")


def test_lfu_does_not_fill_up_with_objects_that_nobody_asked_for() -> None:
    ranking, recency = asked("ab")
    assert FixedLfu(5).choose(ranking, recency.latest_first(), 10) == ("a", "b")


@given(requests=REQUESTS, size=st.integers(1, 8))
def test_lru_holds_what_an_lru_cache_of_that_size_would(requests: list[str], size: int) -> None:
    cache: list[str] = []
    for object_id in requests:
        cache = [object_id, *(other for other in cache if other != object_id)][:size]
    ranking, recency = asked(requests)
    assert FixedLru(size).choose(ranking, recency.latest_first(), 10) == tuple(cache)


def test_everything_is_the_whole_catalogue_asked_for_or_not() -> None:
    ranking, recency = asked("b")
    assert set(Everything().choose(ranking, recency.latest_first(), 10)) == set(OBJECTS)


def test_no_cache_holds_nothing() -> None:
    ranking, recency = asked("aab")
    assert NoCache().choose(ranking, recency.latest_first(), 10) == ()


def test_recency_remembers_a_bounded_number_of_objects() -> None:
    recency = Recency(3)
    for number in range(100):
        recency.observe(str(number))
    assert recency.latest_first() == ("99", "98", "97")
    recency.remove(["98", "never seen"])
    assert recency.latest_first() == ("99", "97")


def test_a_cache_larger_than_the_profile_is_charged_as_the_largest_described() -> None:
    ranking, _ = asked("aab")
    decision = decision_for(Everything(), OBJECTS, ranking, np.array([0.0, 1.0]), np.array([0.0, 0.5]), 10.0)
    assert (decision.k, decision.terms.lookup_ms) == (8, 1.0)


@pytest.mark.parametrize("policy", [FixedLfu, FixedLru, Recency])
def test_a_size_below_one_is_refused(policy: type[FixedLfu | FixedLru | Recency]) -> None:
    with pytest.raises(InvalidArgument):
        policy(0)
