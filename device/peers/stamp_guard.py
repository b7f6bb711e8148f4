"""Keeps absurd stamps out, so that a peer that lies cannot win for ever.

The latest stamp wins, so a peer that invents one out of reach could settle a key for good, or drive the
counters of all to their end. Honest counters follow the date, or advance by one per write. Therefore there
is a limit that grows with time, far faster than both: who goes to the limit wins until the next honest
write, which goes above it, and an instant later the limit has moved on. The limit depends on nothing but the
date, so that honest devices agree on it; one whose date is in the past may refuse for as long as a liar is
ahead of its limit.
"""

from __future__ import annotations

from typing import Final

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.stamps import EPOCH_S, LATEST_DATE, LamportClock
from nearsight.device.peers.values import Counters, Entry, latest_stamp

WRITES_PER_S: Final = 2**20
"""More than any group of devices makes; the limit reaches the end of counters in a hundred thousand years."""
LEAST_LIMIT: Final = 2 * LATEST_DATE
"""For devices with a date in the past: they take what others write by theirs."""
LARGEST_COUNT: Final = 2**48
"""No counter of one contributor gets there."""


class StampGuard:
    """Looks at what peers send before it is taken. Not thread-safe.

    Parameters
    ----------
    stamps : LamportClock
        Of this node; takes notice of what is accepted.
    clock : Clock
        Tells the date.
    """

    def __init__(self, stamps: LamportClock, clock: Clock) -> None:
        self._stamps = stamps
        self._clock = clock

    def admit(self, entry: Entry) -> None:
        """Take notice of an entry from a peer.

        Raises
        ------
        InvalidMessage
            If its stamps or counts are absurd.
        """
        if isinstance(entry.value, Counters):
            for contribution in entry.value.contributions:
                if any(count > LARGEST_COUNT for count in contribution.counts.values()):
                    raise InvalidMessage(f"{entry.key!r} has a count that nobody can have reached")
        latest = latest_stamp(entry)
        if latest.counter > self._limit():
            raise InvalidMessage(f"{entry.key!r} was written in a future that nobody can have reached")
        self._stamps.witness(latest)

    def _limit(self) -> int:
        return LEAST_LIMIT + int(max(0.0, self._clock.wall() - EPOCH_S) * WRITES_PER_S)
