"""BeladyMIN: evicts the model whose next request is farthest in the future. Clairvoyant, for experiments."""

from __future__ import annotations

from typing import ClassVar

from nearsight.common.model_cache.future import ClairvoyantPolicy
from nearsight.common.model_cache.scoring import Column


class BeladyMin(ClairvoyantPolicy):
    """Scores are the negative numbers of requests until the next request of each model."""

    name: ClassVar[str] = "belady-min"

    def scores(self, now_s: float) -> Column:
        """Higher for models that are requested sooner."""
        del now_s
        return -self.requests_until()
