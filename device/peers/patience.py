"""How long to wait for one device before the next is asked as well, learnt from how long answers take.

As TCP learns when to send again (RFC 6298): the mean of the answers and four times their mean deviation. A
frame that the air lost comes again only after 200 ms or more; the other device that holds the key answers
long before. Each answer that took longer doubles the patience until the next one, so that devices that are
busy are not asked twice as often as well.
"""

from __future__ import annotations

from typing import Final

LEAST_S: Final = 0.02
"""Scheduling alone may take a busy device so long."""
_MEAN_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4.0


class Patience:
    """Learns from answers. Its numbers are replaced one by one, so threads may share it without a lock.

    Parameters
    ----------
    most_s : float
        Longest patience, and the first.

    Attributes
    ----------
    s : float
        For how long to wait now.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self.s = most_s

    def answered(self, took_s: float) -> None:
        """An answer came in time."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        else:
            error_s = took_s - self._mean_s
            self._deviation_s += _DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
            self._mean_s += _MEAN_GAIN * error_s
        learnt_s = self._mean_s + _DEVIATIONS * self._deviation_s
        self.s = min(self._most_s, max(LEAST_S, learnt_s))

    def exhausted(self) -> None:
        """No answer came in time."""
        self.s = min(self._most_s, 2 * self.s)
