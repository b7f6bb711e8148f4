"""CremeBrulee: evicts the model with the lowest reload penalty per byte and time gained.

Source: CremeBrulee, equation 1: utility = penalty / (size · B), where B is the number of requests until the
next one for the model. B is estimated as the inverse of the model's share of the requests so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, Victim
from nearsight.common.model_cache.scoring import Column, ScoringPolicy, largest_that_suffice


class CremeBrulee(ScoringPolicy):
    """Scores are utilities [ms per byte and request]."""

    name: ClassVar[str] = "cremebrulee"
    columns: ClassVar[Mapping[str, float]] = MappingProxyType({"requests": 0.0})

    def __init__(self) -> None:
        super().__init__()
        self._requests = 0

    def requested(self, model: str, now_s: float) -> None:
        """Count the request."""
        del now_s
        row = self._row(model)  # may replace the column arrays
        self._requests += 1
        self._numbers["requests"][row] += 1

    def scores(self, now_s: float) -> Column:
        """Equation 1, with the estimate of the published code: 1 / B = count / (1 + requests so far)."""
        del now_s
        utilities: Column = self.density() * self._numbers["requests"] / (1 + self._requests)
        return utilities

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Section V-B: lowest utilities until enough bytes are free; of these the largest that suffice."""
        chosen = super().victims(evictable, needed_bytes, now_s)
        return largest_that_suffice(chosen, evictable, needed_bytes)
