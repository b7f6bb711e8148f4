"""Time as an argument: decisions and waits take a `Clock`, so that tests and the simulator control it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the current time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never decreases."""

    def wall(self) -> float:
        """Seconds since the epoch; for logs and files, never for intervals."""


class SystemClock:
    """The clocks of the operating system."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that only `advance` moves; for tests and simulation."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def monotonic(self) -> float:
        """Seconds, as set by `advance`."""
        return self._now_s

    wall = monotonic

    def advance(self, seconds: float) -> None:
        """Move time forward.

        Raises
        ------
        ValueError
            If ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds


SYSTEM_CLOCK = SystemClock()
