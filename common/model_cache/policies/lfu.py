"""LFU: evicts the model with the fewest requests since its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, Policy, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap


class LeastFrequentlyUsed(Policy):
    """Scores are requests since the load, including its own. Of equal scores the least recent comes first."""

    name: ClassVar[str] = "lfu"

    def __init__(self) -> None:
        self._counts = ScoreHeap()

    def requested(self, model: str, now_s: float) -> None:
        """Count the request if the model is resident."""
        del now_s
        if model in self._counts:
            self._counts.raise_score(model, self._counts[model] + 1)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model. The request that loaded it counts as its first."""
        del costs, now_s
        self._counts.add(model, 1)

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model and its count."""
        del now_s
        self._counts.remove(model)

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Fewest requests first, until enough bytes are free."""
        del now_s
        return self._counts.lowest(evictable, needed_bytes)
