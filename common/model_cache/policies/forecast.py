"""Forecast, a policy of this project: CremeBrulee's utility with learnt rates, and a better choice.

It differs from CremeBrulee and mCache in two ways. `RateForecast` replaces 1 / B. And it evicts the set of
models with the lowest loss instead of those with the lowest utilities. The loss of a model is its score times
its size; often some of the greedily chosen models can stay. Benefit of each part: decision 045.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nearsight.common.model_cache.forecast import RateForecast
from nearsight.common.model_cache.policy import Evictable, ModelCosts, Victim
from nearsight.common.model_cache.scoring import Column, ScoringPolicy

EXACT_UP_TO = 12
"""Maximum number of models of which all subsets are compared."""


class Forecast(ScoringPolicy):
    """Scores are expected losses: loading time times the current rate [ms per byte and second].

    Parameters
    ----------
    forecast : RateForecast
        Must not be shared with other policies.
    greedy : bool
        Evict the lowest scores until enough bytes are free. For comparisons.
    """

    def __init__(self, forecast: RateForecast, *, greedy: bool = False) -> None:
        super().__init__()
        self._forecast = forecast
        self._greedy = greedy

    def requested(self, model: str, now_s: float) -> None:
        """Update the forecast."""
        self._forecast.requested(self._row(model), now_s)

    def scores(self, now_s: float) -> Column:
        """Scores of resident models; 0 for others."""
        rows = np.flatnonzero(self._resident)
        scores = np.zeros(len(self._resident))
        scores[rows] = self.density()[rows] * self._forecast.rates(rows, now_s)
        return scores

    def losses(self, models: Mapping[str, ModelCosts], now_s: float) -> Column:
        """(N,): expected loading time [ms] for each second without the model; for residents and others."""
        rows = np.array([self._row(model) for model in models], dtype=np.intp)
        load_ms = np.array([costs.load_ms for costs in models.values()])
        return load_ms * self._forecast.rates(rows, now_s)

    def victims(self, evictable: Evictable, needed_bytes: int, now_s: float) -> Sequence[Victim]:
        """The set with the lowest loss: of all models if they are few, else of those with the lowest scores.

        For many models the greedy candidates are used, since a set that only fits well would keep models that
        are not worth their memory.
        """
        if self._greedy:
            return super().victims(evictable, needed_bytes, now_s)
        few = len(evictable) <= EXACT_UP_TO
        candidates_bytes = sum(one.size_bytes for one in evictable.values()) if few else needed_bytes
        candidates = super().victims(evictable, candidates_bytes, now_s)
        return cheapest_that_suffice(candidates, evictable, needed_bytes)


def cheapest_that_suffice(chosen: Sequence[Victim], evictable: Evictable, needed_bytes: int) -> list[Victim]:
    """The subset with the lowest loss whose sizes reach the needed bytes.

    Exact for up to 12 models. Of more models, those with the highest losses are kept one after the other, as
    long as the others suffice.
    """
    sizes = np.array([evictable[victim.model].size_bytes for victim in chosen], dtype=np.float64)
    losses = np.array([victim.score for victim in chosen]) * sizes
    if len(chosen) == 1:
        return [*chosen]
    if len(chosen) <= EXACT_UP_TO:
        members = (np.arange(2 ** len(chosen))[:, None] >> np.arange(len(chosen)) & 1).astype(np.float64)
        lost = np.where(members @ sizes >= needed_bytes, members @ losses, np.inf)
        kept = members[int(lost.argmin())] > 0
    else:
        kept = np.ones(len(chosen), dtype=bool)
        to_spare = sizes.sum() - needed_bytes
        for place in np.argsort(-losses, kind="stable"):
            if sizes[place] <= to_spare:
                kept[place] = False
                to_spare -= sizes[place]
    return [victim for victim, goes in zip(chosen, kept, strict=True) if goes]
