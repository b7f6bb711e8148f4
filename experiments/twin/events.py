"""What happens next: a heap of actions by time; of those due at the same time the first that was entered.

So a run depends on nothing but its inputs and seeds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from nearsight.experiments.twin.virtual_clock import VirtualClock

Action = Callable[[], object]


class EventQueue:
    """Runs actions in the order of virtual time.

    Attributes
    ----------
    clock : VirtualClock
        Stands at the time of the action that runs.
    done : int
        Actions that were run.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.done = 0
        self._heap: list[tuple[float, int, Action]] = []
        self._entered = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time_s: float, action: Action) -> None:
        """Run an action at a time; one that is past is now."""
        self._entered += 1
        heapq.heappush(self._heap, (max(time_s, self.clock.now_s), self._entered, action))

    def after(self, wait_s: float, action: Action) -> None:
        """Run an action after a while."""
        self.at(self.clock.now_s + wait_s, action)

    def run(self, until_s: float = math.inf, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Run what is due up to a time, or until it is enough; then it is that time, if it is finite."""
        heap, clock = self._heap, self.clock
        while heap and heap[0][0] <= until_s:
            if enough():
                return
            clock.now_s, _, action = heapq.heappop(heap)
            self.done += 1
            action()
        if math.isfinite(until_s):
            clock.now_s = max(clock.now_s, until_s)
