"""Order of frames to the edge: streams take turns, and only the newest frame of a stream is kept.

The edge gets only as many frames as it processes in parallel, so that no queue grows there. Other frames
wait here, one per stream, and a newer frame replaces the waiting one. Thus the age of an answer is at most
about one frame interval plus one recognition, for any number of streams. Replaced frames cost the edge no
time.

The number of places at the edge is adapted by the times in its answers. It increases while all places are
in use and frames start almost without waiting. It decreases while the waiting time exceeds the processing
time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
F = TypeVar("F")

LEAST, FIRST, MOST = 3.0, 4.0, 256.0
"""Number of places: minimum (an edge has two workers, and one frame is in transmission), initial, maximum."""
_AT_ONCE, _TOO_LONG = 0.25, 1.0
"""Ratio of waiting to processing time: below the first, places are added; above the second, removed."""


class Turns(Generic[K, F]):
    """Waiting frames, and places at the edge. A pure object.

    Attributes
    ----------
    places : float
        Maximum number of frames at the edge.
    at_edge : int
        Present number of frames at the edge.
    """

    def __init__(self) -> None:
        self.places = FIRST
        self.at_edge = 0
        self._waiting: dict[K, F] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, stream: K, frame: F) -> F | None:
        """Add a frame, which takes the turn of the stream's waiting frame; return the replaced frame."""
        replaced = self._waiting.get(stream)
        self._waiting[stream] = frame
        return replaced

    def withdraw(self, stream: K) -> F | None:
        """Remove a stream that has ended; return its waiting frame."""
        return self._waiting.pop(stream, None)

    def withdraw_all(self) -> list[F]:
        """Remove and return all waiting frames."""
        frames = list(self._waiting.values())
        self._waiting.clear()
        return frames

    def take(self) -> F | None:
        """The next frame to send, if there is a free place; it then occupies the place."""
        if not self._waiting or self.at_edge >= int(self.places):
            return None
        self.at_edge += 1
        return self._waiting.pop(next(iter(self._waiting)))

    def answered(self, queue_ms: float, work_ms: float) -> None:
        """Record an answer of the edge, with the frame's waiting and processing time."""
        full = self.at_edge >= int(self.places)
        self.at_edge -= 1
        if queue_ms > _TOO_LONG * work_ms:
            self.places = max(LEAST, self.places - 1 / self.places)
        elif full and queue_ms < _AT_ONCE * work_ms:
            self.places = min(MOST, self.places + 1 / self.places)

    def failed(self, *, overloaded: bool) -> None:
        """Record a failed frame; ``overloaded``: the edge had too many."""
        self.at_edge -= 1
        if overloaded:
            self.places = max(LEAST, self.places / 2)
