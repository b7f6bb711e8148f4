"""Random eviction: the baseline of CremeBrulee's figures 7 and 8."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from nearsight.common.model_cache.policy import Knowledge
from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class RandomChoice(ScoringPolicy):
    """Scores are drawn for each eviction."""

    name: ClassVar[str] = "random"

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """Create a policy with a generator from ``knowledge.seed``."""
        return cls(np.random.default_rng(knowledge.seed))

    def requested(self, model: str, now_s: float) -> None:
        """No effect: the policy does not use requests."""

    def scores(self, now_s: float) -> Column:
        """Uniform in [0, 1)."""
        del now_s
        return self._rng.random(len(self._resident))
