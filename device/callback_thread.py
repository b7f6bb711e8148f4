"""One thread that runs the application's callbacks, in the order in which the requests were completed.

A callback may be ``async``. Its awaitable is awaited before the next callback runs. This happens on the event
loop of the thread that passed the callback, because the objects of an asyncio application belong to that
loop. Without such a loop, the thread uses its own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import TypeVar

from nearsight.common.errors import Cancelled
from nearsight.common.logging import get_logger

T = TypeVar("T")

Callback = Callable[[T], Awaitable[object] | None]
"""A callback of the application; plain or ``async``."""
Job = Callable[[], object]
"""A function without arguments; its result is awaited if it is awaitable."""

_LOOP_CHECK_S = 0.2
"""Interval of the check whether an event loop was closed before it finished a callback."""

_own_loop = threading.local()
"""Its attribute ``runs`` is True in a thread in which `await_result` runs a new loop."""

_log = get_logger("device.callbacks")


def running_loop() -> AbstractEventLoop | None:
    """The application's event loop that runs in this thread; None if there is none.

    A new loop of `await_result` does not count, because it ends with the callback that it runs.
    """
    if getattr(_own_loop, "runs", False):
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def await_result(result: object, loop: AbstractEventLoop | None) -> None:
    """Wait for the result of a callback if it is awaitable: on ``loop``, or on a new loop if None.

    Must not be called in the thread of ``loop``.

    Raises
    ------
    Cancelled
        If the loop is closed before the end.
    CancelledError
        If the task is cancelled, as all tasks are when ``asyncio.run`` ends.
    Exception
        Any exception of the callback.
    """
    if not inspect.isawaitable(result):
        return
    coroutine = _awaited(result)
    if loop is None:
        _own_loop.runs = True
        try:
            asyncio.run(coroutine)
        finally:
            _own_loop.runs = False
        return
    try:
        running = asyncio.run_coroutine_threadsafe(coroutine, loop)
        while not wait([running], _LOOP_CHECK_S).done:
            if loop.is_closed():
                raise RuntimeError("the event loop is closed")
    except RuntimeError as error:
        coroutine.close()
        _abandon(result)
        raise Cancelled("the event loop of a callback was closed before the callback ended") from error
    try:
        running.result()
    except CancelledError:
        _abandon(result)
        raise


def _abandon(result: object) -> None:
    """Close a coroutine that may not have begun, which Python would report."""
    if inspect.iscoroutine(result):
        result.close()


async def _awaited(result: Awaitable[object]) -> None:
    await result


class CallbackThread:
    """Runs jobs one after another on its own thread.

    The thread starts with the first job. After `close` it ends as soon as no job waits. A later job still
    runs, on a new short-lived thread, because a request must get its callback even if it was completed during
    ``close``. There are never two threads at the same time.
    """

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, AbstractEventLoop | None]] = deque()
        self._awaits_on: AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job, loop: AbstractEventLoop | None = None) -> None:
        """Run ``job`` after all jobs submitted before; an awaitable result is awaited on ``loop``."""
        with self._changed:
            self._jobs.append((job, loop))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="nearsight-callbacks", daemon=True)
                with suppress(RuntimeError):  # while the program exits, no thread can start: `close` runs it
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """End the thread after all jobs have run, and wait for that.

        Parameters
        ----------
        timeout_s : float
            Maximum wait for running and queued jobs.

        Returns
        -------
        bool
            Whether all jobs have run. False at once if called from a job. False in the thread of an event
            loop as soon as a result is awaited on that loop: it cannot wait there.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            own = running_loop()
            if threading.current_thread() is self._thread:
                return False
            if left := self._thread is None and bool(self._jobs):
                self._thread = threading.current_thread()
        if left:
            self._run()
        with self._changed:
            self._changed.wait_for(
                lambda: self._thread is None or (own is not None and self._awaits_on is own), timeout_s
            )
            return self._thread is None

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            self._execute(*entry)
            del entry  # otherwise it keeps its objects in memory until the next job

    def _execute(self, job: Job, loop: AbstractEventLoop | None) -> None:
        try:
            result = job()
            if inspect.isawaitable(result):
                with self._changed:
                    self._awaits_on = loop
                    self._changed.notify_all()
            await_result(result, loop)
        except (CancelledError, asyncio.CancelledError):
            _log.warning("a callback was cancelled")
        # Application code may raise anything, also `SystemExit`; later callbacks must still run.
        except BaseException:  # noqa: BLE001
            _log.exception("a callback raised")

    def _next(self) -> tuple[Job, AbstractEventLoop | None] | None:
        with self._changed:
            self._awaits_on = None
            self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
            if self._jobs:
                return self._jobs.popleft()
            self._thread = None
            self._changed.notify_all()
            return None
