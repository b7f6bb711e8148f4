"""The threads of a server: each waits for requests, receives them and runs handlers.

A request is served by the thread that received it, without a hand-over. There is one thread more than may run
handlers at once: while all others are busy, it goes on receiving, so that what cannot be served in time is
refused in time.
"""

from __future__ import annotations

import heapq
import select
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol

from google.protobuf.message import Message

from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import AdmissionQueue, Refused
from nearsight.common.rpc.envelope import OK, Buffer, Hop, Request, as_blob, encode_response, size_of
from nearsight.common.rpc.service import CallContext, Endpoint
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import Waker


class Source(Protocol):
    """Where requests come from."""

    def filenos(self) -> list[int]:
        """Descriptors that say when to look."""

    def look(self, ready: Sequence[int]) -> None:
        """Take what has arrived to the pool's queue; several threads may look at once."""


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
        self._log = get_logger("rpc.pool")
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
        """Queue a call, or refuse it. A thread of the pool goes on with `_next`, others `signal`."""
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


class ServedCall:
    """A request that was admitted, with its times.

    Parameters
    ----------
    serial : int
        Unique within the server.
    request : Request
        As it arrived.
    endpoint : Endpoint
        Its method.
    context : CallContext
        What its handler sees.
    reply : callable
        Sends the frames of the answer.
    arrived_s : float
        When it arrived.
    """

    __slots__ = ("_started_s", "arrived_s", "context", "endpoint", "reply", "request", "serial")

    def __init__(
        self,
        serial: int,
        request: Request,
        endpoint: Endpoint,
        context: CallContext,
        reply: Callable[[Sequence[Buffer]], None],
        arrived_s: float,
    ) -> None:
        self.serial = serial
        self.request = request
        self.endpoint = endpoint
        self.context = context
        self.reply = reply
        self.arrived_s = arrived_s
        self._started_s: float | None = None

    def start(self, now_s: float) -> None:
        """The work begins."""
        self._started_s = now_s
        self.context.queue_ms = (now_s - self.arrived_s) * 1000.0

    def hop(self, tier: str, now_s: float, *, sent_bytes: int) -> Hop:
        """What this server spent on the call so far."""
        if self._started_s is None:
            return Hop(tier, (now_s - self.arrived_s) * 1000.0, 0.0, 0.0, self.request.size_bytes, sent_bytes)
        worked_ms = (now_s - self._started_s) * 1000.0
        next_tier_ms = self.context.next_tier_ms
        return Hop(
            tier,
            self.context.queue_ms,
            max(0.0, worked_ms - next_tier_ms),
            next_tier_ms,
            self.request.size_bytes,
            sent_bytes,
        )

    def response_frames(self, tier: str, response: Message, now_s: float) -> tuple[list[Buffer], int]:
        """The frames of the answer, and the bytes of its message and blobs."""
        message = response.SerializeToString()
        blobs = [as_blob(blob) for blob in self.context.response_blobs]
        sent_bytes = len(message) + size_of(blobs)
        hops = [*self.context.hops, self.hop(tier, now_s, sent_bytes=sent_bytes)]
        return encode_response(self.request.request_id, OK, hops, message, blobs), sent_bytes

    def too_late(self) -> DeadlineExceeded:
        """The error of a call whose work did not end in time."""
        return DeadlineExceeded(f"{self.endpoint.method.full_name} did not finish within the time given")


class DeferredCalls:
    """Calls whose handlers returned a future, by deadline; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, ServedCall] = {}
        self._dues: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ServedCall) -> None:
        """An answer is owed."""
        with self._lock:
            self._calls[call.serial] = call
            heapq.heappush(self._dues, (call.context.deadline.at_s, call.serial))

    def discard(self, call: ServedCall) -> None:
        """The answer came."""
        with self._lock:
            self._calls.pop(call.serial, None)
            while self._dues and self._dues[0][1] not in self._calls:
                heapq.heappop(self._dues)

    def expired(self, now_s: float) -> list[ServedCall]:
        """Remove and return the calls whose time is over."""
        late: list[ServedCall] = []
        with self._lock:
            while self._dues and (self._dues[0][0] <= now_s or self._dues[0][1] not in self._calls):
                call = self._calls.pop(heapq.heappop(self._dues)[1], None)
                if call is not None:
                    late.append(call)
        return late


class Poller:
    """What one thread waits for.

    Linux wakes a single one of the threads that wait on an exclusive descriptor. Elsewhere all wake, and all
    but one find nothing to do: correct, but slower.

    Parameters
    ----------
    exclusive : iterable of int
        Descriptors that several threads wait on, one of which is enough for an event.
    shared : iterable of int
        Descriptors whose events are for every thread.
    """

    def __init__(self, exclusive: Iterable[int], shared: Iterable[int]) -> None:
        linux = hasattr(select, "epoll")
        self._poller: select.epoll | select.poll = select.epoll() if linux else select.poll()
        readable = select.EPOLLIN if linux else select.POLLIN
        for fileno in exclusive:
            self._poller.register(fileno, readable | select.EPOLLEXCLUSIVE if linux else readable)
        for fileno in shared:
            self._poller.register(fileno, readable)

    def wait(self) -> list[int]:
        """The descriptors that are readable, once some are."""
        return [fileno for fileno, _ in self._poller.poll()]

    def close(self) -> None:
        """Give the descriptor back."""
        close = getattr(self._poller, "close", None)
        if close is not None:
            close()
