"""One thread that runs the application's callbacks, in the order in which the requests were completed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from nearsight.common.logging import get_logger

Job = Callable[[], None]

_log = get_logger("device.callbacks")


class CallbackThread:
    """Runs jobs one after another on a thread of its own.

    The thread starts with the first job. After `close` it ends as soon as nothing waits; a job that comes
    later still runs, on a new short-lived thread, because a request must get its callback even if it lost
    the race with ``close``. At no time are there two threads.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run ``job`` after all jobs submitted before."""
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearsight-callbacks", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Let the thread end when all jobs have run, and wait for that.

        Parameters
        ----------
        timeout_s : float
            The longest to wait for a job that does not return.

        Returns
        -------
        bool
            Whether everything has run. Called from within a job it cannot wait for itself: False.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if threading.current_thread() is self._thread:
                return False
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001  the application's code may raise anything; others still get theirs
                _log.exception("a callback raised")

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
            if self._jobs:
                return self._jobs.popleft()
            self._thread = None
            self._changed.notify_all()
            return None
