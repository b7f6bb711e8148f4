"""Objects chosen by each policy, when a snapshot is built, and the order of fetches and builds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.edge.cache_size import Costs
from nearsight.edge.optimizer import CacheChange, CacheState, CacheStep, DecisionInputs, Optimizer
from nearsight.edge.request_distribution import RequestDistribution
from nearsight.edge.settings import CacheSettings, Policy
from support.caching import profile_of_table_3_2

OBJECTS = tuple("abcdefgh")
BASELINES: tuple[Policy, ...] = ("none", "lfu", "lru", "everything")
REQUESTS = st.lists(st.sampled_from(OBJECTS), max_size=30)
PAPER = Costs(
    profile_of_table_3_2().curves(8).lookup_ms, profile_of_table_3_2().curves(8).recall, miss_ms=370.0
)
CHEAP = Costs(0.001 * np.arange(101.0), np.full(101, 0.9), 1000.0)


def asked(
    requests: list[str] | str, catalogue: tuple[str, ...] = OBJECTS, costs: Costs = PAPER
) -> DecisionInputs:
    distribution = RequestDistribution(catalogue)
    recent = dict.fromkeys(reversed(requests))
    for object_id in requests:
        distribution.count(object_id, 0.0)
    return DecisionInputs(distribution.ranking(0.0), costs, lambda: tuple(recent))


def chosen(policy: Policy, situation: DecisionInputs, k_max: int = 10, size: int = 3) -> tuple[str, ...]:
    optimizer = Optimizer(CacheSettings(policy=policy, fixed_size=size))
    return optimizer.decide(situation, k_max).object_ids


@pytest.mark.parametrize("policy", BASELINES)
class TestEveryBaseline:
    @given(requests=REQUESTS)
    def test_chooses_distinct_objects_and_prefixes_for_smaller_sizes(
        self, policy: Policy, requests: list[str]
    ) -> None:
        most = chosen(policy, asked(requests))
        assert len(set(most)) == len(most)
        assert set(most) <= set(OBJECTS)
        assert [chosen(policy, asked(requests), k) for k in range(10)] == [most[:k] for k in range(10)]

    @given(requests=REQUESTS)
    def test_never_chooses_a_removed_object(self, policy: Policy, requests: list[str]) -> None:
        recent = asked(requests).recent
        now = DecisionInputs(asked([], OBJECTS[1:]).ranking, PAPER, recent)
        assert "a" not in chosen(policy, now)

    @given(requests=REQUESTS)
    def test_its_decision_has_the_terms_of_the_expected_latency(
        self, policy: Policy, requests: list[str]
    ) -> None:
        now = asked(requests)
        decision = Optimizer(CacheSettings(policy=policy, fixed_size=3)).decide(now, 8)
        k, p = len(decision.object_ids), now.ranking.probability_of(decision.object_ids)
        assert decision.k == decision.terms.k == k
        expected_ms = PAPER.lookup_ms[k] + (1 - PAPER.recall[k] * p) * 370.0
        assert decision.terms.expected_ms == pytest.approx(expected_ms)
        assert policy in decision.why

    def test_works_with_an_empty_catalogue(self, policy: Policy) -> None:
        assert chosen(policy, asked([], ())) == ()

    def test_builds_a_snapshot_for_every_difference(self, policy: Policy) -> None:
        optimizer, now = Optimizer(CacheSettings(policy=policy)), asked("a")
        for cached, target, outdated, worthwhile in (
            ({"a"}, {"a"}, set(), False),
            ({"a"}, {"b"}, set(), True),
            ({"a"}, {"a"}, {"a"}, True),
        ):
            assert optimizer.judge(CacheState(cached, outdated, {}), target, now).worthwhile is worthwhile


@pytest.mark.parametrize(
    ("policy", "requests", "kept"),
    [
        ("lfu", "aaabbbccdhhhh", ("h", "a", "b")),
        ("lfu", "ab", ("a", "b")),  # objects without requests are not chosen
        ("none", "aab", ()),
        ("everything", "b", ("b", *"acdefgh")),
    ],
)
def test_objects_chosen_by_a_baseline(policy: Policy, requests: str, kept: tuple[str, ...]) -> None:
    assert chosen(policy, asked(requests)) == kept


@given(requests=REQUESTS, size=st.integers(1, 8))
def test_lru_chooses_the_objects_of_an_lru_cache_of_that_size(requests: list[str], size: int) -> None:
    cache: list[str] = []
    for object_id in requests:
        cache = [object_id, *(other for other in cache if other != object_id)][:size]
    assert chosen("lru", asked(requests), size=size) == tuple(cache)


def test_a_cache_larger_than_the_profile_has_the_costs_of_the_largest_size() -> None:
    small = Costs(np.array([0.0, 1.0]), np.array([0.0, 0.5]), 10.0)
    decision = Optimizer(CacheSettings(policy="everything")).decide(asked("aab", costs=small), 10)
    assert (decision.k, decision.terms.lookup_ms) == (8, 1.0)


@pytest.mark.parametrize(("k_max", "kept"), [(100, ("c", "g")), (1, ("c",))])
def test_only_requested_objects_are_cached(k_max: int, kept: tuple[str, ...]) -> None:
    assert chosen("adaptive", asked("cccccg", costs=CHEAP), k_max) == kept


# When a change is worth a snapshot


def judge(
    counts: dict[str, int],
    cached: set[str],
    target: set[str],
    *,
    asked: dict[str, int] | None = None,
    outdated: frozenset[str] = frozenset(),
    indifference: float = 0.0,
    slope_ms: float = 0.05,
) -> CacheChange:
    distribution = RequestDistribution([f"o{i}" for i in range(100)])
    for name, count in counts.items():
        distribution.count(name, 0.0, count)
    costs = Costs(slope_ms * np.arange(101.0), np.full(101, 0.9), 100.0, indifference)
    state = CacheState(cached, outdated, asked if asked is not None else {})
    return Optimizer(CacheSettings()).judge(state, target, DecisionInputs(distribution.ranking(0.0), costs))


def test_an_object_is_added_at_its_first_request_if_none_is_evicted() -> None:
    assert judge({"o1": 500, "o2": 1}, {"o1"}, {"o1", "o2"}, asked={"o2": 1}).worthwhile


def test_two_equally_popular_objects_do_not_replace_each_other() -> None:
    counts = {"o1": 500, "o2": 5, "o3": 6}
    assert not judge(counts, {"o1", "o2"}, {"o1", "o3"}, asked={"o3": 1}).worthwhile
    assert judge(counts, {"o1", "o2"}, {"o1", "o3"}, asked={"o3": 2}).worthwhile


def test_a_small_gain_is_not_worth_a_snapshot() -> None:
    change = judge({"o1": 500, "o2": 1}, {"o1"}, {"o1", "o2"})
    assert change.gain_ms > 0
    assert not change.worthwhile


def test_a_large_gain_is_worth_a_snapshot() -> None:
    change = judge({"o1": 500, "o2": 500}, {"o1"}, {"o1", "o2"})
    assert change.worthwhile
    assert "saves" in change.why


def test_a_cache_is_filled_or_emptied_only_beyond_the_indifference() -> None:
    counts, asked = {"o1": 10}, {"o1": 1}
    gain = judge(counts, set(), {"o1"}).gain_ms / 100.0  # relative to 100 ms of an empty cache
    for indifference, worthwhile in ((0.0, True), (0.9 * gain, True), (1.1 * gain, False)):
        change = judge(counts, set(), {"o1"}, asked=asked, indifference=indifference)
        assert change.worthwhile is worthwhile
    assert judge({"o1": 9, "o2": 9}, {"o1"}, {"o1", "o2"}, asked={"o2": 1}, indifference=0.9).worthwhile, (
        "the indifference does not apply between two filled caches"
    )
    assert judge({}, {"gone"}, set(), outdated=frozenset({"gone"}), indifference=0.9).worthwhile


def test_a_removed_object_is_evicted_at_once() -> None:
    assert judge({"o1": 500}, {"o1", "gone"}, {"o1"}, outdated=frozenset({"gone"})).worthwhile


def test_without_changes_no_snapshot_is_built() -> None:
    assert not judge({"o1": 5}, {"o1"}, {"o1"}, asked={"o1": 9}).worthwhile


def test_a_popular_object_that_costs_more_than_it_saves_is_not_added() -> None:
    assert not judge({}, set(), {"o1"}, asked={"o1": 3}, slope_ms=50.0).worthwhile


# From decisions to snapshots


class Cache:
    """A cache that applies the steps of its optimizer."""

    def __init__(self) -> None:
        self.optimizer = Optimizer(CacheSettings())
        self.cached: frozenset[str] = frozenset()
        self.here: set[str] = set()

    def step(self, requests: str, new: str = "", k_max: int = 10) -> CacheStep:
        state = CacheState(self.cached, frozenset(), dict.fromkeys(new, 1))
        taken = self.optimizer.next(asked(requests, costs=CHEAP), k_max, state, self.here.__contains__)
        assert self.optimizer.decision is taken.decision
        self.cached = self.cached if taken.build is None else taken.build
        return taken


def test_models_are_requested_first_and_built_as_they_arrive() -> None:
    cache = Cache()
    first = cache.step("aab", new="ab")
    assert (first.wanted, first.build) == (("a", "b"), None), "no model arrived yet"
    cache.here = {"b"}
    assert cache.step("aab", new="ab").build == {"b"}
    cache.here = {"a", "b"}
    assert cache.step("aab", new="a").build == {"a", "b"}
    last = cache.step("aab")
    assert (last.wanted, last.build) == (None, None), "the cache is complete"


def test_the_target_is_kept_while_no_better_one_is_worth_a_snapshot() -> None:
    cache = Cache()
    cache.step("a" * 5000, new="a")
    cache.here = {"a", "b"}
    cache.step("a" * 5000, new="a")
    taken = cache.step("a" * 5000 + "b")
    assert taken.decision.object_ids == ("a", "b")
    assert (taken.wanted, taken.build) == (None, None), "b saves less than a snapshot is worth"


def test_a_cache_above_the_bound_shrinks_at_once() -> None:
    cache = Cache()
    cache.here = {"a", "b", "c"}
    cache.step("aaabbc", new="abc")
    assert cache.cached == {"a", "b", "c"}
    taken = cache.step("aaabbc", k_max=1)
    assert taken.shrinks
    assert (taken.wanted, taken.build) == (("a",), {"a"})


def test_prefetched_objects_count_only_if_they_are_wanted() -> None:
    cached, prefetched = frozenset("abc"), frozenset("bc")
    state = CacheState(cached, frozenset(), {}, prefetched)
    taken = Optimizer(CacheSettings()).next(asked("aab", costs=CHEAP), 2, state, "ab".__contains__)
    assert not taken.shrinks, "c does not count, and two objects are permitted"
    assert (taken.wanted, taken.build) == (None, None), "a and b are in the cache"


def test_the_reason_for_an_empty_cache_is_given_in_one_sentence() -> None:
    def why(
        situation: DecisionInputs | None,
        k_max: int = 10,
        policy: Policy = "adaptive",
        seen: int = 2,
        limit: int = 9,
    ) -> str:
        optimizer = Optimizer(CacheSettings(policy=policy, k_max=limit))
        if situation is not None:
            optimizer.next(situation, k_max, CacheState(set(), set(), {}), lambda _: False)
        return optimizer.why_empty(seen)

    near = Costs(PAPER.lookup_ms, PAPER.recall, miss_ms=1.0)
    assert "cache.policy is none" in why(None, policy="none")
    assert "cache.k_max is 0" in Optimizer(CacheSettings(k_max=0)).why_empty(2)
    assert "none of its objects was requested" in why(asked(""), seen=0)
    assert "no decision was made yet" in why(None)
    assert "models are still being fetched (k=2)" in why(asked("aab", costs=CHEAP))
    assert "permit no object" in why(asked("aab"), k_max=0)
    assert "asking the cloud takes 1 ms" in why(asked("aab", costs=near))
