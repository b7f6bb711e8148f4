"""Time that only events move: the `Clock` of everything in the twin."""

from __future__ import annotations


class VirtualClock:
    """A clock whose owner, the `EventQueue`, sets it.

    Attributes
    ----------
    now_s : float
        Virtual seconds since the start.
    """

    __slots__ = ("now_s",)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:  # noqa: D102
        return self.now_s

    def wall(self) -> float:  # noqa: D102
        return self.now_s
