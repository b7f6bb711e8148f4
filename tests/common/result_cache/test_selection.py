"""The approximation is chosen from inferences that run anyway: the best within the budget, shift or not."""

from collections.abc import Callable, Iterable
from random import Random

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
from nearsight.common.result_cache.budget import Budget
from nearsight.common.result_cache.image_keys import layout_keys
from nearsight.common.result_cache.selection import Candidates, Selection, ladders

Input = tuple[int, int, int]
"""A family, a kind, and noise that is hardly ever the same."""
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
    """A cache, and how many of its answers were wrong."""

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
def test_candidates_are_functions_with_one_key(given: tuple[object, ...]) -> None:
    with pytest.raises(InvalidArgument):
        Candidates(*given)  # type: ignore[arg-type]


def test_a_choice_takes_a_budget() -> None:
    with pytest.raises(InvalidArgument, match="budget"):
        ApproximateKeyCache(Candidates(family, kind), family, beta=1.5)


def test_a_cache_with_one_approximation_has_no_choice() -> None:
    assert ApproximateKeyCache(family, family).choice is None


def test_ladders_are_all_ways_to_leave_some_out() -> None:
    assert list(ladders(1, 2, 3)) == [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)]


def test_the_candidate_that_serves_most_is_chosen_and_its_reasons_can_be_read() -> None:
    played = Played(Candidates(exact, both, kind, family), Budget(error=0.01))
    assert played.chosen == "exact"
    played.ask(inputs(20_000))
    assert played.chosen == "family"
    choice = played.cache.choice
    assert choice is not None
    served = {one.name: one.served for one in choice.estimates}
    assert served["exact"] < 0.02
    assert served["both"] < served["family"]
    assert served["kind"] < 0.2, "it would be wrong most of the time"
    assert choice.estimates[choice.candidate].wrong <= 0.01
    assert choice.lookups <= 10_000


def test_another_one_is_chosen_after_a_shift_and_errors_keep_to_the_budget() -> None:
    played = Played(Candidates(family, kind, both), Budget(error=0.02))
    played.ask(inputs(10_000))
    assert played.chosen == "family"
    played.classify = kind
    played.cache.invalidate()
    played.ask(inputs(20_000, seed=2))
    assert played.chosen == "kind"
    assert played.wrong < 0.02 * 30_000 + 1_000


def test_a_shift_that_nobody_tells_is_found_out() -> None:
    played = Played(Candidates(family, kind), Budget(error=0.02))
    played.ask(inputs(10_000))
    assert played.chosen == "family"
    played.classify = kind
    served = played.cache.counts.served
    played.ask(inputs(40_000, seed=2))
    assert played.chosen == "kind"
    assert played.cache.counts.served - served > 15_000
    assert played.wrong < 0.02 * 50_000 + 1_000


def test_keys_are_split_where_that_serves_more() -> None:
    """The kind decides in every other family; both together are too many keys."""
    played = Played(Candidates(both, *ladders(family, both)), Budget(error=0.005), size=1_000)
    played.classify = lambda x: both(x) if x[0] % 2 else family(x)
    played.ask(inputs(30_000))
    assert played.chosen == "family, both"


def test_what_inferences_found_for_the_new_keys_is_not_asked_again() -> None:
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
def test_estimates_are_near_what_caches_with_one_candidate_do() -> None:
    """Though inferences are no fair sample: the chosen one serves most lookups without any."""
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


def test_what_is_invalidated_or_corrected_is_not_found_again_by_a_change_of_the_choice() -> None:
    chooser = selection()
    for number, answer in enumerate("abc"):
        chooser.note([(0, number), (1, number)], answer, 1, 0.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b", "c"], "as many as the cache holds"
    chooser.invalidate(lambda value: value == "b")
    chooser.forget([(0, 2), (1, 2)])
    assert chooser.entries() == []


def test_what_was_served_is_no_evidence() -> None:
    chooser = selection()
    chooser.note([(0, 1), (1, 1)], "a", 0, 0.0)
    assert chooser.entries() == []
    chooser.note([(0, 1), (1, 1)], "b", 1, 0.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b"]


def test_results_that_were_not_confirmed_for_long_are_not_taken_over() -> None:
    chooser = selection()
    chooser.note([(0, 1), (1, 1)], "a", 1, 0.0)
    chooser.note([(0, 1), (1, 1)], "b", 1, 20.0)
    assert [entry.value for _, entry in chooser.entries()] == ["b"]
