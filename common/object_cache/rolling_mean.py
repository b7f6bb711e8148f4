"""A rolling mean over the last values, and at first over a configured one (section 3.5.1.1)."""

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

    Attributes
    ----------
    mean : float
        Of the values in the window.
    """

    def __init__(self, window: int, seed: float) -> None:
        if window < 1 or not 0 < seed < math.inf:
            raise InvalidArgument(
                f"a rolling mean needs a window and a seed above 0, got {window} and {seed}"
            )
        self._values = deque([seed] * window, maxlen=window)
        self.mean = seed

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
        self.mean = math.fsum(self._values) / len(self._values)
