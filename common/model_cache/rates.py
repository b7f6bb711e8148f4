"""Estimators of the models' request rates: a sliding window, and an EWMA (mCache, 4.3.2)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict, deque

from nearsight.common.errors import InvalidArgument


class RateEstimator(ABC):
    """Estimates Δ of mCache for each model [1/s]."""

    @abstractmethod
    def requested(self, model: str, now_s: float) -> None:
        """Record a request."""

    @abstractmethod
    def rate(self, model: str, now_s: float) -> float:
        """Requests per second of a model; 0 if it has not been requested."""


class SlidingWindow(RateEstimator):
    """Counts the requests of the last ``window_s`` seconds."""

    def __init__(self, window_s: float) -> None:
        _check_positive(window_s)
        self._window_s = window_s
        self._times_s: defaultdict[str, deque[float]] = defaultdict(deque)

    def requested(self, model: str, now_s: float) -> None:
        """Store the request's time, and delete times before the window."""
        self._in_window(model, now_s).append(now_s)

    def rate(self, model: str, now_s: float) -> float:
        """Number of requests in the window, divided by its length."""
        return len(self._in_window(model, now_s)) / self._window_s if model in self._times_s else 0.0

    def _in_window(self, model: str, now_s: float) -> deque[float]:
        times_s = self._times_s[model]
        while times_s and times_s[0] <= now_s - self._window_s:
            times_s.popleft()
        return times_s


class ExponentialAverage(RateEstimator):
    """EWMA in continuous time: each request has the weight exp(-age / ``memory_s``) / ``memory_s``."""

    def __init__(self, memory_s: float) -> None:
        _check_positive(memory_s)
        self._memory_s = memory_s
        self._last: dict[str, tuple[float, float]] = {}

    def requested(self, model: str, now_s: float) -> None:
        """Add a new request's weight to the decayed sum of earlier weights."""
        self._last[model] = (self.rate(model, now_s) + 1 / self._memory_s, now_s)

    def rate(self, model: str, now_s: float) -> float:
        """Sum of the current weights."""
        if model not in self._last:
            return 0.0
        rate, at_s = self._last[model]
        return rate * math.exp((at_s - now_s) / self._memory_s)


def _check_positive(seconds: float) -> None:
    if not seconds > 0:
        raise InvalidArgument(f"a rate cannot be estimated over {seconds:g} s", advice="give a positive time")
