"""A new snapshot is built when it is worth it."""

import numpy as np

from nearsight.edge.cache_change import CacheChange, CacheState, judge_change
from nearsight.edge.cache_size import CacheSizeOptimizer
from nearsight.edge.request_distribution import RequestDistribution

OPTIMIZER = CacheSizeOptimizer(0.05 * np.arange(101.0), np.full(101, 0.9))


def judge(
    counts: dict[str, int],
    cached: set[str],
    target: set[str],
    *,
    asked: dict[str, int] | None = None,
    outdated: frozenset[str] = frozenset(),
    indifference: float = 0.0,
) -> CacheChange:
    distribution = RequestDistribution([f"o{i}" for i in range(100)])
    for name, count in counts.items():
        distribution.count(name, 0.0, count)
    state = CacheState(cached, outdated, asked if asked is not None else {})
    return judge_change(state, target, OPTIMIZER, distribution.ranking(0.0), 100.0, 0.01, indifference)


def test_a_newly_popular_object_enters_at_its_first_request_while_nothing_must_leave() -> None:
    change = judge({"o1": 500, "o2": 1}, {"o1"}, {"o1", "o2"}, asked={"o2": 1})
    assert change.worthwhile
    assert change.entering == {"o2"}


def test_two_equally_popular_objects_do_not_push_each_other_out() -> None:
    counts = {"o1": 500, "o2": 5, "o3": 6}
    assert not judge(counts, {"o1", "o2"}, {"o1", "o3"}, asked={"o3": 1}).worthwhile
    assert judge(counts, {"o1", "o2"}, {"o1", "o3"}, asked={"o3": 2}).worthwhile


def test_a_negligible_gain_waits() -> None:
    change = judge({"o1": 500, "o2": 1}, {"o1"}, {"o1", "o2"})
    assert change.gain_ms > 0
    assert not change.worthwhile


def test_a_large_gain_does_not_wait() -> None:
    change = judge({"o1": 500, "o2": 500}, {"o1"}, {"o1", "o2"})
    assert change.worthwhile
    assert "saves" in change.why


def test_a_cache_is_filled_or_emptied_only_beyond_the_band_of_indifference() -> None:
    counts, asked = {"o1": 10}, {"o1": 1}
    gain = judge(counts, set(), {"o1"}).gain_ms / 100.0  # of the 100 ms that an empty cache costs
    for indifference, worthwhile in ((0.0, True), (0.9 * gain, True), (1.1 * gain, False)):
        change = judge(counts, set(), {"o1"}, asked=asked, indifference=indifference)
        assert change.worthwhile is worthwhile
    assert judge({"o1": 9, "o2": 9}, {"o1"}, {"o1", "o2"}, asked={"o2": 1}, indifference=0.9).worthwhile, (
        "between two filled caches there is no such band"
    )
    assert judge({}, {"gone"}, set(), outdated=frozenset({"gone"}), indifference=0.9).worthwhile


def test_an_object_that_left_the_catalogue_goes_at_once() -> None:
    assert judge({"o1": 500}, {"o1", "gone"}, {"o1"}, outdated=frozenset({"gone"})).worthwhile


def test_nothing_is_built_when_nothing_changes() -> None:
    assert not judge({"o1": 5}, {"o1"}, {"o1"}, asked={"o1": 9}).worthwhile


def test_a_popular_object_does_not_enter_when_that_would_cost_more_than_it_saves() -> None:
    costly = CacheSizeOptimizer(50.0 * np.arange(101.0), np.full(101, 0.9))
    ranking = RequestDistribution([f"o{i}" for i in range(100)]).ranking(0.0)
    change = judge_change(CacheState(set(), set(), {"o1": 3}), {"o1"}, costly, ranking, 100.0)
    assert not change.worthwhile
