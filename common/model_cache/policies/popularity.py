"""Popularity: the model with the fewest requests of all time goes first (CremeBrulee's baseline)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, ScoringPolicy


class Popularity(ScoringPolicy):
    """Scores are requests so far, those while the model was not resident included; `lfu` forgets these."""

    name: ClassVar[str] = "popularity"

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def requested(self, model: str, now_s: float) -> None:
        """Count it."""
        del now_s
        self._counts[model] += 1

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Counts do not depend on what is resident."""

    def evicted(self, model: str, now_s: float) -> None:
        """Counts do not depend on what is resident."""

    def scores(self, evictable: Mapping[str, ModelCosts], now_s: float) -> Iterable[float]:
        """Counts."""
        del now_s
        counts = self._counts
        return [counts.get(model, 0) for model in evictable]
