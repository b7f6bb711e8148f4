"""Decides which frames are worth matching, by what matching has gained so far.

Matching takes time, and where much has changed it brings nothing. While frames that changed take longer with
reuse than without, more and more of the next ones are not matched, unless they look much more alike.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_LONGEST_SKIP = 31
"""Frames that are not matched, at most, until one is tried again."""
_REMEMBERED = 7
_WEIGHT = 0.3
"""Of the newest frame in the running mean of gains."""


class BackOff:
    """What matching gained in one session.

    Parameters
    ----------
    whole_ms : float
        What a frame takes without reuse, until some were measured; 0: not known.
    """

    def __init__(self, whole_ms: float) -> None:
        self._wholes_ms: deque[float] = deque([whole_ms] if whole_ms else [], maxlen=_REMEMBERED)
        self._gain_ms = self._hopeless = 0.0
        self._misses = self._left = 0

    def skips(self, difference: float) -> bool:
        """Whether the next frame is not to be matched; to be asked once for each.

        Parameters
        ----------
        difference : float
            Mean square, of the frame from the reference. Frames that are twice as near are always tried.
        """
        if not self._left or difference <= self._hopeless / 4:
            return False
        self._left -= 1
        return True

    def whole(self, took_ms: float) -> None:
        """What a frame took that was executed whole, and not matched."""
        self._wholes_ms.append(took_ms)

    def reused(self, difference: float, took_ms: float) -> None:
        """What a frame took of which something was reused, matching included."""
        if self._wholes_ms:
            self._note(difference, median(self._wholes_ms) - took_ms)

    def in_vain(self, difference: float, match_ms: float, whole_ms: float) -> None:
        """What matching a frame took of which nothing was reused, and its execution."""
        self.whole(whole_ms)
        self._note(difference, -match_ms)

    def try_next(self) -> None:
        """The last frame prepared for reuse: whether it pays is seen with the next one."""
        self._left = 0

    def _note(self, difference: float, gain_ms: float) -> None:
        self._gain_ms += _WEIGHT * (gain_ms - self._gain_ms)
        self._misses = 0 if self._gain_ms > 0 else self._misses + 1
        self._left = min(2 ** max(self._misses - 1, 0) - 1, _LONGEST_SKIP)
        self._hopeless = difference
