"""A sequential test per key under one budget: served lookups, and compliance with the target."""

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import MOST_SERVED, WRONG_ANSWERS, Budget, SequentialTest
from nearsight.common.result_cache.result_cache import Refresh, ResultCache

Stream = Iterable[tuple[int, int]]


def sequential(budget: Budget, seed: int = 1) -> SequentialTest:
    return SequentialTest(budget, Random(seed))


def play(cache: ResultCache[int, int], stream: Stream) -> list[int]:
    """Outcome of each lookup of a key with this class: 0 inferred, 1 served, 2 served wrongly."""
    became = []
    for key, truth in stream:
        entry = cache.find(key, 0.0)
        if entry is None:
            cache.learn(key, truth, 0.0)
        became.append(0 if entry is None else 1 + (entry.value != truth))
    return became


def lookups(classes: Sequence[Sequence[float]], count: int, seed: int) -> list[tuple[int, int]]:
    """Independent lookups of keys with these class probabilities, each as often as the others."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(len(classes), size=count)
    bounds = np.cumsum(np.array(classes), axis=1)
    truths = (rng.random(count)[:, None] > bounds[keys]).sum(axis=1)
    return list(zip(keys.tolist(), truths.tolist(), strict=True))


def share(became: Sequence[int], what: int) -> float:
    return became.count(what) / len(became)


@pytest.mark.parametrize(
    "given", [{}, {"error": 0.1, "inferences": 0.1}, {"error": 0.0}, {"inferences": 1.0}]
)
def test_a_budget_has_one_target_between_0_and_1(given: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        Budget(**given)


@given(
    st.lists(st.tuples(st.integers(1, MOST_SERVED + 1), st.booleans()), max_size=400), st.floats(0.001, 0.5)
)
def test_the_price_follows_the_difference_between_errors_and_target(
    inferences: list[tuple[int, bool]], target: float
) -> None:
    budget = Budget(error=target)
    before, earned, emptied = budget.price, 0.0, False
    for told, conflicts in inferences:
        wrong = (told - 1) * conflicts
        earned += target * told - wrong
        emptied = emptied or abs(earned) > 0.49 * WRONG_ANSWERS
        budget.note(told, wrong)
        assert 1e-3 <= budget.price <= 1.0
        if not emptied:
            assert budget.price == pytest.approx(before * 1e3 ** (earned / WRONG_ANSWERS))


def test_the_savings_of_the_budget_are_limited() -> None:
    budget = Budget(error=0.01)
    for _ in range(100_000):
        budget.note(MOST_SERVED, 0)
    assert budget.price == 1.0
    for _ in range(WRONG_ANSWERS // 10):
        budget.note(1, 10)
    assert budget.price == pytest.approx(1e-3, rel=0.05)


def test_a_key_with_one_class_is_served_and_still_verified() -> None:
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(error=0.01)), 10)
    became = play(cache, [(1, 7)] * 20_000)
    assert 0.8 / (MOST_SERVED + 1) < share(became, 0) < 1.3 / (MOST_SERVED + 1)


def test_a_key_with_many_classes_is_refused() -> None:
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(error=0.01)), 10)
    became = play(cache, lookups([[0.1] * 10], 5_000, 1))
    assert share(became, 0) > 0.99


def test_the_budget_goes_to_the_keys_that_conflict_least() -> None:
    good, bad = [0.99, 0.01], [0.9, 0.1]
    stream = lookups([good, bad], 150_000, 2)
    became = play(ResultCache(sequential(Budget(error=0.01)), 10), stream)
    served = [
        sum(what > 0 for (key, _), what in zip(stream, became, strict=True) if key == one) for one in (0, 1)
    ]
    assert served[0] > 5 * served[1]


def test_a_chance_conflict_does_not_replace_the_result() -> None:
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(error=0.3)), 10)
    play(cache, [(1, 7)] * 2_000)
    while cache.find(1, 0.0) is not None:
        pass
    cache.learn(1, 8, 0.0)
    served = [entry.value for _ in range(50) if (entry := cache.find(1, 0.0)) is not None]
    assert served
    assert set(served) == {7}


def test_a_changed_class_of_a_key_is_detected() -> None:
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(error=0.01)), 10)
    play(cache, [(1, 7)] * 20_000)
    became = play(cache, [(1, 8)] * 20_000)
    assert became.count(2) < 10 * MOST_SERVED
    assert 2 not in became[10_000:], "the new class is served"
    assert share(became[10_000:], 1) > 0.8


def shifting(count: int) -> list[tuple[int, int]]:
    """Lookups in two phases: of keys with few conflicts, then of other keys with many."""
    rng = np.random.default_rng(4)
    phases = [
        lookups([[1 - c, c / 2, c / 2] for c in rng.uniform(*span, 300)], count, 5)
        for span in ((0.0, 0.05), (0.0, 0.3))
    ]
    return [(key + 1_000 * phase, truth) for phase, stream in enumerate(phases) for key, truth in stream]


@pytest.mark.system
def test_a_target_error_is_kept_through_a_shift_where_a_fixed_back_off_does_not() -> None:
    count = 150_000
    stream = shifting(count)

    def errors(refresh: Refresh) -> list[float]:
        became = play(ResultCache(refresh, 10_000), stream)
        return [share(became[:count], 2), share(became[count:], 2)]

    allowed = 0.02
    off = [abs(one - allowed) for one in errors(sequential(Budget(error=allowed)))]
    assert max(off) < WRONG_ANSWERS / count
    assert max(abs(one - allowed) for one in errors(AutoRefresh(1.5))) > 2 * max(off)


@pytest.mark.parametrize("target", [0.2, 0.5])
def test_a_target_share_of_inferences_is_kept_through_a_shift(target: float) -> None:
    count = 60_000
    became = play(ResultCache(sequential(Budget(inferences=target)), 10_000), shifting(count))
    assert [share(became[:count], 0), share(became[count:], 0)] == pytest.approx([target, target], abs=0.03)


def test_errors_of_evicted_keys_are_estimated() -> None:
    rng = np.random.default_rng(3)
    keys = rng.zipf(1.3, 150_000) % 5_000
    truths = np.where(rng.random(len(keys)) < 0.04, rng.integers(2, 9, len(keys)), 1)
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(inferences=0.4)), 100)
    became = play(cache, zip(keys.tolist(), truths.tolist(), strict=True))
    assert cache.counts.evictions > 10_000
    wrong = share(became, 2) / (1 - share(became, 0))
    assert cache.wrong_hits.share == pytest.approx(wrong, rel=0.15)
    assert cache.recent_errors.least < share(became, 2) < cache.recent_errors.bound


def test_only_keys_with_conflicting_results_are_split_into_finer_ones() -> None:
    rng = np.random.default_rng(6)
    cache: ResultCache[tuple[int, ...], int] = ResultCache(sequential(Budget(error=0.01)), 1_000)
    served = {0: 0, 1: 0}
    for coarse, fine in rng.integers(0, (2, 5), (20_000, 2)).tolist():
        truth = fine if coarse else 7
        *coarser, key = cache.path([(coarse,), (coarse, fine)], 0.0)
        entry = cache.find(key, 0.0)
        if entry is None:
            cache.learn(key, truth, 0.0, coarser)
        else:
            assert entry.value == truth or key == (1,)
            served[coarse] += 1
    assert served[1] > 8_000, "by its finer keys"
    assert len(cache) == 2 + 5, "the coarse key without conflicts is not split"


def test_a_coarse_key_with_conflicts_stays_refused_while_its_finer_keys_are_looked_up() -> None:
    cache: ResultCache[str, int] = ResultCache(sequential(Budget(error=0.01)), 100, ttl_s=60)
    for second in range(200):
        *coarser, key = cache.path(["coarse", f"fine {second % 2}"], float(second))
        assert coarser or second < 2, "the coarse key was forgotten"
        if cache.find(key, float(second)) is None:
            cache.learn(key, second % 2, float(second), coarser)


@pytest.mark.system
def test_an_adversary_with_colliding_inputs_cannot_exceed_the_budget() -> None:
    """Half of the lookups are by the adversary, who lets keys be confirmed and then sends another class."""
    rng = np.random.default_rng(8)
    stream = [
        (int(key), 9 if turn % 2 and turn // 2_000 % 2 else 1)
        for turn, key in enumerate(rng.integers(0, 20, 200_000))
    ]
    cache: ResultCache[int, int] = ResultCache(sequential(Budget(error=0.01)), 100)
    became = play(cache, stream)
    wrong = share(became, 2)
    assert wrong < 0.01 + WRONG_ANSWERS / len(stream)
    hits = cache.wrong_hits
    assert hits.least < became.count(2) / cache.counts.served < hits.bound, "the wrong hits are estimated"
    assert wrong < share(play(ResultCache(AutoRefresh(1.5), 100), stream), 2)
