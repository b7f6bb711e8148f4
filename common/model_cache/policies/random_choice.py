"""Random eviction: the baseline of CremeBrulee's figures 7 and 8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

import numpy as np

from nearsight.common.model_cache.policy import Knowledge, ModelCosts, ScoringPolicy


class RandomChoice(ScoringPolicy):
    """Scores are drawn anew for each eviction."""

    name: ClassVar[str] = "random"

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Draw from the seed."""
        return cls(knowledge.rng())

    def requested(self, model: str, now_s: float) -> None:
        """It learns nothing."""

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """It learns nothing."""

    def evicted(self, model: str, now_s: float) -> None:
        """It learns nothing."""

    def scores(self, evictable: Mapping[str, ModelCosts], now_s: float) -> Iterable[float]:
        """Uniform in [0, 1)."""
        del now_s
        drawn: list[float] = self._rng.random(len(evictable)).tolist()
        return drawn
