"""BeladyMIN: the model whose next request is the farthest goes first. Knows the future, for experiments."""

from __future__ import annotations

from typing import ClassVar

from nearsight.common.model_cache.future import ClairvoyantPolicy
from nearsight.common.model_cache.scoring import Column


class BeladyMin(ClairvoyantPolicy):
    """Scores are the negative numbers of requests until the next one."""

    name: ClassVar[str] = "belady-min"

    def scores(self, now_s: float) -> Column:
        """The nearer, the higher."""
        del now_s
        return -self.requests_until()
