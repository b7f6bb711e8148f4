"""GDSF: Greedy-Dual with size and frequency. FaaSCache uses it for containers.

Score = L + frequency · penalty / size, where L is the score of the last eviction. A model that is no longer
requested ages, because the scores of others rise above its own. Source: Cherkasova, Improving WWW proxies
performance with Greedy-Dual-Size-Frequency caching policy (1998).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearsight.common.model_cache.policy import ModelCosts, Policy, Victim
from nearsight.common.model_cache.score_heap import ScoreHeap


class GreedyDualSizeFrequency(Policy):
    """Scores are in ms per byte. Frequencies are counted from the load on."""

    name: ClassVar[str] = "gdsf"

    def __init__(self) -> None:
        self._age = 0.0
        self._scores = ScoreHeap()
        self._frequencies: dict[str, int] = {}
        self._densities: dict[str, float] = {}

    def requested(self, model: str, now_s: float) -> None:
        """Raise the score of a resident model."""
        del now_s
        if model in self._frequencies:
            self._frequencies[model] += 1
            self._scores.raise_score(model, self._score(model))

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model. The request that loaded it counts as its first."""
        del now_s
        self._densities[model] = costs.load_ms / costs.size_bytes
        self._frequencies[model] = 1
        self._scores.add(model, self._score(model))

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model. Its score becomes the age L of the cache."""
        del now_s
        self._age = max(self._age, self._scores[model])
        self._scores.remove(model)
        del self._frequencies[model], self._densities[model]

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """Lowest scores until enough bytes are free."""
        del now_s
        return self._scores.lowest(evictable, needed_bytes)

    def _score(self, model: str) -> float:
        return self._age + self._frequencies[model] * self._densities[model]
