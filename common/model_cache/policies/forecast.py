"""Forecast, a policy of our own: CremeBrulee's utility with a learnt forecast of rates, and a better set.

Goes beyond CremeBrulee and mCache: `RateForecast` in place of 1 / B, and in place of the lowest utilities the
set that loses least: evicting a model loses its score times its size, and of the models that greedy choice
takes some can often stay. What each part gains: decision 045.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from nearsight.common.model_cache.forecast import RateForecast
from nearsight.common.model_cache.policy import Knowledge, ModelCosts, Victim
from nearsight.common.model_cache.scoring import Column, ScoringPolicy

EXACT_UP_TO = 12
"""Models of which all subsets are compared."""


class Forecast(ScoringPolicy):
    """Scores are expected losses: load time times the momentary rate [ms per byte and second].

    Parameters
    ----------
    forecast : RateForecast
        Not shared with other policies.
    greedy : bool
        Evict all that are lowest until they suffice, for comparisons.
    """

    name: ClassVar[str] = "forecast"

    def __init__(self, forecast: RateForecast, *, greedy: bool = False) -> None:
        super().__init__()
        self._forecast = forecast
        self._greedy = greedy

    @classmethod
    def make(cls, knowledge: Knowledge) -> Self:
        """With all factors."""
        del knowledge
        return cls(RateForecast())

    def requested(self, model: str, now_s: float) -> None:
        """The forecast learns."""
        self._forecast.requested(self._row(model), now_s)

    def scores(self, now_s: float) -> Column:
        """Of resident models."""
        rows = np.flatnonzero(self._resident)
        scores = np.zeros(len(self._resident))
        scores[rows] = self.density()[rows] * self._forecast.rates(rows, now_s)
        return scores

    def losses(self, models: Mapping[str, ModelCosts], now_s: float) -> Column:
        """(N,): what each second without a model is expected to cost [ms], resident or not."""
        rows = np.array([self._row(model) for model in models], dtype=np.intp)
        load_ms = np.array([costs.load_ms for costs in models.values()])
        return load_ms * self._forecast.rates(rows, now_s)

    def victims(
        self, evictable: Mapping[str, ModelCosts], needed_bytes: int, now_s: float
    ) -> Sequence[Victim]:
        """The set that loses least: of few models, of all; of many, of the lowest scores that suffice.

        A set of many that fits well would leave models behind that are not worth their memory.
        """
        if self._greedy:
            return super().victims(evictable, needed_bytes, now_s)
        few = len(evictable) <= EXACT_UP_TO
        candidates_bytes = sum(one.size_bytes for one in evictable.values()) if few else needed_bytes
        candidates = super().victims(evictable, candidates_bytes, now_s)
        return cheapest_that_suffice(candidates, evictable, needed_bytes)


def cheapest_that_suffice(
    chosen: Sequence[Victim], evictable: Mapping[str, ModelCosts], needed_bytes: int
) -> list[Victim]:
    """Of models that suffice together, the subset that loses least and still suffices.

    Exact for up to 12 models; of more, the costliest ones that are not needed stay, one after the other.
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
