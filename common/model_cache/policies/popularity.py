"""Popularity: the model with the fewest requests of all time goes first (CremeBrulee's baseline)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from nearsight.common.model_cache.scoring import Column, ScoringPolicy


class Popularity(ScoringPolicy):
    """Scores are requests so far, those while the model was not resident included; `lfu` forgets these."""

    name: ClassVar[str] = "popularity"
    columns: ClassVar[Mapping[str, float]] = MappingProxyType({"requests": 0.0})

    def requested(self, model: str, now_s: float) -> None:
        """Count it."""
        del now_s
        row = self._row(model)  # may replace the column
        self._numbers["requests"][row] += 1

    def scores(self, now_s: float) -> Column:
        """Counts."""
        del now_s
        return self._numbers["requests"]
