"""A background thread that a test controls: jobs run when the test advances the time."""

import heapq
import itertools
from collections.abc import Callable

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import ManualClock


class ManualBackground(BackgroundWorker):
    """Runs due jobs in `run`, and jobs that become due in `advance`, in the thread of the test."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._time = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def start(self) -> None:
        """Start no thread, because the test runs the jobs."""

    def submit(self, job: Callable[[], None], *, name: str = "", after_s: float = 0.0) -> None:
        del name
        heapq.heappush(self._due, (self._time.monotonic() + after_s, next(self._count), job))

    def run(self) -> None:
        """Run all jobs that are due now."""
        self._run_until(self._time.monotonic())

    def advance(self, seconds: float) -> int:
        """Advance the time from job to job; return the number of jobs."""
        end_s = self._time.monotonic() + seconds
        jobs = self._run_until(end_s)
        # A job may have advanced the clock further.
        self._time.advance(max(0.0, end_s - self._time.monotonic()))
        return jobs

    def _run_until(self, end_s: float) -> int:
        jobs = 0
        while self._due and self._due[0][0] <= end_s:
            due_s, _, job = heapq.heappop(self._due)
            self._time.advance(max(0.0, due_s - self._time.monotonic()))
            job()
            jobs += 1
        return jobs
