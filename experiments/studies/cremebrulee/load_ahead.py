"""Loading ahead: while the loader is idle, load the absent model with the largest expected loss.

A load ahead pays if two conditions hold. The model's expected loss exceeds that of the models that are
evicted for it, over the time for which the difference is expected to last. This gain also exceeds the
expected delay of requests that arrive while the loader is busy with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nearsight.common.model_cache.forecast import RateForecast
from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policies.forecast import Forecast
from nearsight.common.model_cache.policy import ModelCosts

_PERSISTENCE_S = 60.0
"""Expected duration of a difference of losses [s]. Ten times as long gave worse results (decision 045)."""
_MARGIN = 1.2
_CANDIDATES = 3
_MEMORY_S = 600.0


class LoadAhead(Forecast):
    """The policy together with the choice of models to load ahead: a `SelectPrefetch`.

    Parameters
    ----------
    forecast : RateForecast
        Rate forecast; not shared with other policies.
    costs : mapping of str to ModelCosts
        Costs of all models.
    """

    def __init__(self, forecast: RateForecast, costs: Mapping[str, ModelCosts]) -> None:
        super().__init__(forecast)
        self._costs = costs
        self._miss_hz, self._missed_s = 0.0, 0.0

    def requested(self, model: str, now_s: float) -> None:
        """Count misses: each of them may have to wait for a load ahead."""
        super().requested(model, now_s)
        if not self._resident[self._row(model)]:
            self._miss_hz = self._miss_rate_hz(now_s) + 1 / _MEMORY_S
            self._missed_s = now_s

    def __call__(self, cache: ModelCache, now_s: float) -> str | None:
        """Return the model to load now; None if no load pays."""
        absent = {model: self._costs[model] for model in self._names if model not in cache.resident}
        if not absent or not cache.resident:
            return None
        losses = self.losses(absent, now_s)
        sizes = np.array([costs.size_bytes for costs in absent.values()])
        names = [*absent]
        best, found = 0.0, None
        resident = dict(cache.resident)
        lost = dict(zip(resident, self.losses(resident, now_s).tolist(), strict=True))
        for place in np.argsort(-losses / sizes, kind="stable")[:_CANDIDATES].tolist():
            costs = absent[names[place]]
            needed_bytes = costs.size_bytes - cache.free_bytes
            if costs.size_bytes > cache.budget_bytes:
                continue
            victims = self.victims(resident, needed_bytes, now_s) if needed_bytes > 0 else ()
            saved = losses[place] - _MARGIN * sum(lost[victim.model] for victim in victims)
            delay_ms = self._miss_rate_hz(now_s) * costs.load_ms * costs.load_ms / 2e3
            gain = saved * _PERSISTENCE_S - delay_ms
            if gain > best:
                best, found = gain, names[place]
        return found

    def _miss_rate_hz(self, now_s: float) -> float:
        return self._miss_hz * math.exp((self._missed_s - now_s) / _MEMORY_S)
