"""Rolling means of the edge: over the last values, and at first over configured ones (section 3.5.1.1)."""

from __future__ import annotations

import math
from collections import deque

from nearsight.common.errors import InvalidArgument


class RollingMean:
    """Mean of the last values.

    Parameters
    ----------
    window : int
        How many; 100 in the dissertation's system.
    seed : float
        What the window is full of before anything was measured.

    Raises
    ------
    InvalidArgument
        If ``window`` is below 1, or ``seed`` is not positive and finite.
    """

    def __init__(self, window: int, seed: float) -> None:
        if window < 1 or not 0 < seed < math.inf:
            raise InvalidArgument(
                f"a rolling mean needs a window and a seed above 0, got {window} and {seed}"
            )
        self._values = deque([seed] * window, maxlen=window)
        self._mean = seed

    @property
    def mean(self) -> float:
        """Of the values in the window."""
        return self._mean

    def observe(self, value: float) -> None:
        """Push out the oldest value.

        Raises
        ------
        InvalidArgument
            If the value is negative or not finite.
        """
        if not 0 <= value < math.inf:
            raise InvalidArgument(f"expected a finite value that is not negative, got {value}")
        self._values.append(value)
        # Summed anew: a running sum drifts, and a hundred values are summed in a microsecond.
        self._mean = math.fsum(self._values) / len(self._values)


class InterArrivalTime:
    """Mean time between requests, of all devices together.

    Parameters
    ----------
    window : int
        Requests that are averaged over.
    seed_ms : float
        Assumed at first.
    longest_ms : float
        A longer silence counts as this: one quiet night between two crowds must not make the second look
        like no load for a hundred requests. ``inf`` is the dissertation's plain mean.
    """

    def __init__(self, window: int = 100, seed_ms: float = 200.0, longest_ms: float = 10_000.0) -> None:
        if not longest_ms > 0:
            raise InvalidArgument(f"the longest silence must be above 0, got {longest_ms} ms")
        self._mean = RollingMean(window, seed_ms)
        self._longest_ms = longest_ms
        self._last_s: float | None = None

    @property
    def mean_ms(self) -> float:
        """IAT_mean in ms."""
        return self._mean.mean

    def observe(self, now_s: float) -> None:
        """A request arrived."""
        if self._last_s is not None:
            # Threads may report two arrivals in the wrong order.
            self._mean.observe(min(self._longest_ms, max(0.0, now_s - self._last_s) * 1e3))
        self._last_s = now_s
