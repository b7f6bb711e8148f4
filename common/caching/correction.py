"""Keeping a measured profile true: the ratio of measured to predicted lookup times, followed at run time.

The dissertation's f(k) is fitted once, offline. A busy or slower machine, or other images, shift the real
times; one factor on the whole curve follows them.
"""

from __future__ import annotations

import math

from nearsight.common.errors import InvalidArgument

_LARGEST_JUMP = 8.0
_RELAXATION = 0.1


class LookupCorrection:
    """Exponentially weighted mean of measured / predicted; 1 before the first measurement.

    A single ratio counts at most 8 times the present factor, and at least an eighth of it: one thread that
    the machine paused does not look like a slow machine.

    Parameters
    ----------
    weight : float
        Share of the newest ratio, in (0, 1]; 0.05 looks back over about 20 lookups.
    factor : float
        What it begins with, such as where an earlier run ended.

    Raises
    ------
    InvalidArgument
        If ``weight`` is outside of (0, 1], or ``factor`` is not positive and finite.
    """

    def __init__(self, weight: float = 0.05, factor: float = 1.0) -> None:
        if not 0 < weight <= 1:
            raise InvalidArgument(f"the weight of a new ratio must be in (0, 1], got {weight}")
        if not 0 < factor < math.inf:
            raise InvalidArgument(f"a factor must be positive and finite, got {factor}")
        self._weight = weight
        self._factor = factor

    @property
    def factor(self) -> float:
        """What to multiply the profile's f(k) with."""
        return self._factor

    def relax(self) -> None:
        """Return towards 1 by one step, where nothing is measured.

        Otherwise a machine that was busy for a while, and whose cache was emptied for it, would have no
        lookups to learn from that it is busy no longer.
        """
        self._factor += _RELAXATION * (1.0 - self._factor)

    def observe(self, measured_ms: float, predicted_ms: float) -> None:
        """Take one lookup into account; times that are not positive and finite are ignored."""
        if not (0 < measured_ms < math.inf and 0 < predicted_ms < math.inf):
            return
        ratio = measured_ms / predicted_ms
        ratio = min(max(ratio, self._factor / _LARGEST_JUMP), self._factor * _LARGEST_JUMP)
        self._factor += self._weight * (ratio - self._factor)
