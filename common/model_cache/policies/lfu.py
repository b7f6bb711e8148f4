"""LFU: the model with the fewest requests since it was loaded goes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, Policy, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap


class LeastFrequentlyUsed(Policy):
    """Scores are requests since the load, its own included. Of equal counts the least recent goes first."""

    name: ClassVar[str] = "lfu"

    def __init__(self) -> None:
        self._counts = ScoreHeap()

    def requested(self, model: str, now_s: float) -> None:
        """Count it if it is resident."""
        del now_s
        if model in self._counts:
            self._counts.grow(model, self._counts[model] + 1)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """The request that loaded it is its first."""
        del costs, now_s
        self._counts.add(model, 1)

    def evicted(self, model: str, now_s: float) -> None:
        """Its count ends."""
        del now_s
        self._counts.remove(model)

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Fewest requests first, until it fits."""
        del now_s
        return self._counts.lowest(evictable, needed_bytes)
