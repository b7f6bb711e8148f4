"""One thread that runs the application's callbacks, in the order in which the requests were completed.

A callback may be ``async``. What it returns is awaited before the next one runs: on the event loop that ran
where the callback was given, since the objects of an asyncio application belong to that loop; else on a loop
of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import wait
from typing import TypeVar

from nearsight.common.errors import Cancelled
from nearsight.common.logging import get_logger

T = TypeVar("T")

Callback = Callable[[T], Awaitable[object] | None]
"""What an application gives; plain or ``async``."""
Job = Callable[[], object]
"""What it returns is awaited if it can be."""

_LOOP_CHECK_S = 0.2
"""How soon it is noticed that an event loop was closed without finishing a callback."""

_log = get_logger("device.callbacks")


def running_loop() -> AbstractEventLoop | None:
    """The event loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def await_result(result: object, loop: AbstractEventLoop | None) -> None:
    """Wait for what a callback returned, if that can be awaited: on ``loop``, or on a new one if None.

    Not to be called in the thread of ``loop``.

    Raises
    ------
    Cancelled
        If the loop is closed before the end.
    Exception
        What the callback raised.
    """
    if not inspect.isawaitable(result):
        return
    coroutine = _awaited(result)
    if loop is None:
        asyncio.run(coroutine)
        return
    try:
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        while not wait([running], _LOOP_CHECK_S).done:
            if loop.is_closed():
                raise RuntimeError("the event loop is closed")
    except RuntimeError as error:
        for left in (coroutine, result):
            if inspect.iscoroutine(left):
                left.close()
        raise Cancelled("the event loop of a callback was closed before the callback ended") from error
    running.result()


async def _awaited(result: Awaitable[object]) -> None:
    await result


class CallbackThread:
    """Runs jobs one after another on a thread of its own.

    The thread starts with the first job. After `close` it ends as soon as nothing waits; a job that comes
    later still runs, on a new short-lived thread, because a request must get its callback even if it lost
    the race with ``close``. At no time are there two threads.
    """

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, AbstractEventLoop | None]] = deque()
        self._runs_on: AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job, loop: AbstractEventLoop | None = None) -> None:
        """Run ``job`` after all jobs submitted before; what it returns is awaited on ``loop``."""
        with self._changed:
            self._jobs.append((job, loop))
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
            Whether everything has run. Called from within a job, or in the thread of an event loop on which
            one is to be awaited, it cannot wait: False.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            own = running_loop()
            loops = {self._runs_on, *(loop for _, loop in self._jobs)}
            if threading.current_thread() is self._thread or (own is not None and own in loops):
                return False
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                await_result(job(), self._runs_on)
            # The application's code may raise anything, `sys.exit` included; others still get theirs.
            except BaseException:  # noqa: BLE001
                _log.exception("a callback raised")

    def _next(self) -> Job | None:
        with self._changed:
            self._runs_on = None
            self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
            if self._jobs:
                job, self._runs_on = self._jobs.popleft()
                return job
            self._thread = None
            self._changed.notify_all()
            return None
