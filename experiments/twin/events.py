"""Virtual time: a heap of actions by time. Of those due at the same time, the one entered first runs first.

So a run depends on nothing but its inputs and seeds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Action = Callable[[], object]


class EventQueue:
    """Runs actions in the order of virtual time. It is the `Clock` of everything in the twin."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Virtual seconds since the start: the time of the action that runs."""
        self.done = 0
        """Actions that were run."""
        self._heap: list[tuple[float, int, Action]] = []
        self._entered = 0

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self.now_s

    wall = monotonic

    def at(self, time_s: float, action: Action) -> None:
        """Run an action at a time, or now if that is past."""
        self._entered += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._entered, action))

    def after(self, wait_s: float, action: Action) -> None:
        """Run an action after a while."""
        self.at(self.now_s + wait_s, action)

    def run(self, until_s: float = math.inf, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Run what is due up to a time, which is then the time, or until ``enough`` says so."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            if enough():
                return
            self.now_s, _, action = heapq.heappop(heap)
            self.done += 1
            action()
        if math.isfinite(until_s):
            self.now_s = max(self.now_s, until_s)
