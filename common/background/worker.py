"""A thread for delayed and background jobs: deadlines, decisions, fetching models, builds, polling.

All jobs run in this thread, one after another, so data that only they use needs no lock.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger

Job = Callable[[], object]
"""A function without arguments; its result is ignored."""


_Key = tuple[str, int]
"""Name of a job, and the id of the object whose method it is."""


class BackgroundWorker:
    """Runs jobs in order of their time; a job that fails is logged and does not end the thread.

    Parameters
    ----------
    clock : Clock
        Time of delayed jobs.
    name : str
        Name of the thread.
    """

    def __init__(self, clock: Clock, name: str = "nearsight-background") -> None:
        self._clock = clock
        self._log = get_logger("background")
        self._changed = threading.Condition()
        self._jobs: list[tuple[float, int, _Key, Job]] = []
        self._waiting: dict[_Key, float] = {}
        self._numbers = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Drop waiting jobs, and wait for the running one."""
        with self._changed:
            self._stopping = True
            self._jobs.clear()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def submit(self, job: Job, *, name: str = "", after_s: float = 0.0) -> None:
        """Run a job after a delay. Of waiting jobs with the same name only the earliest is kept.

        Methods of different objects are different jobs: a waiting job of a closed object does not replace a
        job of its successor.
        """
        due_s = self._clock.monotonic() + after_s
        key = (name, id(getattr(job, "__self__", None)))  # an object with a waiting job keeps its id
        with self._changed:
            if self._stopping or (name and self._waiting.get(key, float("inf")) <= due_s):
                return
            if name:
                self._waiting[key] = due_s
            entry = (due_s, next(self._numbers), key, job)
            heapq.heappush(self._jobs, entry)
            if self._jobs[0] is entry:  # otherwise the thread wakes up in time anyway
                self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except NearsightError as error:
                self._log.warning("background job failed", error=str(error))
            except Exception:  # noqa: BLE001  a bug in one job must not end all later ones
                self._log.exception("background job failed")

    def _next(self) -> Job | None:
        with self._changed:
            while not self._stopping:
                if self._jobs:
                    wait_s = self._jobs[0][0] - self._clock.monotonic()
                    if wait_s <= 0:
                        due_s, _, key, job = heapq.heappop(self._jobs)
                        if not key[0]:
                            return job
                        if self._waiting.get(key) == due_s:
                            del self._waiting[key]
                            return job
                        continue  # replaced by an earlier one
                    self._changed.wait(min(wait_s, 60.0))
                else:
                    self._changed.wait()
            return None
