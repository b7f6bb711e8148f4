"""Virtual time: a heap of actions, sorted by time. Actions due at the same time run in the order of entry.

A run therefore depends only on its inputs and seeds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Action = Callable[[], object]


class EventQueue:
    """Runs actions in the order of virtual time. It is the `Clock` of all objects in the twin."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Virtual seconds since the start; equal to the time of the running action."""
        self.done = 0
        """Number of actions that were run."""
        self._heap: list[tuple[float, int, Action]] = []
        self._entered = 0

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self.now_s

    wall = monotonic

    def at(self, time_s: float, action: Action) -> None:
        """Run an action at a time, or now if that time has passed."""
        self._entered += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._entered, action))

    def after(self, wait_s: float, action: Action) -> None:
        """Run an action after ``wait_s`` seconds."""
        self.at(self.now_s + wait_s, action)

    def run(self, until_s: float = math.inf, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Run actions up to ``until_s``, which becomes the current time, or until ``enough`` returns True."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            if enough():
                return
            self.now_s, _, action = heapq.heappop(heap)
            self.done += 1
            action()
        if math.isfinite(until_s):
            self.now_s = max(self.now_s, until_s)
