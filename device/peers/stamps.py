"""Order among writes without a common clock: Lamport's counters, made unique by who wrote."""

from __future__ import annotations

from typing import Final, NamedTuple


class Stamp(NamedTuple):
    """When something was written; ordered by counter, then writer.

    A tuple and no dataclass, as merging compares stamps all the time.

    Parameters
    ----------
    counter : int
        Above every counter that the writer had seen; 0 only in `NEVER`.
    writer : int
        Who wrote, 64 bits. Fresh at each start of a node: one that forgot its counter would use stamps
        twice.
    """

    counter: int
    writer: int


NEVER: Final = Stamp(0, 0)
"""Before every write."""


class LamportClock:
    """Gives stamps later than all that were seen (Lamport 1978). Not thread-safe.

    Parameters
    ----------
    writer : int
        Who writes, 64 bits; see `Stamp`.
    """

    def __init__(self, writer: int) -> None:
        self.writer = writer
        self.counter = 0
        """The highest that was seen or given."""

    def next(self) -> Stamp:
        """A stamp for a new write."""
        self.counter += 1
        return Stamp(self.counter, self.writer)

    def witness(self, stamp: Stamp) -> None:
        """Take notice of a write: all stamps from here on are later."""
        self.counter = max(self.counter, stamp.counter)
