"""The serving side: requests in, handlers run by workers, one answer for each request, in time.

The threads of a `WorkerPool` receive requests, run the handlers and send the answers; a `Timekeeper` looks
after what waits. Every request that was read gets exactly one answer, whatever happens to it on the way.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Protocol

from google.protobuf.message import Message

from nearsight.common.clock import SYSTEM_CLOCK, Clock, Deadline
from nearsight.common.errors import (
    InvalidMessage,
    NearsightError,
    Overloaded,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.logging import get_logger
from nearsight.common.rpc.envelope import (
    Buffer,
    Request,
    decode_request,
    encode_response,
    outcome_of,
    salvage_request_id,
    size_of,
)
from nearsight.common.rpc.listener import BATCH, Arrival, Listener
from nearsight.common.rpc.security import ServerSecurity, require_security
from nearsight.common.rpc.service import CallContext, Dispatcher, Service
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import check_endpoint
from nearsight.common.rpc.worker_pool import DeferredCalls, ServedCall, WorkerPool

__all__ = ["RpcServer", "ServerObserver", "ServerSettings"]

REFRESH_S = 1.0
"""How often a changed folder of allowed clients is noticed by connections that exist."""


class ServerObserver(Protocol):
    """Told of every call that was answered: the hook for metrics."""

    def on_call(
        self,
        service: str,
        method: str,
        code: StatusCode,
        queue_ms: float,
        compute_ms: float,
        received_bytes: int,
        sent_bytes: int,
    ) -> None:
        """A call ended. ``service`` and ``method`` are empty if the request named none of this server."""


class RpcServer:
    """Serves services on one address.

    Parameters
    ----------
    services : sequence of Service
        What to serve.
    tier : str
        Name of this tier in the hops of responses.
    settings : ServerSettings
        Address and limits.
    security : ServerSecurity or None
        Keys; required beyond loopback.
    clock : Clock
        Times of queue and deadlines.
    observer : ServerObserver or None
        Told of every call.
    arrived : callable, optional
        Takes the full name of the method of each call that arrives, before anybody works on it or turns it
        away; must not wait.

    Raises
    ------
    TypeError
        If a service lacks a handler.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        tier: str,
        settings: ServerSettings,
        security: ServerSecurity | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: ServerObserver | None = None,
        arrived: Callable[[str], None] | None = None,
    ) -> None:
        self._dispatcher = Dispatcher(services)
        self._tier = tier
        self._settings = settings
        self._security = security
        self._clock = clock
        self._observer = observer
        self._arrived = arrived
        self._log = get_logger("rpc.server")
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._live: dict[int, ServedCall] = {}
        self._serials = itertools.count()
        self._deferred = DeferredCalls()
        self._refresh_at_s = -math.inf
        self._pool = WorkerPool("worker", settings.workers, settings, clock, self._run_call, self._fail)
        self._own_pool = WorkerPool("own-worker", 1, settings, clock, self._run_call, self._fail)
        self._pools = [self._pool, *([self._own_pool] if self._dispatcher.wants_own_worker else [])]
        self._timekeeper = Timekeeper(self._look_after_times)
        self._listener: Listener | None = None
        self._started = False

    def start(self) -> None:
        """Listen and serve.

        Raises
        ------
        AddressInUse
            If the address is taken.
        ConfigurationError
            If the address cannot be listened on or reaches beyond loopback without keys, or a key cannot be
            read.
        """
        listen = check_endpoint(self._settings.listen)
        require_security(listen, self._security)
        if not listen.startswith("inproc://"):
            self._listener = Listener(self._settings, self._security, self._pool.signal)
        self._started = True
        self._timekeeper.start()
        for pool in self._pools:
            pool.start(self if pool is self._pool and self._listener else None)
        self._log.info(
            "serving",
            endpoint=self.endpoint,
            services=self._dispatcher.service_names,
            curve=self._security is not None,
        )

    @property
    def endpoint(self) -> str:
        """The address that clients connect to, its port resolved."""
        return self._listener.endpoint if self._listener else self._settings.listen

    @property
    def serving(self) -> bool:
        """Whether requests are taken."""
        return self._started and not self._stopping.is_set()

    @property
    def queue_length(self) -> int:
        """Requests that wait for a worker."""
        return sum(len(pool) for pool in self._pools)

    def stop(self, grace_s: float = 2.0) -> None:
        """Take no more requests, finish those that were taken, and end; safe to call twice.

        Parameters
        ----------
        grace_s : float
            How long requests may still take. What is not answered by then is answered UNAVAILABLE.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        if not self._started:
            return
        # The address stays bound until the end: unbinding would cut the connections that wait for answers.
        self._wait_for_answers(grace_s)
        for call in list(self._live.values()):
            self._fail(call, _stopping_error())
        self._finished.set()
        self._timekeeper.stop()
        for pool in self._pools:
            pool.stop()
        if self._listener is not None:
            self._listener.close()
        self._log.info("stopped", endpoint=self.endpoint)

    def __enter__(self) -> RpcServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def submit(
        self,
        frames: Sequence[Buffer],
        reply: Callable[[Sequence[Buffer]], None],
        *,
        peer: Hashable,
        peer_key: str | None = None,
    ) -> None:
        """Take one request: the entry of every transport.

        Parameters
        ----------
        frames : sequence of buffers
            As they arrived; anything.
        reply : callable
            Takes the frames of the answer; called exactly once, from any thread.
        peer : hashable
            The connection that the request came from.
        peer_key : str or None
            Public key that the peer proved to own.
        """
        pool = self._accept(frames, reply, peer, peer_key)
        if pool is not None:
            pool.signal()

    def _accept(
        self,
        frames: Sequence[Buffer],
        reply: Callable[[Sequence[Buffer]], None],
        peer: Hashable,
        peer_key: str | None,
    ) -> WorkerPool | None:
        """Queue a request, or answer it with an error; returns the pool in whose queue it is."""
        arrived_s = self._clock.monotonic()
        try:
            request = decode_request(frames)
        except InvalidMessage as error:
            self._reject(salvage_request_id(frames), "", error, size_of(frames), reply)
            return None
        try:
            return self._admit(request, arrived_s, reply, peer, peer_key)
        except NearsightError as error:
            self._reject(request.request_id, request.trace_id, error, request.size_bytes, reply)
            return None

    def _admit(
        self,
        request: Request,
        arrived_s: float,
        reply: Callable[[Sequence[Buffer]], None],
        peer: Hashable,
        peer_key: str | None,
    ) -> WorkerPool:
        endpoint = self._dispatcher.find(request.service, request.method)
        if self._arrived is not None:
            self._arrived(endpoint.method.full_name)
        if self._stopping.is_set():
            raise _stopping_error()
        if request.size_bytes > self._settings.max_message_bytes:
            raise _too_large("request", request.size_bytes, self._settings.max_message_bytes)
        if len(self._deferred) >= self._settings.deferred_limit:
            raise Overloaded(f"{len(self._deferred)} answers are still owed", advice="try again later")
        context = CallContext(
            deadline=Deadline.after(request.time_left_s, self._clock),
            client_id=request.client_id,
            catalogue=request.catalogue,
            trace_id=request.trace_id,
            peer_key=peer_key,
            blobs=request.blobs,
            stopping=self._finished.is_set,
        )
        serial = next(self._serials)
        call = ServedCall(serial, request, endpoint, context, reply, arrived_s)
        self._live[serial] = call
        stream = None
        if request.newest_wins and endpoint.newest_wins:
            stream = (peer_key or peer, request.client_id, endpoint.method.full_name)
        pool = self._own_pool if endpoint.own_worker else self._pool
        pool.offer(call, stream)
        self._timekeeper.notice()
        return pool

    def _run_call(self, call: ServedCall) -> None:
        """Run a handler; in a worker."""
        call.start(self._clock.monotonic())
        try:
            result = call.endpoint.handler(call.endpoint.parse(call.request.message), call.context)
        except Exception as error:  # noqa: BLE001  # a bug in a handler must not end the worker
            self._fail(call, error)
            return
        if isinstance(result, Future):
            self._deferred.add(call)
            result.add_done_callback(lambda future: self._finish_deferred(call, future))
        else:
            self._finish(call, result)

    def _finish_deferred(self, call: ServedCall, future: Future[Message]) -> None:
        self._deferred.discard(call)
        try:
            result = future.result(timeout=0)
        except BaseException as error:  # noqa: BLE001  # whatever the handler's future holds, cancellation too
            self._fail(call, error)
        else:
            self._finish(call, result)

    def _finish(self, call: ServedCall, result: object) -> None:
        """Answer with what the handler returned."""
        if not isinstance(result, call.endpoint.response_class):
            expected = call.endpoint.response_class.__name__
            self._fail(call, TypeError(f"the handler returned {type(result).__name__}, not {expected}"))
            return
        if call.context.deadline.expired():
            self._fail(call, call.too_late())
            return
        try:
            frames, sent_bytes = call.response_frames(self._tier, result, self._clock.monotonic())
            if sent_bytes > self._settings.max_message_bytes:
                raise _too_large("response", sent_bytes, self._settings.max_message_bytes)
        except Exception as error:  # noqa: BLE001  # blobs or hops of a wrong kind: a bug in a handler
            self._fail(call, error)
            return
        self._answer(call, StatusCode.OK, frames, sent_bytes)

    def _fail(self, call: ServedCall, error: BaseException) -> None:
        """Answer with an error."""
        outcome = outcome_of(error, call.context.trace_id)
        if outcome.code is StatusCode.INTERNAL:
            self._log.error(
                "a call failed inside the server",
                method=call.endpoint.method.full_name,
                trace_id=call.context.trace_id,
                client=call.context.client_id,
                exc_info=error,
            )
        hop = call.hop(self._tier, self._clock.monotonic(), sent_bytes=0)
        frames = encode_response(call.request.request_id, outcome, [*call.context.hops, hop])
        self._answer(call, outcome.code, frames, 0)

    def _answer(self, call: ServedCall, code: StatusCode, frames: Sequence[Buffer], sent_bytes: int) -> None:
        # The first to take the call off the table answers it; its deadline may race with its handler.
        if self._live.pop(call.serial, None) is None:
            return
        call.reply(frames)
        if self._observer is not None:
            hop = call.hop(self._tier, self._clock.monotonic(), sent_bytes=sent_bytes)
            method = call.endpoint.method
            self._observer.on_call(
                call.endpoint.service_name,
                method.name,
                code,
                hop.queue_ms,
                hop.compute_ms,
                hop.received_bytes,
                sent_bytes,
            )

    def _reject(
        self,
        request_id: int,
        trace_id: str,
        error: NearsightError,
        received_bytes: int,
        reply: Callable[[Sequence[Buffer]], None],
    ) -> None:
        """Answer a request that did not become a call."""
        self._log.info("request rejected", reason=error.message, trace_id=trace_id)
        outcome = outcome_of(error, trace_id)
        reply(encode_response(request_id, outcome))
        if self._observer is not None:
            self._observer.on_call("", "", outcome.code, 0.0, 0.0, received_bytes, 0)

    def filenos(self) -> list[int]:
        """Descriptors that say when to `look`."""
        return self._listener.filenos() if self._listener else []

    def look(self, ready: Sequence[int]) -> None:
        """Receive what has arrived; threads of the pool do."""
        listener = self._listener
        if listener is None:
            return
        listener.admit(ready)
        more = True
        while more:
            arrivals = listener.receive()
            for arrival in arrivals:
                self._take(listener, arrival)
            more = len(arrivals) == BATCH
            if more:  # this thread goes on receiving; others may begin to serve
                self._pool.signal()

    def _take(self, listener: Listener, arrival: Arrival) -> None:
        identity = arrival.identity

        def reply(frames: Sequence[Buffer]) -> None:
            listener.send(identity, frames)

        if not arrival.allowed:
            error = Unauthenticated(
                "this key is not allowed any more", advice="ask for it to be allowed again"
            )
            self._reject(salvage_request_id(arrival.frames), "", error, size_of(arrival.frames), reply)
            return
        pool = self._accept(arrival.frames, reply, identity, arrival.peer_key)
        if pool is self._own_pool:  # the pool that receives looks into its own queue next
            pool.signal()

    def _look_after_times(self) -> bool:
        """Answer what has waited for too long; returns whether anything is still to be answered."""
        now_s = self._clock.monotonic()
        for pool in self._pools:
            pool.sweep(now_s)
        for call in self._deferred.expired(now_s):
            self._fail(call, call.too_late())
        if self._listener is not None and now_s >= self._refresh_at_s:
            self._listener.refresh_allowed()
            self._refresh_at_s = now_s + REFRESH_S
        return bool(self._live)

    def _wait_for_answers(self, grace_s: float) -> None:
        end = threading.Event()
        until_s = self._clock.monotonic() + grace_s
        while self._live and self._clock.monotonic() < until_s:
            end.wait(0.01)


def _stopping_error() -> Unavailable:
    return Unavailable("the server is stopping", advice="try again in a moment")


def _too_large(what: str, size_bytes: int, limit_bytes: int) -> InvalidMessage:
    return InvalidMessage(
        f"the {what} has {size_bytes} bytes, more than the limit of {limit_bytes}",
        advice="ask for less at once, or raise max_message_bytes on both sides",
    )


TICK_S = 0.05
"""How exactly times are kept."""

IDLE_TICKS = 20
"""Ticks without work before the thread sleeps, so that a trickle of work need not wake it each time."""


class Timekeeper:
    """Calls a function every tick while there is work.

    Parameters
    ----------
    tick : callable
        Looks after the times; returns whether there is still work.
    """

    def __init__(self, tick: Callable[[], bool]) -> None:
        self._tick = tick
        self._log = get_logger("rpc.timekeeper")
        self._asleep = False
        self._ended = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="rpc-time", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notice(self) -> None:
        """There is work; any thread may say so, and it costs nothing while the keeper is awake."""
        if self._asleep:
            self._woken.set()

    def stop(self) -> None:
        """End the thread."""
        self._ended = True
        self._woken.set()
        self._thread.join()

    def _loop(self) -> None:
        idle_ticks = 0
        while not self._ended:
            self._woken.clear()
            # Asleep is said before the last look: whoever adds work after the look wakes us.
            self._asleep = idle_ticks >= IDLE_TICKS
            idle_ticks = 0 if self._look() else idle_ticks + 1
            self._woken.wait(None if self._asleep and idle_ticks else TICK_S)
            self._asleep = False

    def _look(self) -> bool:
        try:
            return self._tick()
        except Exception:  # noqa: BLE001  # a bug in one look must not stop the clock
            self._log.exception("times could not be looked after")
            return True
