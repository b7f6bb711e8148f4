"""The threads of a server: each waits for requests, receives them and runs handlers.

A request is served by the thread that received it, without a thread switch. There is one thread more than the
number of handlers that may run at once. While all others are busy it continues to receive, so that requests
that cannot be served in time are refused in time.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Mapping

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import AdmissionQueue
from nearsight.common.rpc.answers import ServedCall
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import Waker

PAUSE_S = 0.02
"""Pause before each receiving while all workers are busy, because receiving takes the interpreter from
them."""
_EVENTS = 16
"""Events that a thread takes at once; other threads may take the rest."""

_POLLS = 64
"""Consecutive polls before the next pause."""


class WorkerPool:
    """A bounded queue and the threads that serve it.

    Parameters
    ----------
    name : str
        Prefix of the thread names.
    workers : int
        Maximum number of handlers that run at once.
    settings : ServerSettings
        The queue's limits.
    clock : Clock
        Time of the queue.
    run : callable
        Serves a call.
    refuse : callable
        Answers a call that will not be served, in any thread; takes the error and the predicted time until
        calls are accepted again [s].
    """

    def __init__(
        self,
        name: str,
        workers: int,
        settings: ServerSettings,
        clock: Clock,
        run: Callable[[ServedCall], None],
        refuse: Callable[[ServedCall, NearsightError, float], None],
    ) -> None:
        self._name = name
        self._workers = workers
        self._clock = clock
        self._run = run
        self._refuse = refuse
        self._log = get_logger("rpc.worker_pool")
        self._lock = threading.Lock()
        self._queue: AdmissionQueue[ServedCall] = AdmissionQueue(settings, workers)
        self._busy = 0
        self._stopping = threading.Event()
        self.poller = select.epoll()
        """The poller of the threads; each event goes to one thread."""
        self._work = Waker()
        self._end = Waker()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return self._queue.size

    def start(self, receive: Callable[[Mapping[int, int]], None] | None = None) -> None:
        """Start the threads.

        Parameters
        ----------
        receive : callable, optional
            Takes the events of the descriptors in ``poller``, and offers the received requests; several
            threads may call it at once. None if other code calls `offer` for all requests.
        """
        # The edge-triggered event reaches one thread; the end reaches all.
        self.poller.register(self._work.descriptor, select.EPOLLIN | select.EPOLLET)
        self.poller.register(self._end.descriptor, select.EPOLLIN)
        for index in range(self._workers + (receive is not None)):
            name = f"rpc-{self._name}-{index}"
            thread = threading.Thread(target=self._loop, args=(receive,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def offer(self, call: ServedCall) -> bool:
        """Queue a call, or refuse it; returns whether a call has to wait, so that `sweep` is needed.

        Threads of the pool then call `_next`; other threads call `signal`.
        """
        with self._lock:
            idle = self._workers - self._busy
            refused = self._queue.offer(
                call,
                now_s=call.arrived_s,
                deadline_s=call.context.deadline.at_s,
                sender=call.sender,
                idle=idle,
            )
            waits = self._queue.size > idle
        for one in refused:
            self._refuse(*one)
        return waits

    def signal(self) -> None:
        """Wake a thread to serve the queue."""
        self._work.wake()

    def sweep(self, now_s: float) -> None:
        """Refuse the calls that have waited too long, or are predicted to."""
        if not (self._queue.size or self._queue.displaced):
            return
        with self._lock:
            refused = self._queue.sweep(now_s)
        for one in refused:
            self._refuse(*one)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the threads within ``timeout_s``. Threads that are then blocked in handlers are logged."""
        self._stopping.set()
        self._end.wake()
        until_s = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - self._clock.monotonic()))
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        if stuck:
            self._log.warning("handlers did not end in time", threads=stuck)
        else:
            self.poller.close()
            self._work.close()
            self._end.close()

    def _loop(self, receive: Callable[[Mapping[int, int]], None] | None) -> None:
        call: ServedCall | None = None
        while not self._stopping.is_set():
            try:
                call = self._next(call)
                if call is not None:
                    self._run(call)
                    continue
                if self._busy >= self._workers:
                    self._stopping.wait(PAUSE_S)
                ready = dict(self.poller.poll(maxevents=_EVENTS))
                for polls in range(1, _POLLS + 1):
                    if ready.pop(self._work.descriptor, 0):
                        self._work.clear()
                    if receive is not None:
                        receive(ready)
                    if polls == _POLLS or self._busy < self._workers:
                        # Before the next poll: an event is delivered once, so its receiver must handle it.
                        break
                    ready = dict(self.poller.poll(0, _EVENTS))  # no handler may run now
                    if not ready:
                        break
            except Exception:  # noqa: BLE001  # a bug in one call must not end the thread
                self._log.exception("a call could not be served")

    def _next(self, served: ServedCall | None) -> ServedCall | None:
        """The next call to serve, if this thread may; ``served`` is the call that it has just served."""
        now_s = self._clock.monotonic()
        with self._lock:
            if served is not None:
                self._busy -= 1
                self._queue.served(now_s - (served.started_s or now_s))
            if self._busy >= self._workers:
                return None
            call, refused = self._queue.take(now_s)
            self._busy += call is not None
            more = self._queue.size > 0 and self._busy < self._workers
        if more:
            self.signal()
        for one in refused:
            self._refuse(*one)
        return call
