"""LFU: evicts the model with the fewest requests since its load."""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap


class LeastFrequentlyUsed(Policy):
    """Scores are requests since the load, including its own. Of equal scores the least recent comes first."""

    def __init__(self) -> None:
        self._frequencies: dict[str, int] = {}
        self._scores = ScoreHeap()

    def requested(self, model: str, now_s: float) -> None:
        """Raise the score of a resident model."""
        del now_s
        if model in self._frequencies:
            self._frequencies[model] += 1
            self._scores.raise_score(model, self._score(model))

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model. The request that loaded it counts as its first."""
        del costs, now_s
        self._frequencies[model] = 1
        self._scores.add(model, self._score(model))

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model and its count."""
        del now_s, self._frequencies[model]
        self._scores.remove(model)

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Lowest scores first, until enough bytes are free."""
        del now_s
        return self._scores.lowest(evictable, needed_bytes)

    def _score(self, model: str) -> float:
        return self._frequencies[model]
