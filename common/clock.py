"""Time as an argument: decisions and waits take a `Clock`, so that tests and the simulator own the time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

LONGEST_S = 24 * 3600.0
"""Times left beyond a day are cut to a day: nobody waits longer, and the wire has 32 bits of milliseconds."""


class Clock(Protocol):
    """Where a component reads the time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def wall(self) -> float:
        """Seconds since the epoch; for logs and files, never for intervals."""


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only when told to: for tests and simulation."""

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


def clamp_s(seconds: float) -> float:
    """A time left that can be kept: between none, for negative ones and NaN, and `LONGEST_S`."""
    if 0.0 <= seconds <= LONGEST_S:
        return seconds
    return LONGEST_S if seconds > LONGEST_S else 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nobody waits for an answer any more.

    Deadlines travel on the wire as *time left*, since the clocks of two machines need not agree. Each hop
    makes its own deadline of what is left when the request arrives.
    """

    at_s: float
    """The moment, in seconds of ``clock.monotonic()``."""
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)
    """Where the time is read."""

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """The deadline ``seconds`` from now; see `clamp_s`."""
        return cls(clock.monotonic() + clamp_s(seconds), clock)

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.clock.monotonic())

    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self.clock.monotonic() >= self.at_s
