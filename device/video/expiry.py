"""Decides which frames expire and are computed completely, and on which of them deviations are measured.

Without expiry, errors of reused outputs would accumulate. Source: DeepCache, section 3; differences:
decisions 052 and 061.
"""

from __future__ import annotations

import math

from nearsight.device.video.drift import DriftGuard
from nearsight.device.video.settings import VideoSettings


class Expiry:
    """Counts the frames of one session since the last whole execution, and those that expired.

    Parameters
    ----------
    settings : VideoSettings
    guard : DriftGuard
        Until its threshold has settled, all expiring frames are measured.
    budgeted : bool
        Whether there is a budget. Parts of the frame then expire one after the other (`TimeBudget`), and
        frames expire only to measure deviations.
    """

    def __init__(self, settings: VideoSettings, guard: DriftGuard, *, budgeted: bool) -> None:
        self._settings = settings
        self._guard = guard
        self._budgeted = budgeted
        self._since_whole = self._expired = 0

    def expires(self, *, still: bool) -> bool:
        """Whether the next frame is executed whole because of its number; ``still``: all its blocks match.

        Such a frame has the last outputs, so measuring its deviation takes no execution with reuse. If the
        next expiring frame is to be measured, it expires after half as many frames.
        """
        early = still and not self._budgeted and self._measures(self._expired + 1)
        return self._since_whole + 1 >= self._period / (2 if early else 1)

    def measures(self) -> bool:
        """Whether the frame that expires now is executed with and without reuse. Call once per such frame."""
        self._expired += 1
        return self._measures(self._expired)

    def note(self, *, whole: bool) -> None:
        """Record a frame, and whether it was executed whole."""
        self._since_whole = 0 if whole else self._since_whole + 1

    @property
    def _period(self) -> float:
        """Number of frames from one whole execution to the next."""
        expiry, checked = self._settings.expiry, self._settings.check_every
        if not self._budgeted or expiry == 1:
            return expiry
        return expiry * (checked if self._expired else 1) if checked else math.inf

    def _measures(self, number: int) -> bool:
        """Whether deviations are measured on the expiring frame with this number: at first, then a sample."""
        every = self._settings.check_every
        if not every or self._settings.expiry == 1:
            return False
        return number % every == 1 % every or not self._guard.settled or self._budgeted
