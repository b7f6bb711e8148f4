"""SRRIP: a prediction of 2 bits when a model is requested again; the most distant goes first.

A new model is predicted to return late (2), a requested one at once (0). If no model is at 3, all age
together. Source: Jaleel et al., High performance cache replacement using re-reference interval prediction
(2010), with hit priority. In bytes: victims are taken in order of loading until they suffice, and the others
age on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, Policy, Victim

DISTANT = 3
"""The largest prediction of 2 bits."""


class StaticReReference(Policy):
    """Scores are 0 for the distant models, all that it evicts."""

    name: ClassVar[str] = "srrip"

    def __init__(self) -> None:
        self._predictions: dict[str, int] = {}

    def requested(self, model: str, now_s: float) -> None:
        """A resident model is expected again at once."""
        del now_s
        if model in self._predictions:
            self._predictions[model] = 0

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """A new model is expected late."""
        del costs, now_s
        self._predictions[model] = DISTANT - 1

    def evicted(self, model: str, now_s: float) -> None:
        """Forget it."""
        del now_s
        del self._predictions[model]

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Distant ones first, the longest resident of them first; all age until they suffice."""
        del now_s
        chosen: list[Victim] = []
        left = [model for model in self._predictions if model in evictable]
        while needed_bytes > 0 and left:
            self._age(DISTANT - max(self._predictions[model] for model in left))
            for model in [model for model in left if self._predictions[model] == DISTANT]:
                if needed_bytes > 0:
                    chosen.append(Victim(model, 0.0))
                    left.remove(model)
                    needed_bytes -= evictable[model].size_bytes
        return chosen

    def _age(self, steps: int) -> None:
        if steps:
            for model, prediction in self._predictions.items():
                self._predictions[model] = min(DISTANT, prediction + steps)
