"""Order of writes without a common clock: Lamport counters, made unique by the id of the writer.

A device that has not communicated with others would count from 1, and its writes would lose to all earlier
writes of others. Therefore counters are at least as high as the date requires (hybrid logical clocks,
Kulkarni et al., 2014). A wrong date does no harm: a device that receives a stamp continues above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

EPOCH_S: Final = 1_577_836_800.0
"""Start of the year 2020 [s since 1970]. Earlier dates count as this one."""
TICKS_PER_S: Final = 2**16
LATEST_DATE: Final = 2**50
"""Counters follow the date for about five hundred years, up to this value."""


class Stamp(NamedTuple):
    """Logical time of a write; ordered by counter, then writer.

    A tuple rather than a dataclass, as merging compares many stamps.
    """

    counter: int
    """Higher than every counter that the writer had received; 0 only in `NEVER`."""
    writer: int
    """The writer, 64 bits. Random at each start of a node: a node that lost its counter would otherwise use
    stamps twice."""


NEVER: Final = Stamp(0, 0)
"""Earlier than every write."""


def date_counter(wall_s: float) -> int:
    """The lowest counter of a write at this date, in seconds since 1970."""
    return min(LATEST_DATE, int(max(0.0, wall_s - EPOCH_S) * TICKS_PER_S))


class LamportClock:
    """Creates stamps later than all that were received (Lamport 1978). Not thread-safe.

    Parameters
    ----------
    writer : int
        The writer, 64 bits; see `Stamp`.
    least : callable
        Returns the lowest counter of a write at the current time.
    """

    def __init__(self, writer: int, least: Callable[[], int] = lambda: 0) -> None:
        self.writer = writer
        self._least = least
        self.counter = 0
        """The highest counter that was received or created."""

    def next(self) -> Stamp:
        """A stamp for a new write."""
        self.counter = max(self.counter + 1, self._least())
        return Stamp(self.counter, self.writer)

    def witness(self, stamp: Stamp) -> None:
        """Record the stamp of another write: all stamps created from here on are later."""
        self.counter = max(self.counter, stamp.counter)
