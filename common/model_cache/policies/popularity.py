"""Popularity: evicts the model with the fewest requests since the start (CremeBrulee's baseline)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class Popularity(ScoringPolicy):
    """Scores are numbers of all requests. Unlike `lfu`, requests before the last load also count."""

    columns: ClassVar[Mapping[str, float]] = MappingProxyType({"requests": 0.0})

    def requested(self, model: str, now_s: float) -> None:
        """Count the request."""
        del now_s
        row = self._row(model)  # may replace the column arrays
        self._numbers["requests"][row] += 1

    def scores(self, now_s: float) -> Column:
        """Number of requests of each model."""
        del now_s
        return self._numbers["requests"]
