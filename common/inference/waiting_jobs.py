"""Jobs of requests whose network is being loaded: executed after the load, or dropped at their deadline.

A load may take longer than a request waits. A job refers to the data of its request, such as tensors or a
photo. After the answer these do not count for the server's memory limit. Therefore nothing refers to a job
after its deadline, and it is not executed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from nearsight.common.background.futures import completed, flat, pending
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.inference.leases import Absent, Lease, stopping

A = TypeVar("A")

_THREADS = 2


class _Job(NamedTuple):
    execute: Callable[[Lease], Any]
    otherwise: Callable[[], Future[Any]] | None
    outcome: Future[Future[Any]]


class WaitingJobs:
    """Executes jobs on threads of its own when their networks are loaded. Thread-safe.

    Parameters
    ----------
    clock : Clock
        Must run in real time.
    timer : BackgroundWorker
        Ends waits at their deadlines. The caller starts and stops it.

    Attributes
    ----------
    closed : bool
        Whether jobs that have not begun fail.
    """

    def __init__(self, clock: Clock, timer: BackgroundWorker) -> None:
        self.closed = False
        self._clock = clock
        self._timer = timer
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="nearsight-networks")

    def when_loaded(
        self,
        absent: Absent,
        execute: Callable[[Lease], A | Future[A]],
        within_s: float,
        otherwise: Callable[[], Future[A]] | None = None,
    ) -> Future[A]:
        """Execute a job when the network is loaded, on a thread for such jobs; then release the lease.

        Parameters
        ----------
        absent : Absent
        execute : callable
            The job. Returns its result, or a future of it.
        within_s : float
            Time until the deadline [s]. If the job has not begun by then, it is dropped, and the result is
            the error `DeadlineExceeded`.
        otherwise : callable, optional
            Provides the result if the load fails. Default: the error of the load.
        """
        began_s = self._clock.monotonic()
        outcome: Future[Future[A]] = pending()
        waiting = [_Job(execute, otherwise, outcome)]  # emptied by whoever takes the job

        def expire() -> None:
            if (job := _taken(waiting)) is not None:
                job.outcome.set_exception(
                    DeadlineExceeded("the network was not loaded in time", advice="allow more time")
                )

        def loaded(done: Future[Lease]) -> None:
            error = done.exception()
            if error is not None:
                _failed(waiting, error)
                return
            lease = done.result()
            lease.waited_ms = 1e3 * (self._clock.monotonic() - began_s)
            try:
                self._threads.submit(self._run, lease, waiting)
            except RuntimeError:  # closed
                lease.release()
                _failed(waiting, stopping())

        absent.lease.add_done_callback(loaded)
        self._timer.submit(expire, after_s=within_s)
        return flat(outcome)

    def close(self) -> None:
        """Wait for the jobs that have begun."""
        self.closed = True
        self._threads.shutdown()

    def _run(self, lease: Lease, waiting: list[_Job]) -> None:
        with lease:
            job = _taken(waiting)
            if job is None:
                return
            result: Any = None
            error: BaseException | None = None
            try:
                if self.closed:
                    raise stopping()
                result = job.execute(lease)
            except Exception as raised:  # noqa: BLE001  a caller waits for any outcome
                error = raised
        if error is not None:
            job.outcome.set_exception(error)
        else:
            job.outcome.set_result(result if isinstance(result, Future) else completed(result))


def _taken(waiting: list[_Job]) -> _Job | None:
    """Take the job, unless it was taken before. Safe on any thread."""
    try:
        return waiting.pop()
    except IndexError:
        return None


def _failed(waiting: list[_Job], error: BaseException) -> None:
    """Complete a job whose network was not loaded."""
    job = _taken(waiting)
    if job is None:
        return
    if job.otherwise is None:
        job.outcome.set_exception(error)
        return
    try:
        job.outcome.set_result(job.otherwise())
    except NearsightError as refused:
        job.outcome.set_exception(refused.with_traceback(None))
