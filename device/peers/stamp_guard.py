"""Keeps absurd stamps out, so that a peer that lies cannot win for ever.

The latest stamp wins, so a peer that invents one out of reach could settle a key for good, or drive the
counters of all to their end. Honest counters advance by one per write. Therefore a stamp more than
`LARGEST_LEAP` ahead of everything seen here is refused, and the own counter follows it by one leap only: an
honest device that fell behind others catches up within a few messages, a liar would need years to exhaust the
counter. A stamp within the leap wins until the next write, which goes above it.
"""

from __future__ import annotations

from typing import Final

from nearsight.common.errors import InvalidMessage
from nearsight.device.peers.stamps import LamportClock, Stamp
from nearsight.device.peers.values import Counters, Entry, latest_stamp

LARGEST_LEAP: Final = 2**32
LAST_COUNTER: Final = 2**62
LARGEST_COUNT: Final = 2**48
"""No counter of one contributor gets there."""


class StampGuard:
    """Looks at what peers send before it is taken. Not thread-safe.

    Parameters
    ----------
    clock : LamportClock
        Of this node; takes notice of what is accepted.
    """

    def __init__(self, clock: LamportClock) -> None:
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
        ahead = latest.counter - self._clock.counter
        if ahead > LARGEST_LEAP:
            self._clock.witness(Stamp(min(self._clock.counter + LARGEST_LEAP, LAST_COUNTER - 1), 0))
            raise InvalidMessage(f"{entry.key!r} was written in a future that nobody can have reached")
        if latest.counter >= LAST_COUNTER:
            raise InvalidMessage(f"{entry.key!r} was written after the last time there is")
        self._clock.witness(latest)
