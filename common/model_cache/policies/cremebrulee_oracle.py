"""CremeBrulee-oracle: utility of CremeBrulee with the true next request of each model. For experiments."""

from __future__ import annotations

from typing import ClassVar

from nearsight.common.model_cache.policies.belady_min import BeladyMin
from nearsight.common.model_cache.scoring import Column


class CremeBruleeOracle(BeladyMin):
    """Scores are utilities [ms per byte and request], equation 1. Selects victims as `CremeBrulee` does."""

    only_largest: ClassVar[bool] = True

    def scores(self, now_s: float) -> Column:
        """Equation 1 with the true B."""
        del now_s
        return self.density() / self.requests_until()
