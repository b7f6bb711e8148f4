"""Order among writes without a common clock: Lamport's counters, made unique by the writer.

A device that has met no other would count from 1, and its writes would lose to all earlier writes of others.
Therefore counters do not fall behind the date (hybrid logical clocks, Kulkarni et al., 2014). A wrong date
does no harm: a device that sees a stamp goes above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

EPOCH_S: Final = 1_577_836_800.0
"""Start of the year 2020; a device whose date is earlier takes it for this."""
TICKS_PER_S: Final = 2**16
LATEST_DATE: Final = 2**50
"""Counters follow the date for five hundred years."""


class Stamp(NamedTuple):
    """When something was written; ordered by counter, then writer.

    A tuple and no dataclass, as merging compares stamps all the time.
    """

    counter: int
    """Above every counter that the writer had seen; 0 only in `NEVER`."""
    writer: int
    """The writer, 64 bits. Fresh at each start of a node: one that forgot its counter would use stamps
    twice."""


NEVER: Final = Stamp(0, 0)
"""Before every write."""


def date_counter(wall_s: float) -> int:
    """The least counter of what is written at a date, in seconds since 1970."""
    return min(LATEST_DATE, int(max(0.0, wall_s - EPOCH_S) * TICKS_PER_S))


class LamportClock:
    """Gives stamps later than all that were seen (Lamport 1978). Not thread-safe.

    Parameters
    ----------
    writer : int
        The writer, 64 bits; see `Stamp`.
    least : callable
        The least counter of a write now.
    """

    def __init__(self, writer: int, least: Callable[[], int] = lambda: 0) -> None:
        self.writer = writer
        self._least = least
        self.counter = 0
        """The highest that was seen or given."""

    def next(self) -> Stamp:
        """A stamp for a new write."""
        self.counter = max(self.counter + 1, self._least())
        return Stamp(self.counter, self.writer)

    def witness(self, stamp: Stamp) -> None:
        """Take notice of a write: all stamps from here on are later."""
        self.counter = max(self.counter, stamp.counter)
