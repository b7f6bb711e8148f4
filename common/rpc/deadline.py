"""A point in time after which nobody waits for an answer any more.

Deadlines travel on the wire as *time left*, since the clocks of two machines need not agree. Each hop makes
its own `Deadline` from what is left when the request arrives, so that it shrinks from hop to hop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nearsight.common.clock import SYSTEM_CLOCK, Clock

LONGEST_S = 24 * 3600.0
"""Times left beyond a day are cut to a day: nobody waits longer, and the wire has 32 bits of milliseconds."""


def clamp_s(seconds: float) -> float:
    """A time left that can be kept: between none, for negative ones and NaN, and `LONGEST_S`."""
    if 0.0 <= seconds <= LONGEST_S:
        return seconds
    return LONGEST_S if seconds > LONGEST_S else 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of a clock.

    Parameters
    ----------
    at_s : float
        The moment, in seconds of ``clock.monotonic()``.
    clock : Clock
        Where the time is read.
    """

    at_s: float
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)

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

    def shrink(self, seconds: float) -> Deadline:
        """An earlier deadline: what a hop may give to the next one to keep ``seconds`` for its own answer."""
        return Deadline(self.at_s - max(seconds, 0.0), self.clock)
