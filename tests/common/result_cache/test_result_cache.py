"""Replacement, verification, time to live, corrections, and the estimate of wrong hits."""

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.model import ideal_hits, lru_hits, predict
from nearsight.common.result_cache.result_cache import ResultCache, WrongHits


def ask(cache: ResultCache[str, int], key: str, truth: int, now_s: float = 0.0) -> int:
    """The answer to a caller whose input has this true class."""
    entry = cache.find(key, now_s)
    if entry is not None:
        return entry.value
    cache.learn(key, truth, now_s)
    return truth


def test_a_result_is_served_between_its_verifications() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(2), 10)
    inferred = []
    for lookup in range(1, 20):
        before = cache.counts.served
        assert ask(cache, "a", 7) == 7
        if cache.counts.served == before:
            inferred.append(lookup)
    assert inferred == [1, 2, 4, 8, 16]
    assert (cache.counts.missed, cache.counts.verifying, cache.counts.corrections) == (1, 4, 0)


def test_a_conflict_replaces_the_result_and_restarts_its_verification() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 10)
    answers = [ask(cache, "a", truth) for truth in (1, 2, 2, 2, 1, 1)]
    assert answers == [1, 1, 2, 2, 1, 1], "inferred, served, corrected, served, corrected, served"
    assert cache.counts.corrections == 2


def test_the_least_recently_looked_up_key_is_evicted() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 2)
    for key in ("a", "b", "a", "c"):
        ask(cache, key, 1)
    assert [cache.find(key, 0.0) is None for key in ("a", "c", "b")] == [True, False, True]
    assert (cache.counts.evictions, cache.counts.missed) == (1, 4)


def test_a_lookup_that_verifies_counts_for_replacement() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(1), 2)
    for key in ("a", "b", "a", "c"):
        ask(cache, key, 1)
    assert cache.counts.missed == 3
    ask(cache, "a", 1)
    assert cache.counts.missed == 3


def test_a_cache_of_chosen_keys_stores_only_these() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 2, only={"a"})
    for key in ("a", "b", "b", "a"):
        ask(cache, key, 1)
    assert (len(cache), cache.counts.missed, cache.counts.served) == (1, 3, 1)


def test_a_result_expires_without_a_confirmation() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(2), 10, ttl_s=60)
    ask(cache, "a", 1, now_s=0)
    ask(cache, "a", 1, now_s=50)
    assert cache.find("a", 109.9) is not None
    assert cache.find("a", 110.0) is None
    assert len(cache) == 0
    ask(cache, "a", 2, now_s=111.0)
    assert cache.counts.corrections == 0, "an expired result is not compared"


def test_a_correction_replaces_the_result() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 10)
    ask(cache, "a", 1)
    cache.correct("a", 5, 0.0)
    assert [ask(cache, "a", 5), ask(cache, "a", 5)] == [5, 5]
    assert cache.counts.corrections == 0


def test_only_stale_results_are_invalidated() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 10)
    for key, value in (("a", 1), ("b", 2), ("c", 1)):
        ask(cache, key, value)
    assert cache.invalidate(lambda value: value == 1) == 2
    assert [cache.find(key, 0.0) is None for key in "abc"] == [True, False, True]


@pytest.mark.parametrize("size", [0, -1])
def test_a_cache_without_room_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match="at least one result"):
        ResultCache(AutoRefresh(2), size)


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("beta", [1.3, 2.0])
def test_simulated_streams_agree_with_the_model(beta: float, ideal: bool) -> None:
    """Within five standard errors of 10 streams; p_ij has finite variance."""
    keys, size, lookups = 60, 20, 6_000
    q = 1 / np.arange(1, keys + 1)
    q /= q.sum()
    classes = [np.full(6, 1 / 6)] * keys
    hits = ideal_hits(q, size) if ideal else lru_hits(q, size)
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        cache: ResultCache[int, int] = ResultCache(
            AutoRefresh(beta), size, only=range(size) if ideal else None
        )
        wrong = 0
        for key, truth in zip(
            rng.choice(keys, lookups, p=q).tolist(), rng.integers(6, size=lookups).tolist(), strict=True
        ):
            entry = cache.find(key, 0.0)
            if entry is None:
                cache.learn(key, truth, 0.0)
            else:
                wrong += entry.value != truth
        found.append((1 - cache.counts.served / lookups, wrong / lookups))
    expected = predict(q, classes, hits, AutoRefresh(beta))
    off = np.abs(np.mean(found, axis=0) - [expected.inferences, expected.errors])
    assert np.all(off < 5 * np.std(found, axis=0, ddof=1) / np.sqrt(len(found)) + 4e-3)


def test_wrong_hits_are_estimated_by_what_each_verification_stands_for() -> None:
    rng = np.random.default_rng(3)
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(1.5), 10)
    wrong, served = 0, 0
    for truth in rng.choice(3, 60_000, p=(0.6, 0.3, 0.1)).tolist():
        before = cache.counts.served
        wrong += ask(cache, "a", truth) != truth
        served += cache.counts.served - before
    assert cache.wrong_hits.share == pytest.approx(wrong / served, rel=0.25)
    assert wrong / served < cache.wrong_hits.bound < 1


def test_the_bound_falls_with_evidence() -> None:
    hits = WrongHits()
    bounds = [hits.bound]
    for _ in range(3):
        for _ in range(50):
            hits.note(2, wrong=False)
        bounds.append(hits.bound)
    assert bounds[0] == 1.0
    assert bounds == sorted(bounds, reverse=True)
    assert hits.share == 0.0
    assert bounds[-1] == pytest.approx(1.96**2 / (150 + 1.96**2), rel=1e-6)


def test_verifications_that_represent_no_lookups_do_not_count() -> None:
    hits = WrongHits()
    hits.note(0, wrong=True)
    assert (hits.share, hits.bound) == (0.0, 1.0)


def test_recent_errors_decay_and_total_errors_do_not() -> None:
    ever, lately = WrongHits(), WrongHits(1_000)
    for hits in (ever, lately):
        for _ in range(500):
            hits.note(4, wrong=True)
        for _ in range(2_500):
            hits.note(4, wrong=False)
    assert ever.share == pytest.approx(1 / 6)
    assert lately.share < 1e-3
    assert lately.bound < ever.least


def test_a_limit_counts_as_exceeded_only_with_confidence() -> None:
    hits = WrongHits()
    sounded = []
    for conflicts in (True, *[False] * 9) * 20:
        hits.note(1, wrong=conflicts)
        sounded.append(hits.exceeds(0.03))
    assert not any(sounded[:30])
    assert sounded[-1]
    assert not hits.exceeds(0.1)


def test_an_inference_without_a_lookup_represents_no_lookups() -> None:
    cache: ResultCache[str, int] = ResultCache(AutoRefresh(3), 10)
    cache.learn("a", 1, 0.0)
    cache.learn("a", 2, 0.0)
    assert cache.wrong_hits.bound == 1.0
    entry = cache.find("a", 0.0)
    assert entry is not None
    assert entry.value == 2
