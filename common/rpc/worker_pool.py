"""The threads of a server: each waits for requests, receives them and runs handlers.

A request is served by the thread that received it, without a hand-over. There is one thread more than may run
handlers at once: while all others are busy, it goes on receiving, so that what cannot be served in time is
refused in time.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import AdmissionQueue, Sender
from nearsight.common.rpc.envelope import Buffer, Hop, Request
from nearsight.common.rpc.service import CallContext, Endpoint
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import Waker

PAUSE_S = 0.02
"""Between two looks at what arrived while all workers are busy: each look takes the interpreter from them."""


@dataclass(slots=True, eq=False)
class ServedCall:
    """A request that was admitted, with its times.

    Attributes
    ----------
    request : Request
        As it arrived.
    endpoint : Endpoint
        Its method.
    context : CallContext
        What its handler sees.
    reply : callable
        Sends the frames of the answer.
    sender : Sender
        Whose turn it takes.
    arrived_s : float
        When it arrived.
    started_s : float or None
        When a handler began to work on it.
    """

    request: Request
    endpoint: Endpoint
    context: CallContext
    reply: Callable[[Sequence[Buffer]], None]
    sender: Sender
    arrived_s: float
    started_s: float | None = None

    def hop(self, tier: str, now_s: float, sent_bytes: int = 0) -> Hop:
        """What this server spent on the call so far."""
        started_s = now_s if self.started_s is None else self.started_s
        next_tier_ms = self.context.next_tier_ms
        return Hop(
            tier,
            (started_s - self.arrived_s) * 1000.0,
            max(0.0, (now_s - started_s) * 1000.0 - next_tier_ms),
            next_tier_ms,
            self.request.size_bytes,
            sent_bytes,
        )


class WorkerPool:
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
        Answers a call that will not be served, in any thread; takes the error and the seconds for which a
        further one would fare alike.
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
        self._work = Waker()
        self._end = Waker()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return self._queue.size

    def start(
        self, filenos: Sequence[int] = (), look: Callable[[Collection[int]], None] = lambda _: None
    ) -> None:
        """Start the threads.

        Parameters
        ----------
        filenos : sequence of int
            Descriptors that say when to look for requests; empty where others `offer` all of them.
        look : callable
            Takes the descriptors that are readable and offers what has arrived; several threads may look at
            once.
        """
        for index in range(self._workers + bool(filenos)):
            name = f"rpc-{self._name}-{index}"
            poller = _poller([*filenos, self._work.fileno()], [self._end.fileno()])
            thread = threading.Thread(target=self._loop, args=(poller, look), name=name, daemon=True)
            self._threads.append(thread)
        for thread in self._threads:
            thread.start()

    def offer(self, call: ServedCall) -> None:
        """Queue a call, or refuse it. A thread of the pool goes on with `_next`, others `signal`."""
        with self._lock:
            refused = self._queue.offer(
                call,
                now_s=call.arrived_s,
                deadline_s=call.context.deadline.at_s,
                sender=call.sender,
                idle=self._workers - self._busy,
            )
        for one in refused:
            self._refuse(*one)

    def signal(self) -> None:
        """Wake a thread to serve the queue."""
        self._work.wake()

    def sweep(self, now_s: float) -> None:
        """Refuse the calls that wait for too long, or will."""
        if not (self._queue.size or self._queue.unfit):
            return
        with self._lock:
            refused = self._queue.sweep(now_s)
        for one in refused:
            self._refuse(*one)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the threads. One that is stuck in a handler is left behind and reported."""
        self._stopping.set()
        self._end.wake()
        for thread in self._threads:
            thread.join(timeout_s)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        if stuck:
            self._log.warning("handlers do not end; they are left behind", threads=stuck)
        else:
            self._work.close()
            self._end.close()

    def _loop(self, poller: select.epoll | select.poll, look: Callable[[Collection[int]], None]) -> None:
        work = self._work.fileno()
        call: ServedCall | None = None
        while not self._stopping.is_set():
            try:
                call = self._next(call)
                if call is not None:
                    self._run(call)
                    continue
                if self._busy >= self._workers:
                    self._stopping.wait(PAUSE_S)
                ready = dict(poller.poll())
                if work in ready:
                    self._work.clear()
                look(ready)
            except Exception:  # noqa: BLE001  # a bug around one call must not end the thread
                self._log.exception("a call could not be served")
        if isinstance(poller, select.epoll):  # not left to its frame, which a traceback may keep alive
            poller.close()

    def _next(self, served: ServedCall | None) -> ServedCall | None:
        """The next call to serve, if this thread may; ``served``: the one that it has just served."""
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


def _poller(exclusive: Iterable[int], shared: Iterable[int]) -> select.epoll | select.poll:
    """A poller for one thread: an event wakes one thread of an exclusive descriptor, all of a shared one.

    Linux wakes a single one of the threads that wait on an exclusive descriptor. Elsewhere all wake, and all
    but one find nothing to do: correct, but slower.
    """
    linux = hasattr(select, "epoll")
    poller: select.epoll | select.poll = select.epoll() if linux else select.poll()
    for fileno in exclusive:
        poller.register(fileno, select.EPOLLIN | select.EPOLLEXCLUSIVE if linux else select.POLLIN)
    for fileno in shared:
        poller.register(fileno, select.EPOLLIN if linux else select.POLLIN)
    return poller
