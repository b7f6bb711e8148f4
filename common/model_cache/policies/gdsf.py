"""GDSF: Greedy-Dual with size and frequency. FaaSCache uses it for containers.

Score = L + frequency · penalty / size, where L is the score of the last eviction. A model that is no longer
requested ages, because the scores of others rise above its own. Source: Cherkasova, Improving WWW proxies
performance with Greedy-Dual-Size-Frequency caching policy (1998).
"""

from __future__ import annotations

from nearsight.common.model_cache.policies.lfu import LeastFrequentlyUsed
from nearsight.common.model_cache.policy import ModelCosts


class GreedyDualSizeFrequency(LeastFrequentlyUsed):
    """Scores are in ms per byte. Frequencies are counted from the load on."""

    def __init__(self) -> None:
        super().__init__()
        self._age = 0.0
        self._densities: dict[str, float] = {}

    def loaded(self, model: str, costs: ModelCosts, now_s: float) -> None:
        """Add the model with its penalty per byte."""
        self._densities[model] = costs.load_ms / costs.size_bytes
        super().loaded(model, costs, now_s)

    def evicted(self, model: str, now_s: float) -> None:
        """Remove the model. Its score becomes the age L of the cache."""
        self._age = max(self._age, self._scores[model])
        super().evicted(model, now_s)
        del self._densities[model]

    def _score(self, model: str) -> float:
        return self._age + self._frequencies[model] * self._densities[model]
