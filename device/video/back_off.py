"""Decides which frames are matched, from the time that matching has saved so far.

Matching takes time, and saves nothing if much has changed. While frames take longer with reuse than with a
gate, which repeats the last outputs for frames without changed blocks and executes all others whole, more and
more frames are not matched, unless their difference is much smaller.
"""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np

from nearsight.common.video.matching import Blocks, Frame

_LONGEST_SKIP = 31
"""Maximum number of consecutive frames that are not matched."""
_RESTS_AFTER, _LONGEST_CYCLE = 8, 8
"""After n >= 8 comparisons in a row with frames that differ, one of n / 2 frames is compared, at least one of
8."""
_MEASURED_FRAMES = 7
_WEIGHT = 0.3
"""Weight of the newest frame in the running mean of the time saved."""


class BackOff:
    """Running mean of the time that matching saved in one session.

    Parameters
    ----------
    whole_ms : float
        Time of a frame without reuse, used until such frames were measured; 0: unknown.
    """

    def __init__(self, whole_ms: float) -> None:
        self._wholes_ms: deque[float] = deque([whole_ms] if whole_ms else [], maxlen=_MEASURED_FRAMES)
        self._gain_ms = self._failed_difference = 0.0
        self._misses = self._frames_to_skip = self._in_vain = self._turn = 0

    def rests(self) -> bool:
        """Whether the next frame is not even compared and does not become the reference. Call once per frame.

        Comparing and copying a frame takes up to 3 % of the time of a fast network.
        """
        rests = self.rests_next
        if self._in_vain >= _RESTS_AFTER:
            self._turn = (self._turn + 1) % self._cycle
        return rests

    @property
    def rests_next(self) -> bool:
        """The next result of `rests`."""
        if self._in_vain < _RESTS_AFTER:
            return False
        # Of each cycle, the last frame but one becomes the reference, and the last one is compared.
        return (self._turn + 1) % self._cycle < self._cycle - 2

    @property
    def _cycle(self) -> int:
        return min(self._in_vain // 2, _LONGEST_CYCLE)

    def skips(self, difference: float) -> bool:
        """Whether to skip matching for the next frame. Call once per frame.

        Parameters
        ----------
        difference : float
            Mean squared difference between frame and reference. A frame is never skipped if its difference is
            at most a quarter of that of the last frame for which matching was measured.
        """
        if difference <= self._failed_difference / 4:
            self._in_vain = 0
            return False
        if not self._frames_to_skip:
            return False
        self._frames_to_skip -= 1
        self.compared_in_vain()
        return True

    def compared_in_vain(self) -> None:
        """Record that a frame differs from the reference too much to be matched."""
        self._in_vain += 1

    def repeated(self) -> None:
        """Record that a frame did not differ."""
        self._in_vain = 0

    def whole(self, took_ms: float) -> None:
        """Record the time of a frame that was executed whole and not matched."""
        self._wholes_ms.append(took_ms)

    def reused(self, difference: float, took_ms: float, *, repeats: bool = False) -> None:
        """Record the total time of a frame of which something was reused, matching included.

        ``repeats``: a gate would have repeated its last outputs, which takes no time.
        """
        if self._wholes_ms:
            self._note(difference, (0.0 if repeats else median(self._wholes_ms)) - took_ms)

    def not_reused(
        self, difference: float, match_ms: float, whole_ms: float, *, repeats: bool = False
    ) -> None:
        """Record a frame that was matched and executed whole: the times of both; ``repeats`` as above."""
        self.whole(whole_ms)
        self._note(difference, -match_ms - (whole_ms if repeats else 0.0))

    def try_next(self) -> None:
        """Do not skip the next frame: the last one stored maps for reuse, whose benefit is not known yet."""
        self._frames_to_skip = 0

    def _note(self, difference: float, gain_ms: float) -> None:
        self._gain_ms += _WEIGHT * (gain_ms - self._gain_ms)
        if self._gain_ms > 0:
            self._misses = self._in_vain = 0
        else:
            self._misses += 1
        self._frames_to_skip = min(2 ** max(self._misses - 1, 0) - 1, _LONGEST_SKIP)
        self._failed_difference = difference


class FollowedGate:
    """What a gate would do with the frames of one session.

    Reuse of regions must save more: it renews only what changed, so later frames match less often.

    Parameters
    ----------
    grid : Blocks
        Grid over the frames.
    """

    def __init__(self, grid: Blocks) -> None:
        self._grid = grid
        self._frame: Frame | None = None
        """The last frame that a gate would have executed."""

    def repeats(self, frame: Frame, threshold_db: float) -> bool:
        """Whether a gate would repeat its last outputs for the next frame. Call once per frame."""
        if self._frame is None:
            self._frame = frame.copy()
            return False
        if self._grid.all_match(frame, self._frame, threshold_db):
            return True
        np.copyto(self._frame, frame)  # allocating pages takes longer than the copy
        return False
