"""Workers and the queue before them: the threads around an `AdmissionQueue`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import AdmissionQueue, Refused
from nearsight.common.rpc.served_call import ServedCall
from nearsight.common.rpc.settings import ServerSettings

_WORK, _END = True, False


class Lane:
    """A bounded queue and the workers that serve it.

    Parameters
    ----------
    name : str
        Of the threads.
    workers : int
        Their number.
    settings : ServerSettings
        The queue's limits.
    clock : Clock
        Time of the queue.
    run : callable
        Serves a call, in a worker.
    refuse : callable
        Answers a call that will not be served, in any thread.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        settings: ServerSettings,
        clock: Clock,
        run: Callable[[ServedCall], None],
        refuse: Callable[[ServedCall, NearsightError], None],
    ) -> None:
        self._clock = clock
        self._run = run
        self._refuse = refuse
        self._log = get_logger("rpc.lane")
        self._lock = threading.Lock()
        self._queue: AdmissionQueue[ServedCall] = AdmissionQueue(
            limit=settings.queue_limit,
            timeout_s=settings.queue_timeout_s,
            newest_limit=settings.newest_wins_limit,
        )
        # One token per admitted call: a worker waits in C, which costs less than a condition variable.
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"rpc-{name}-{index}", daemon=True)
            for index in range(workers)
        ]

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def offer(self, call: ServedCall, stream: Hashable) -> None:
        """Queue a call, or refuse it."""
        with self._lock:
            refused = self._queue.offer(
                call, now_s=call.arrived_s, deadline_s=call.context.deadline.at_s, stream=stream
            )
        self._tokens.put(_WORK)
        self._refuse_all(refused)

    def sweep(self, now_s: float) -> None:
        """Refuse the calls that have waited for too long."""
        if not len(self._queue):
            return
        with self._lock:
            refused = self._queue.sweep(now_s)
        self._refuse_all(refused)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the workers. One that is stuck in a handler is left behind and reported."""
        for _ in self._threads:
            self._tokens.put(_END)
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                self._log.warning("a handler does not end; it is left behind", thread=thread.name)

    def _work(self) -> None:
        while self._tokens.get() is _WORK:
            with self._lock:
                call, refused = self._queue.take(self._clock.monotonic())
            try:
                self._refuse_all(refused)
                if call is not None:
                    self._run(call)
            except Exception:  # noqa: BLE001  # a bug around one call must not end the worker
                self._log.exception("a call could not be served")

    def _refuse_all(self, refused: list[Refused[ServedCall]]) -> None:
        for item in refused:
            self._refuse(item.item, item.error)
