"""What a miss costs: the rolling mean of the last measured round trips to the next tier (section 3.3.3)."""

from __future__ import annotations

import math
from collections import deque

from nearsight.common.errors import InvalidArgument


class MissLatency:
    """L_miss, never undefined: a prior stands in until the first miss has been measured.

    Parameters
    ----------
    prior_ms : float
        Assumed before the first miss.
    window : int
        How many of the last misses are averaged; 10 in the dissertation's system.

    Raises
    ------
    InvalidArgument
        If ``prior_ms`` is negative or not finite, or ``window`` is below 1.
    """

    def __init__(self, prior_ms: float = 100.0, window: int = 10) -> None:
        if not 0 <= prior_ms < math.inf:
            raise InvalidArgument(
                f"the prior miss latency must be finite and not negative, got {prior_ms} ms"
            )
        if window < 1:
            raise InvalidArgument(f"the window must hold at least one miss, got {window}")
        self._prior_ms = prior_ms
        self._last_ms: deque[float] = deque(maxlen=window)

    def observe(self, round_trip_ms: float) -> None:
        """Add one answered miss. A failed one is no measurement of what an answer costs.

        Raises
        ------
        InvalidArgument
            If the time is negative or not finite.
        """
        if not 0 <= round_trip_ms < math.inf:
            raise InvalidArgument(f"a round trip must be finite and not negative, got {round_trip_ms} ms")
        self._last_ms.append(round_trip_ms)

    def refill(self, round_trip_ms: float) -> None:
        """Fill the window with what an earlier run measured.

        Raises
        ------
        InvalidArgument
            If the time is negative or not finite.
        """
        for _ in range(self._last_ms.maxlen or 0):
            self.observe(round_trip_ms)

    @property
    def measured(self) -> int:
        """How many misses the mean rests on; 0 means that it is the prior."""
        return len(self._last_ms)

    @property
    def mean_ms(self) -> float:
        """L_miss in ms."""
        if not self._last_ms:
            return self._prior_ms
        return math.fsum(self._last_ms) / len(self._last_ms)
