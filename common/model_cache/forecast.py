"""Forecast of the request rates of models: a Poisson regression that is trained online.

CremeBrulee and mCache estimate the time until the next request as 1 / rate. This holds for Poisson arrivals
with constant rates. Here the current rate of a model is its long-term rate times factors. They depend on the
number of requests in the last minutes, the age of the last request, the same time on earlier days, and
whether the model was requested before. The weights of these factors are trained on the requests for all
models together; so they converge soon although most models are requested rarely. With constant rates, the
regression learns that only the long-term rate matters.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

MEMORIES_S = (60.0, 300.0, 1_200.0)
"""Time constants of the averages of recent rates."""
LONG_S = 86_400.0
"""Time constant of the long-term rate."""
DAY_S = 86_400.0
_PHASES = 24
"""Number of phases into which a day is divided."""
_UPDATE_S = 30.0
"""Interval between updates of the weights."""
_SILENCE_S = 600.0
"""Longer intervals without requests are not learnt; a night would count as much as hours of the day."""
_PRIOR_REQUESTS, _PRIOR_S = 0.3, 60.0
"""Prior of a model's long-term rate: number of requests, and time."""
_PRIOR_RECENT_REQUESTS = 0.5
"""Prior of recent rates: number of requests at the long-term rate."""
_PRIOR_PHASE_REQUESTS = 2.0
_PRIOR_PRECISION = 20.0
"""Prior precision of the weights, in expected requests."""
_DECAY = 0.985
"""Factor by which an update decays the precision of earlier ones."""
_LARGEST_STEP = 0.3
_LOWEST, _HIGHEST = -25.0, 3.0
"""Bounds of the logarithm of a rate [1/s]."""

Array = NDArray[np.float64]


class Factor(StrEnum):
    """Factors by which the current rate may differ from the long-term rate."""

    RECENT = "recent"
    """Number of requests in the last minutes."""
    AGE = "age"
    """Age of the last request, relative to the long-term rate and to the recent rate."""
    DAY = "day"
    """Requests at the same time on earlier days."""
    NEW = "new"
    """Whether the model was requested never, or once."""


_COLUMNS = {Factor.RECENT: len(MEMORIES_S), Factor.AGE: 2, Factor.DAY: 1, Factor.NEW: 2}


class RateForecast:
    """Current request rates of models, which are numbered 0, 1, ….

    Parameters
    ----------
    factors : frozenset of Factor
        Default: all; fewer for comparisons. Without factors the rate is the long-term rate.
    day_s : float
        Length of a day; shorter in simulations.
    """

    def __init__(self, factors: frozenset[Factor] = frozenset(Factor), day_s: float = DAY_S) -> None:
        if not day_s > 0:
            raise InvalidArgument(f"a day must be longer than 0 s, got {day_s:g} s")
        self._recent, self._age, self._day, self._new = (factor in factors for factor in Factor)
        self._day_s = day_s
        self._memories_s = np.array([*MEMORIES_S, LONG_S])
        self._decay_hz = -1.0 / self._memories_s
        self._decay = np.zeros_like(self._decay_hz)
        """Decay between two requests; a buffer that is reused for each request."""
        self._start_s = math.inf
        self._models = 0
        self._counts = np.zeros(0)
        self._last_s = np.zeros(0)
        self._decayed = np.zeros((0, len(self._memories_s)))
        """Exponentially decaying counts of requests, as of each model's last request."""
        self._phases = np.zeros((0, _PHASES))
        places = np.arange(_PHASES)
        distance = np.minimum(places, _PHASES - places)
        weight = np.maximum(0.0, 1.0 - distance / 3.0)
        self._phase_weights = np.array([np.roll(weight, place) for place in places])
        size = 2 + sum(_COLUMNS[factor] for factor in factors)
        self.weights = np.zeros(size)
        """Weights of the factors' logarithms; initially only the long-term rate counts."""
        self.weights[1] = 1.0
        self._precision = _PRIOR_PRECISION * np.eye(size)
        self._interval_start_s = math.nan
        self._interval_columns = np.zeros((0, size))
        self._interval_counts = np.zeros(0)

    def requested(self, model: int, now_s: float) -> None:
        """Count a request, and update the weights at intervals."""
        if math.isinf(self._start_s):
            self._start_s = self._interval_start_s = now_s
        if model >= self._models:
            self._grow(model + 1)
        if now_s - self._interval_start_s >= _UPDATE_S:
            self._learn(now_s)
        if model < len(self._interval_counts):
            self._interval_counts[model] += 1
        decayed, decay = self._decayed[model], self._decay
        np.multiply(self._decay_hz, now_s - self._last_s.item(model), out=decay)
        np.exp(decay, out=decay)
        decayed *= decay
        decayed += 1.0
        self._counts[model] += 1
        self._last_s[model] = now_s
        self._phases[model, self._phase(now_s)] += 1

    def rates(self, models: NDArray[np.intp], now_s: float) -> Array:
        """Current rates [1/s], shape (N,), of models (N,)."""
        if len(models):
            self._grow(int(models.max()) + 1)
        return self._rates(self._logarithms(models, now_s))

    def _rates(self, logarithms: Array) -> Array:
        rates: Array = np.exp(np.clip(logarithms @ self.weights, _LOWEST, _HIGHEST))
        return rates

    def _learn(self, now_s: float) -> None:
        """Update the weights with the requests since the last update, by one step of Newton's method.

        The log likelihood of Poisson counts y with expectation μ has the gradient Xᵀ(y - μ) and the curvature
        Xᵀ diag(μ) X. Earlier curvatures are added with decay, so that steps become smaller with more
        evidence.
        """
        if len(self._interval_columns) and now_s - self._interval_start_s < _SILENCE_S:
            expected = self._rates(self._interval_columns) * (now_s - self._interval_start_s)
            gradient = self._interval_columns.T @ (self._interval_counts - expected)
            prior = _PRIOR_PRECISION * np.eye(len(self.weights))
            curvature = (self._interval_columns * expected[:, None]).T @ self._interval_columns
            self._precision = _DECAY * self._precision + (1.0 - _DECAY) * prior + curvature
            step = np.linalg.solve(self._precision, gradient)
            self.weights += step * min(1.0, _LARGEST_STEP / max(float(np.abs(step).max()), 1e-12))
        self._interval_start_s = now_s
        self._interval_columns = self._logarithms(np.arange(self._models), now_s)
        self._interval_counts = np.zeros(self._models)

    def _logarithms(self, models: NDArray[np.intp], now_s: float) -> Array:
        """(N, C): the columns 1, logarithm of the long-term rate, and logarithms of the factors."""
        counts = self._counts[models]
        elapsed_s = max(1.0, now_s - self._start_s)
        seen_s = self._memories_s * -np.expm1(-elapsed_s / self._memories_s)
        age_s = np.where(counts > 0, now_s - self._last_s[models], elapsed_s)
        decayed = self._decayed[models] * np.exp(age_s[:, None] * self._decay_hz)
        long_hz = (decayed[:, -1] + _PRIOR_REQUESTS) / (seen_s[-1] + _PRIOR_S)
        log_long = np.log(long_hz)
        recent_hz = (decayed[:, :-1] + _PRIOR_RECENT_REQUESTS) / (
            seen_s[:-1] + _PRIOR_RECENT_REQUESTS / long_hz[:, None]
        )
        columns = np.ones((len(models), len(self.weights)))
        columns[:, 1] = log_long
        at = 2
        if self._recent:
            at += recent_hz.shape[1]
            np.subtract(np.log(recent_hz), log_long[:, None], out=columns[:, 2:at])
        if self._age:
            columns[:, at] = np.log1p(age_s * long_hz)
            columns[:, at + 1] = np.log1p(age_s * recent_hz[:, 1])
            at += 2
        if self._day:
            columns[:, at] = np.log(self._at_this_time(models, now_s, long_hz)) - log_long
            at += 1
        if self._new:
            columns[:, at] = counts == 0
            columns[:, at + 1] = counts == 1
        return columns

    def _at_this_time(self, models: NDArray[np.intp], now_s: float, long_hz: Array) -> Array:
        """Rates [1/s] around this phase of the day, averaged over all days so far."""
        weights = self._phase_weights[self._phase(now_s)]
        phase_s = self._day_s / _PHASES
        first, last = int(min(self._start_s, now_s) // phase_s), int(now_s // phase_s)
        days, more = divmod(last - first, _PHASES)
        passed = np.full(_PHASES, float(days))
        passed[(last % _PHASES - 1 - np.arange(more)) % _PHASES] += 1.0
        passed[last % _PHASES] += now_s / phase_s - last
        passed_s = float(weights @ passed) * phase_s
        rates: Array = (self._phases[models] @ weights + _PRIOR_PHASE_REQUESTS) / (
            passed_s + _PRIOR_PHASE_REQUESTS / long_hz
        )
        return rates

    def _phase(self, now_s: float) -> int:
        return int(now_s / self._day_s * _PHASES) % _PHASES

    def _grow(self, models: int) -> None:
        """Extend the arrays to this number of models."""
        if models > len(self._counts):
            more = max(64, 2 * models) - len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros(more)])
            self._last_s = np.concatenate([self._last_s, np.zeros(more)])
            self._decayed = np.concatenate([self._decayed, np.zeros((more, self._decayed.shape[1]))])
            self._phases = np.concatenate([self._phases, np.zeros((more, _PHASES))])
        self._models = max(self._models, models)
