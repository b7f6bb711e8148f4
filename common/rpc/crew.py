"""The threads of a server: each waits for requests, receives them and runs handlers.

A request is served by the thread that received it, without a hand-over. There is one thread more than may run
handlers at once: while all others are busy, it goes on receiving, so that what cannot be served in time is
refused in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import AdmissionQueue, Refused
from nearsight.common.rpc.poller import Poller
from nearsight.common.rpc.served_call import ServedCall
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.waker import Waker


class Source(Protocol):
    """Where requests come from."""

    def filenos(self) -> list[int]:
        """Descriptors that say when to look."""

    def look(self, ready: Sequence[int]) -> None:
        """Take what has arrived to the crew's queue; several threads may look at once."""


class Crew:
    """A bounded queue and the threads that serve it.

    Parameters
    ----------
    name : str
        Of the threads.
    workers : int
        Handlers that may run at once.
    settings : ServerSettings
        The queue's limits.
    clock : Clock
        Time of the queue.
    run : callable
        Serves a call.
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
        self._name = name
        self._workers = workers
        self._clock = clock
        self._run = run
        self._refuse = refuse
        self._log = get_logger("rpc.crew")
        self._lock = threading.Lock()
        self._queue: AdmissionQueue[ServedCall] = AdmissionQueue(
            limit=settings.queue_limit,
            timeout_s=settings.queue_timeout_s,
            newest_limit=settings.newest_wins_limit,
        )
        self._busy = 0
        self._ended = False
        self._source: Source | None = None
        self._work = Waker()
        self._end = Waker()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._queue)

    def start(self, source: Source | None) -> None:
        """Start the threads."""
        self._source = source
        count = self._workers + (1 if source else 0)
        self._threads = [
            threading.Thread(target=self._loop, name=f"rpc-{self._name}-{index}", daemon=True)
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, call: ServedCall, stream: Hashable) -> None:
        """Queue a call, or refuse it. A thread of the crew goes on with `_next`, others `signal`."""
        with self._lock:
            refused = self._queue.offer(
                call,
                now_s=call.arrived_s,
                deadline_s=call.context.deadline.at_s,
                stream=stream,
                idle=self._workers - self._busy,
            )
        self._refuse_all(refused)

    def signal(self) -> None:
        """Wake a thread to serve the queue."""
        self._work.wake()

    def sweep(self, now_s: float) -> None:
        """Refuse the calls that have waited for too long."""
        if not len(self._queue):
            return
        with self._lock:
            refused = self._queue.sweep(now_s)
        self._refuse_all(refused)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the threads. One that is stuck in a handler is left behind and reported."""
        self._ended = True
        self._end.wake()
        for thread in self._threads:
            thread.join(timeout_s)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        if stuck:
            self._log.warning("handlers do not end; they are left behind", threads=stuck)
        else:
            self._work.close()
            self._end.close()

    def _loop(self) -> None:
        filenos = self._source.filenos() if self._source else []
        poller = Poller([*filenos, self._work.fileno()], [self._end.fileno()])
        served = False
        while not self._ended:
            try:
                call = self._next(served)
                served = call is not None
                if call is not None:
                    self._run(call)
                else:
                    self._wait(poller)
            except Exception:  # noqa: BLE001  # a bug around one call must not end the thread
                self._log.exception("a call could not be served")
        poller.close()

    def _wait(self, poller: Poller) -> None:
        ready = poller.wait()
        if self._work.fileno() in ready:
            self._work.clear()
        if self._source is not None:
            self._source.look(ready)

    def _next(self, served: bool) -> ServedCall | None:
        """The next call to serve, if this thread may; ``served``: it has just served one."""
        with self._lock:
            self._busy -= served
            if self._busy >= self._workers:
                return None
            call, refused = self._queue.take(self._clock.monotonic())
            self._busy += call is not None
            more = len(self._queue) > 0 and self._busy < self._workers
        if more:
            self.signal()
        if refused:
            self._refuse_all(refused)
        return call

    def _refuse_all(self, refused: list[Refused[ServedCall]]) -> None:
        for item in refused:
            self._refuse(item.item, item.error)
