"""How long bytes take to the next tier and back, from what was sent before.

A transfer takes latency + bytes / rate. One quotient of bytes and time would mix the two: small messages
would make every link look slow. The line is fitted to recent transfers instead, newer ones weighing more.
"""

from __future__ import annotations

import math

from nearsight.common.errors import InvalidArgument

_PRIOR_SIZES = (1_000.0, 50_000.0)
_PRIOR_WEIGHT = 0.5
_LEAST_PRIOR_WEIGHT = 0.01


class LinkEstimate:
    """Weighted linear regression of transfer time over size; weights fall by ``1 - 1/window`` per transfer.

    Parameters
    ----------
    latency_ms, mbps : float
        Assumed at first. The assumption fades as transfers are measured, yet never wholly: the line stays
        defined while all transfers are of one size.
    window : int
        Transfers that matter.

    Raises
    ------
    InvalidArgument
        If an assumption is not positive and finite, or the window is below 2.
    """

    def __init__(self, latency_ms: float = 20.0, mbps: float = 20.0, window: int = 20) -> None:
        if not (0 < latency_ms < math.inf and 0 < mbps < math.inf):
            raise InvalidArgument(f"a link needs a latency and a rate above 0, got {latency_ms}, {mbps}")
        if window < 2:
            raise InvalidArgument(f"a line needs at least two transfers, got a window of {window}")
        self._decay = 1.0 - 1.0 / window
        per_byte = 8e-3 / mbps
        # Sums of weight, size, time, size², size · time: of the assumption, then of what was measured.
        self._prior = _sums([(size, latency_ms + per_byte * size) for size in _PRIOR_SIZES])
        self._prior_weight = _PRIOR_WEIGHT
        self._measured = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._latency_ms, self._ms_per_byte = latency_ms, per_byte

    @property
    def latency_ms(self) -> float:
        """Of a transfer without content."""
        return self._latency_ms

    @property
    def mbps(self) -> float:
        """Rate in Mbit/s; infinite where size makes no difference."""
        return 8e-3 / self._ms_per_byte if self._ms_per_byte > 0 else math.inf

    def observe(self, size_bytes: float, transfer_ms: float) -> None:
        """A message was on its way for so long, there and back, without the time that was computed on it.

        Times that are not positive and finite are ignored: two machines' clocks do not subtract exactly.
        """
        if not (0 < transfer_ms < math.inf and 0 <= size_bytes < math.inf):
            return
        new = _sums([(size_bytes, transfer_ms)])
        self._prior_weight = max(_LEAST_PRIOR_WEIGHT, self._decay * self._prior_weight)
        old = tuple(self._decay * part for part in self._measured)
        self._measured = (old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3], old[4] + new[4])
        self._fit()

    def transfer_ms(self, size_bytes: float) -> float:
        """Expected time of a message of this size."""
        return self._latency_ms + self._ms_per_byte * size_bytes

    def _fit(self) -> None:
        n, x, y, xx, xy = (
            self._prior_weight * assumed + measured
            for assumed, measured in zip(self._prior, self._measured, strict=True)
        )
        slope = (n * xy - x * y) / (n * xx - x * x)
        latency = (y - slope * x) / n
        if slope < 0:  # larger messages were faster by chance: size makes no difference
            slope, latency = 0.0, y / n
        elif latency < 0:
            slope, latency = xy / xx, 0.0
        self._ms_per_byte, self._latency_ms = slope, latency


def _sums(points: list[tuple[float, float]]) -> tuple[float, float, float, float, float]:
    return (
        float(len(points)),
        math.fsum(x for x, _ in points),
        math.fsum(y for _, y in points),
        math.fsum(x * x for x, _ in points),
        math.fsum(x * y for x, y in points),
    )
