"""CremeBrulee: evicts the model with the lowest reload penalty per byte and time gained.

Source: CremeBrulee, equation 1: utility = penalty / (size · B), where B is the number of requests until the
next one for the model. B is estimated as the inverse of the model's share of the requests so far.
"""

from __future__ import annotations

from typing import ClassVar

from nearsight.common.model_cache.policies.popularity import Popularity
from nearsight.common.model_cache.scoring import Column


class CremeBrulee(Popularity):
    """Scores are utilities [ms per byte and request]."""

    only_largest: ClassVar[bool] = True

    def scores(self, now_s: float) -> Column:
        """Equation 1, with the estimate of the published code: 1 / B = count / (1 + requests so far)."""
        requests = super().scores(now_s)
        utilities: Column = self.density() * requests / (1 + requests.sum())
        return utilities
