"""Keeping a measured profile true: the ratio of measured to predicted lookup times, followed at run time.

The dissertation's f(k) is fitted once, offline. A busy or slower machine, or other images, shift the real
times; one factor on the whole curve follows them.

An empty cache has no lookups to learn from. If it was emptied because lookups were slow, somebody must find
out when they no longer are: the factor returns to 1 by and by, until the optimizer tries a cache again. Where
lookups still are slow, that trial is lost and the cache is emptied once more. Two things keep it from being
filled and emptied for ever, as long as the machine stays as it is:

- patience: each lost trial doubles the requests until the next one, so that lost trials take ever fewer of
  them, and a machine that recovers is noticed after about as many requests as it was slow for;
- indifference: where an empty and a filled cache cost nearly the same, the noise of the measurements would
  decide. Each lost trial widens the band within which neither is better than the other.

A cache that is held for long was no lost trial: both begin anew.
"""

from __future__ import annotations

import math

from nearsight.common.errors import InvalidArgument

_LARGEST_JUMP = 8.0
_LOST_TRIALS_SHARE = 0.05
_HELD = 8.0
_INDIFFERENCE = 0.02
_LARGEST_INDIFFERENCE = 0.1


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
        self._lookups = 0  # since the cache was last empty
        self._resting = False
        self._patience = 0.0

    @property
    def factor(self) -> float:
        """What to multiply the profile's f(k) with."""
        return self._factor

    @property
    def patience(self) -> float:
        """Requests in which the factor goes half of the way back to 1; 0 until a cache was emptied."""
        return self._patience

    @property
    def indifference(self) -> float:
        """Share of the expected latency by which a filled and an empty cache must differ to differ at all."""
        lost = self._patience * self._weight  # 1 before the first lost trial
        return min(_LARGEST_INDIFFERENCE, _INDIFFERENCE * lost) if lost > 1 else 0.0

    def relax(self, requests: int = 1) -> None:
        """Return towards 1: so many requests came since the last call, and the cache is empty.

        The way is that of the logarithm: four times too slow is as far as four times too fast.
        """
        if not self._resting:
            self._be_patient()
            self._resting = True
        self._factor **= 0.5 ** (requests / self._patience)

    def _be_patient(self) -> None:
        """The cache was emptied: wait longer than before, unless it was held for long."""
        # A trial is judged after about as many lookups as the mean looks back over. That is what it may cost,
        # and so the least that is waited; at most, lost trials take 5 % of the requests.
        trial = 1.0 / self._weight
        if self._lookups >= _HELD * self._patience:
            self._patience = trial
        else:
            self._patience = min(2.0 * self._patience, trial / _LOST_TRIALS_SHARE)
        self._lookups = 0

    def observe(self, measured_ms: float, predicted_ms: float) -> None:
        """Take one lookup into account; times that are not positive and finite are ignored."""
        if not (0 < measured_ms < math.inf and 0 < predicted_ms < math.inf):
            return
        ratio = measured_ms / predicted_ms
        ratio = min(max(ratio, self._factor / _LARGEST_JUMP), self._factor * _LARGEST_JUMP)
        self._factor += self._weight * (ratio - self._factor)
        self._resting = False
        self._lookups += 1
