"""CremeBrulee: the penalty of a reload, spread over the memory and the time that the eviction gains.

Source: CremeBrulee, equation 1: utility = penalty / (size · B), where B is the number of requests until the
next one for the model. B is estimated by the inverse of the model's share of the requests so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, ScoringPolicy, Victim, largest_that_suffice


class CremeBrulee(ScoringPolicy):
    """Scores are utilities [ms per byte and request]."""

    name: ClassVar[str] = "cremebrulee"

    def __init__(self) -> None:
        self._requests = 0
        self._counts: Counter[str] = Counter()

    def requested(self, model: str, now_s: float) -> None:
        """Count it."""
        del now_s
        self._requests += 1
        self._counts[model] += 1

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Counts do not depend on what is resident."""

    def evicted(self, model: str, now_s: float) -> None:
        """Counts do not depend on what is resident."""

    def scores(self, evictable: Mapping[str, ModelCosts], now_s: float) -> Iterable[float]:
        """Equation 1, with the estimate of the published code: 1 / B = count / (1 + requests so far)."""
        del now_s
        counts, total = self._counts, 1 + self._requests
        return [
            costs.load_ms / costs.size_bytes * counts.get(model, 0) / total
            for model, costs in evictable.items()
        ]

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Section V-B: lowest utility first until it fits, then as few of these as suffice, largest first."""
        chosen = super().victims(evictable, needed_bytes, now_s)
        return largest_that_suffice(chosen, evictable, needed_bytes)
