"""Random eviction: the baseline of CremeBrulee's figures 7 and 8."""

from __future__ import annotations

import numpy as np

from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class RandomChoice(ScoringPolicy):
    """Scores are drawn for each eviction."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng

    def requested(self, model: str, now_s: float) -> None:
        """No effect: the policy does not use requests."""

    def scores(self, now_s: float) -> Column:
        """Uniform in [0, 1)."""
        del now_s
        return self._rng.random(len(self._resident))
