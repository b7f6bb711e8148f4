"""LRU: evicts the least recently requested model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim, until_enough


class LeastRecentlyUsed(Policy):
    """Scores are times of the last requests [s]."""

    def __init__(self) -> None:
        self._last_s: OrderedDict[str, float] = OrderedDict()

    def requested(self, model: str, now_s: float) -> None:
        """Make a resident model the most recent."""
        if model in self._last_s:
            self._last_s[model] = now_s
            self._last_s.move_to_end(model)

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model as the most recent."""
        del costs
        self._last_s[model] = now_s

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model."""
        del now_s
        del self._last_s[model]

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Least recent first, until enough bytes are free."""
        del now_s
        oldest = (Victim(model, last_s) for model, last_s in self._last_s.items() if model in evictable)
        return until_enough(oldest, evictable, needed_bytes)
