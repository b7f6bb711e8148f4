"""The heap of scores against sorting all of them."""

import random

import pytest

from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.score_heap import ScoreHeap


@pytest.mark.parametrize("seed", range(5))
def test_after_any_changes_the_lowest_scores_are_those_of_sorting(seed: int) -> None:
    rng = random.Random(seed)
    heap = ScoreHeap()
    scores: dict[str, float] = {}
    for _ in range(400):
        model = rng.choice("abcdefgh")
        if model not in scores:
            scores[model] = rng.random()
            heap.add(model, scores[model])
        elif rng.random() < 0.5:
            scores[model] += rng.random()
            heap.raise_score(model, scores[model])
        else:
            del scores[model]
            heap.remove(model)
        evictable = {one: ModelCosts(1, 1.0) for one in scores if rng.random() < 0.7}
        needed = rng.randint(0, len(evictable))
        wanted = sorted((scores[one], one) for one in evictable)[:needed]
        assert [(one.score, one.model) for one in heap.lowest(evictable, needed)] == wanted


def test_of_equal_scores_the_older_goes_first_unless_a_tie_is_given() -> None:
    evictable = dict.fromkeys("abc", ModelCosts(1, 1.0))
    old_first, by_tie = ScoreHeap(), ScoreHeap()
    for model, tie in (("b", 3.0), ("a", 2.0), ("c", 1.0)):
        old_first.add(model, 0.0)
        by_tie.add(model, 0.0, tie)
    old_first.raise_score("b", 0.0)
    assert [one.model for one in old_first.lowest(evictable, 3)] == ["a", "c", "b"]
    assert [one.model for one in by_tie.lowest(evictable, 3)] == ["c", "a", "b"]
