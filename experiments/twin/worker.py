"""The daemons' background thread without a thread: one job after another, in virtual time.

A job that builds a snapshot says what that takes (`spend`). Its clock goes on within the job, longer if
others want the cores at the moment, so that what measures its own builds sees them. Then a core is busy with
it; the next job, and what the job leads to, wait until it is done.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from nearsight.common.background.worker import BackgroundWorker, Job
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.processor import Processor


class VirtualWorker(BackgroundWorker):
    """Runs jobs in order of their time. It is also the clock of its jobs.

    Parameters
    ----------
    events : EventQueue
        Time.
    processor : Processor
        What jobs compute on.

    Attributes
    ----------
    stretch : float
        How much longer jobs take at the moment, as other threads of the daemon are busy.
    """

    def __init__(self, events: EventQueue, processor: Processor) -> None:  # no thread, so no super().__init__
        self._events = events
        self._virtual = events.clock
        self._processor = processor
        self._due: list[tuple[float, int, str, Job]] = []
        self._named: dict[str, float] = {}
        self._count = 0
        self._wakes_s = math.inf
        self._busy = False
        self._spent_s = self._work_s = 0.0
        self._results: list[Callable[[], object]] = []
        self._stopped = False
        self.stretch = 1.0

    def monotonic(self) -> float:
        """The time as a job sees it."""
        return self._virtual.now_s + self._spent_s

    def wall(self) -> float:
        """The same time."""
        return self.monotonic()

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, timeout_s: float) -> None:
        """Drop what waits."""
        del timeout_s
        self._stopped = True
        self._due.clear()

    def submit(self, job: Job, *, name: str = "", after_s: float = 0.0) -> None:
        """Run a job after a while. Of jobs with the same name one waits at a time, the first due."""
        due_s = self.monotonic() + after_s
        if self._stopped or (name and self._named.get(name, math.inf) <= due_s):
            return
        if name:
            self._named[name] = due_s
        self._count += 1
        heapq.heappush(self._due, (due_s, self._count, name, job))
        self._wake(due_s)

    def spend(self, work_s: float) -> None:
        """The job that runs computes for so long."""
        self._work_s += work_s * self.stretch
        self._spent_s += work_s * self.stretch * self._processor.slowness * self._processor.crowding

    def when_finished(self, action: Callable[[], object]) -> None:
        """Do something when what the job spends is done."""
        if self._spent_s:
            self._results.append(action)
        else:
            action()

    def _wake(self, due_s: float) -> None:
        if due_s < self._wakes_s and not self._busy:
            self._wakes_s = due_s
            self._events.at(due_s, lambda: self._work(due_s))

    def _work(self, wake_s: float) -> None:
        if wake_s != self._wakes_s:
            return  # an earlier one was set meanwhile
        self._wakes_s = math.inf
        now_s = self._virtual.now_s
        while self._due and self._due[0][0] <= now_s and not self._busy:
            due_s, _, name, job = heapq.heappop(self._due)
            if name:
                if self._named.get(name) != due_s:
                    continue
                del self._named[name]
            self._do(job)
        self._wake_for_next()

    def _do(self, job: Job) -> None:
        job()
        if self._spent_s:
            self._busy = True
            work_s, self._work_s, self._spent_s = self._work_s, 0.0, 0.0
            self._processor.run(work_s, self._done)

    def _done(self) -> None:
        self._busy = False
        results, self._results = self._results, []
        for action in results:
            action()
        self._wake_for_next()

    def _wake_for_next(self) -> None:
        if self._due:
            self._wake(self._due[0][0])
