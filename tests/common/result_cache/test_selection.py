"""The choice of the approximation: the best candidate within the budget, also after shifts."""

from collections.abc import Callable, Iterable
from random import Random

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.result_cache.image_keys import layout_keys
from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.common.result_cache.selection import Candidates, Selection, ladders

Input = tuple[int, int, int]
"""A family, a kind, and noise that rarely repeats."""
Cache = ApproximateKeyCache[Input, object]


def family(x: Input) -> int:
    return x[0]


def kind(x: Input) -> int:
    return x[1]


def both(x: Input) -> tuple[int, int]:
    return x[:2]


def exact(x: Input) -> Input:
    return x


def inputs(count: int, seed: int = 1) -> list[Input]:
    rng = np.random.default_rng(seed)
    columns = (rng.zipf(1.4, count) % 200, rng.zipf(1.4, count) % 150, rng.integers(0, 10**9, count))
    return list(zip(*(column.tolist() for column in columns), strict=True))


class Played:
    """A cache, and the number of its wrong answers."""

    def __init__(self, candidates: Candidates[Input], budget: Budget, size: int = 5_000) -> None:
        self.classify: Callable[[Input], object] = family
        self.cache: Cache = ApproximateKeyCache(
            candidates, self._classify, budget=budget, size=size, rng=Random(1)
        )
        self.wrong = 0

    def _classify(self, x: Input) -> object:
        return self.classify(x)

    def ask(self, stream: Iterable[Input]) -> None:
        self.wrong += sum(self.cache.lookup(x) != self.classify(x) for x in stream)

    @property
    def chosen(self) -> str:
        assert self.cache.choice is not None
        return self.cache.choice.name


@pytest.mark.parametrize("given", [(), ((),), (layout_keys(),)])
def test_candidates_with_several_keys_are_refused(given: tuple[object, ...]) -> None:
    with pytest.raises(InvalidArgument):
        Candidates(*given)  # type: ignore[arg-type]


def test_candidates_require_a_budget() -> None:
    with pytest.raises(InvalidArgument, match="budget"):
        ApproximateKeyCache(Candidates(family, kind), family, beta=1.5)


def test_a_cache_with_one_approximation_has_no_choice() -> None:
    assert ApproximateKeyCache(family, family).choice is None


def test_ladders_are_all_subsequences() -> None:
    assert list(ladders(1, 2, 3)) == [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)]


def test_the_candidate_that_serves_most_is_chosen_and_estimates_are_reported() -> None:
    played = Played(Candidates(exact, both, kind, family), Budget(error=0.01))
    assert played.chosen == "exact"
    played.ask(inputs(20_000))
    assert played.chosen == "family"
    choice = played.cache.choice
    assert choice is not None
    served = {one.name: one.served for one in choice.estimates}
    assert served["exact"] < 0.02
    assert served["both"] < served["family"]
    assert served["kind"] < 0.2, "it would usually be wrong"
    assert choice.estimates[choice.candidate].wrong <= 0.01
    assert choice.lookups <= 10_000


def test_another_candidate_is_chosen_after_a_shift_and_errors_stay_within_the_budget() -> None:
    played = Played(Candidates(family, kind, both), Budget(error=0.02))
    played.ask(inputs(10_000))
    assert played.chosen == "family"
    played.classify = kind
    played.cache.invalidate()
    played.ask(inputs(20_000, seed=2))
    assert played.chosen == "kind"
    assert played.wrong < 0.02 * 30_000 + 1_000


def test_a_shift_without_an_invalidation_is_detected() -> None:
    played = Played(Candidates(family, kind), Budget(error=0.02))
    played.ask(inputs(10_000))
    assert played.chosen == "family"
    played.classify = kind
    served = played.cache.counts.served
    played.ask(inputs(40_000, seed=2))
    assert played.chosen == "kind"
    assert played.cache.counts.served - served > 15_000
    assert played.wrong < 0.02 * 50_000 + 1_000


def test_keys_are_split_if_that_serves_more() -> None:
    """The kind matters in every second family; all pairs would be too many keys."""
    played = Played(Candidates(both, *ladders(family, both)), Budget(error=0.005), size=1_000)
    played.classify = lambda x: both(x) if x[0] % 2 else family(x)
    played.ask(inputs(30_000))
    assert played.chosen == "family, both"


def test_results_of_earlier_inferences_are_used_for_the_new_keys() -> None:
    played = Played(Candidates(exact, family), Budget(error=0.05))
    stream = inputs(30_000)
    at = 0
    while played.chosen == "exact":
        played.ask(stream[at : at + 1])
        at += 1
    missed = played.cache.counts.missed
    fresh = len({family(x) for x in stream} - {family(x) for x in stream[:at]})
    played.ask(stream[at:])
    assert at < 15_000
    assert played.cache.counts.missed - missed <= fresh


@pytest.mark.system
def test_estimates_agree_with_caches_of_one_candidate() -> None:
    """Although inferences are a biased sample: the chosen candidate serves most lookups without one."""
    stream = inputs(30_000)

    def classify(x: Input) -> object:
        return (family(x), x[2] % 100 == 0) if x[0] % 3 else both(x)

    played = Played(Candidates(family, both, kind), Budget(error=0.03))
    played.classify = classify
    played.ask(stream)
    choice = played.cache.choice
    assert choice is not None
    for one, function in zip(choice.estimates, (family, both, kind), strict=True):
        alone = Played(Candidates(function), Budget(error=0.03))
        alone.classify = classify
        alone.ask(stream[:10_000])
        before = alone.cache.counts.served
        alone.ask(stream[10_000:])
        assert one.served == pytest.approx((alone.cache.counts.served - before) / 20_000, abs=0.1)


def test_of_a_budget_of_inferences_the_candidate_with_the_fewest_errors_is_chosen() -> None:
    played = Played(Candidates(kind, family), Budget(inferences=0.3))
    played.ask(inputs(10_000))
    assert played.chosen == "family"


def selection() -> Selection[str]:
    return Selection(Candidates(family, both), Budget(error=0.01), size=2, ttl_s=10.0)


def test_invalidated_and_corrected_results_are_not_restored_by_a_change_of_the_choice() -> None:
    chooser = selection()
    for number, answer in enumerate("abc"):
        chooser.note([(0, number), (1, number)], answer, 1, 0.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b", "c"], "limited to the size of the cache"
    chooser.invalidate(lambda value: value == "b")
    chooser.forget([(0, 2), (1, 2)])
    assert chooser.entries() == []


def test_a_coarse_key_recovers_from_a_conflict_although_all_finer_keys_are_new() -> None:
    """As in a cache: otherwise it would stay refused for ever."""
    budget = Budget(error=0.01)
    chooser: Selection[str] = Selection(Candidates((family, exact)), budget, size=200)
    cache: ResultCache[object, str] = ResultCache(SequentialTest(budget, Random(1)), 200)
    for number, answer in enumerate(["a", "b", *["a"] * 60]):
        keys = [(0, 1), (1, number)]
        *coarser, key = cache.path(keys, 0.0)
        cache.learn(key, answer, 0.0, coarser)
        chooser.note(keys, answer, 1, 0.0)
    coarse, shadow = cache._entries[0, 1], dict(chooser.entries())[0, 1]
    assert (shadow.inferences, shadow.conflicts) == (coarse.inferences, coarse.conflicts)
    assert coarse.inferences > 50


def test_served_lookups_are_no_evidence() -> None:
    chooser = selection()
    chooser.note([(0, 1), (1, 1)], "a", 0, 0.0)
    assert chooser.entries() == []
    chooser.note([(0, 1), (1, 1)], "b", 1, 0.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b"]


def test_expired_results_are_not_used_after_a_change_of_the_choice() -> None:
    chooser = selection()
    chooser.note([(0, 1), (1, 1)], "a", 1, 0.0)
    chooser.note([(0, 1), (1, 1)], "b", 1, 20.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b"]
