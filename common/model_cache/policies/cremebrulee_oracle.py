"""CremeBrulee-oracle: utility of CremeBrulee with the true next request of each model. For experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.future import ClairvoyantPolicy
from nearsight.common.model_cache.policy import ModelCosts, Victim
from nearsight.common.model_cache.scoring import Column, largest_that_suffice


class CremeBruleeOracle(ClairvoyantPolicy):
    """Scores are utilities [ms per byte and request], equation 1."""

    name: ClassVar[str] = "cremebrulee-oracle"

    def scores(self, now_s: float) -> Column:
        """Equation 1 with the true B."""
        del now_s
        return self.density() / self.requests_until()

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Select victims as `CremeBrulee` does."""
        chosen = super().victims(evictable, needed_bytes, now_s)
        return largest_that_suffice(chosen, evictable, needed_bytes)
