"""Which frame goes to the edge next: streams take turns, and the newest frame of a stream wins.

The edge gets as many frames as it works on, and no line forms there: what waits for a free place waits here,
one frame per stream, and a newer one replaces it. So an answer is hardly older than the time between two
frames and one recognition, however many streams there are; for the others the edge spends no time.

How many frames the edge works on is learnt from what it says about each: it is raised while they begin at
once, and lowered while they wait for longer than they take.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
F = TypeVar("F")

LEAST, FIRST, MOST = 3.0, 4.0, 256.0
"""Places: at least (an edge has two workers, and one frame is on its way), at the beginning, at most."""
_AT_ONCE, _TOO_LONG = 0.25, 1.0
"""Waiting times at the edge, in times of its work: below it there are more places, above it fewer."""


class Turns(Generic[K, F]):
    """Frames that wait, and places at the edge. A pure object.

    Attributes
    ----------
    places : float
        Frames that may be at the edge.
    at_edge : int
        Frames that are.
    """

    def __init__(self) -> None:
        self.places = FIRST
        self.at_edge = 0
        self._waiting: dict[K, F] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, stream: K, frame: F) -> F | None:
        """A new frame, which keeps the turn of the one that it replaces; returns that one."""
        replaced = self._waiting.get(stream)
        self._waiting[stream] = frame
        return replaced

    def withdraw(self, stream: K) -> F | None:
        """The stream is gone; returns its frame that waited."""
        return self._waiting.pop(stream, None)

    def withdraw_all(self) -> list[F]:
        """Give up all that wait."""
        frames = list(self._waiting.values())
        self._waiting.clear()
        return frames

    def take(self) -> F | None:
        """The frame whose turn it is, if there is a place at the edge; it has one then."""
        if not self._waiting or self.at_edge >= int(self.places):
            return None
        self.at_edge += 1
        return self._waiting.pop(next(iter(self._waiting)))

    def answered(self, queue_ms: float, work_ms: float) -> None:
        """The edge answered a frame that waited for so long there, and took so long."""
        full = self.at_edge >= int(self.places)
        self.at_edge -= 1
        if queue_ms > _TOO_LONG * work_ms:
            self.places = max(LEAST, self.places - 1 / self.places)
        elif full and queue_ms < _AT_ONCE * work_ms:
            self.places = min(MOST, self.places + 1 / self.places)

    def failed(self, *, overloaded: bool) -> None:
        """The edge did not answer a frame; ``overloaded``: it has too many."""
        self.at_edge -= 1
        if overloaded:
            self.places = max(LEAST, self.places / 2)
