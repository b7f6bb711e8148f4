"""SRRIP: predicts with 2 bits how soon a model is requested again; evicts the most distant predictions.

A new model is predicted to be requested late (2), a requested model soon (0). If no model has prediction 3,
all predictions are increased equally. Source: Jaleel et al., High performance cache replacement using
re-reference interval prediction (2010), with hit priority. Adapted to bytes: victims are taken in order of
loading until enough bytes are free, with further increases of the predictions if needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nearsight.common.model_cache.policy import Evictable, ModelCosts, Policy, Victim, until_enough

DISTANT = 3
"""The largest prediction of 2 bits."""


class StaticReReference(Policy):
    """Scores are always 0, since all victims have the most distant prediction."""

    def __init__(self) -> None:
        self._predictions: dict[str, int] = {}

    def requested(self, model: str, now_s: float) -> None:
        """Predict that a resident model is requested again soon."""
        del now_s
        if model in self._predictions:
            self._predictions[model] = 0

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Predict that a new model is requested late."""
        del costs, now_s
        self._predictions[model] = DISTANT - 1

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model."""
        del now_s
        del self._predictions[model]

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """Models with prediction 3, in order of loading. Predictions are increased until enough are found."""
        del now_s
        return until_enough(self._most_distant(evictable), evictable, needed_bytes)

    def _most_distant(self, evictable: Evictable) -> Iterator[Victim]:
        left = [model for model in self._predictions if model in evictable]
        while left:
            steps = DISTANT - max(self._predictions[model] for model in left)
            if steps:
                for model, prediction in self._predictions.items():
                    self._predictions[model] = min(DISTANT, prediction + steps)
            yield from (Victim(model, 0.0) for model in left if self._predictions[model] == DISTANT)
            left = [model for model in left if self._predictions[model] < DISTANT]
