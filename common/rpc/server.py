"""The serving side: receives requests, runs handlers in workers, and answers each request once, in time.

The threads of a `WorkerPool` receive requests, run the handlers and send the answers. A background thread
handles timeouts. Every request that was read gets exactly one answer, also after errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InvalidMessage, NearsightError, Overloaded, Unauthenticated, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import Sender
from nearsight.common.rpc.allow_list import LOCAL, REFRESH_S, Access, AllowList, Caller
from nearsight.common.rpc.answers import Answers, ServedCall, too_large
from nearsight.common.rpc.endpoints import check_endpoint
from nearsight.common.rpc.envelope import (
    Buffer,
    Request,
    clamp_s,
    decode_request,
    encode_response,
    salvage_request_id,
)
from nearsight.common.rpc.listener import Listener
from nearsight.common.rpc.security import ServerSecurity, require_security
from nearsight.common.rpc.service import CallContext, Deadline, Service, endpoints_of, no_such_method
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.worker_pool import WorkerPool
from nearsight.common.rpc.zmtp import Connection

if TYPE_CHECKING:
    from nearsight.common.metrics import DaemonMetrics

__all__ = ["RpcServer", "ServerSettings"]

SWEEP_S = 0.07
"""Interval of sweeps while calls wait for a worker: maximum delay of a refusal."""

STOP_S = 5.0
"""Maximum wait for the background thread when the server ends."""


class RpcServer:
    """Serves services at one address.

    Parameters
    ----------
    services : sequence of Service
        The services.
    tier : str
        Name of this tier in the hops of responses.
    settings : ServerSettings
        Address and limits. With an address inproc://name, there is no socket: `submit` receives the requests.
    security : ServerSecurity or None
        Keys; required beyond loopback.
    clock : Clock
        Times of queue and deadlines.
    metrics : DaemonMetrics or None
        Receives every answered call and the connection events.
    arrived : callable, optional
        Receives the full method name of each call that the caller may make, before the call is queued or
        refused; must not block.

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
        metrics: DaemonMetrics | None = None,
        arrived: Callable[[str], None] | None = None,
    ) -> None:
        self._endpoints = endpoints_of(services)
        self._settings = settings
        self._security = security
        self._clock = clock
        self._metrics = metrics
        self._arrived = arrived
        self._log = get_logger("rpc.server")
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._background = BackgroundWorker(SYSTEM_CLOCK, "rpc-time")
        self._answers = Answers(tier, settings, clock, metrics, self._background)
        self._allowed: AllowList | None = None
        pool = partial(WorkerPool, settings=settings, clock=clock, run=self._run, refuse=self._answers.fail)
        self._pool = pool("worker", settings.workers)
        self._own_pools = {
            service.descriptor.full_name: pool(f"{service.descriptor.name}-worker", 1)
            for service in services
            if service.own_worker
        }
        self._pools = [self._pool, *self._own_pools.values()]
        self._listener: Listener | None = None
        self._started = False

    def start(self) -> None:
        """Listen and serve.

        Raises
        ------
        AddressInUse
            If the address is taken.
        ConfigurationError
            If the address cannot be bound or reaches beyond loopback without keys, or a key cannot be read.
        """
        listen = check_endpoint(self._settings.listen)
        require_security(listen, self._security)
        if not listen.startswith("inproc://"):
            self._listener = Listener(
                self._settings,
                self._security,
                self._pool.poller,
                lambda job, after_s: self._background.submit(job, name="listener", after_s=after_s),
                self._metrics,
                self._clock,
            )
            self._allowed = self._listener.allowed
        self._started = True
        self._background.start()
        self._watch()
        for pool in self._pools:
            pool.start(self._receive if pool is self._pool and self._listener is not None else None)
        self._log.info(
            "serving",
            endpoint=self.endpoint,
            services=tuple(dict.fromkeys(service for service, _ in self._endpoints)),
            curve=self._security is not None,
        )

    @property
    def endpoint(self) -> str:
        """The address that clients connect to, with the bound port."""
        return self._listener.endpoint if self._listener else self._settings.listen

    @property
    def serving(self) -> bool:
        """Whether requests are accepted."""
        return self._started and not self._stopping.is_set()

    @property
    def queue_length(self) -> int:
        """Number of requests that wait for a worker."""
        return sum(map(len, self._pools))

    def stop(self, grace_s: float = 2.0) -> None:
        """Accept no more requests, finish the accepted ones, and end; safe to call twice.

        Parameters
        ----------
        grace_s : float
            Time to finish requests. Requests without an answer by then are answered UNAVAILABLE.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        if not self._started:
            return
        # The address stays bound until the end: unbinding would close the connections that wait for answers.
        until_s = self._clock.monotonic() + grace_s
        while self._answers.unanswered and self._clock.monotonic() < until_s:
            self._finished.wait(0.01)
        for call in list(self._answers.unanswered.values()):
            self._answers.fail(call, _stopping_error())
        self._finished.set()
        self._background.stop(STOP_S)
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
        """Accept one request from a transport without a socket.

        Parameters
        ----------
        frames : sequence of buffers
            The frames as received, not yet validated.
        reply : callable
            Takes the frames of the answer; called exactly once, from any thread.
        peer : hashable
            Connection of the request.
        peer_key : str or None
            Public key that the peer proved to own.
        """
        pool = self._accept(frames, reply, peer, peer_key)
        if pool is not None:
            pool.signal()

    def _receive(self, ready: Mapping[int, int]) -> None:
        """Receive the requests that have arrived; called by threads of the pool."""
        listener = self._listener
        if listener is None:
            return
        for frames, occupied_bytes, connection in listener.receive(ready):
            reply = partial(listener.send, connection, occupied_bytes)
            pool = self._accept(frames, reply, connection, connection.key or None)
            if pool not in (None, self._pool):  # the receiving pool checks its own queue next
                pool.signal()

    def _accept(
        self,
        frames: Sequence[Buffer],
        reply: Callable[[Sequence[Buffer]], None],
        peer: Hashable,
        peer_key: str | None,
    ) -> WorkerPool | None:
        """Queue a request, or answer it with an error; returns the pool that queued it."""
        arrived_s = self._clock.monotonic()
        request: Request | None = None
        caller: Caller | None = LOCAL
        try:
            if self._allowed is not None:
                if arrived_s >= self._allowed.stale_at_s:
                    self._allowed.refresh()
                caller = self._allowed.clients.get(peer_key or "")
            if caller is None:
                raise _forbidden()
            request = decode_request(frames)
            header = request.header
            endpoint = self._endpoints.get((header.service, header.method))
            if endpoint is None:
                raise no_such_method(self._endpoints, header.service, header.method)
            catalogue = header.catalogue
            if caller.catalogues or endpoint.method.access is Access.CHANGES_CATALOGUE:
                catalogue = caller.catalogue_of(endpoint.method.access, catalogue)
            if self._arrived is not None:
                self._arrived(endpoint.method.full_name)
            if self._stopping.is_set():
                raise _stopping_error()
            # As clients compute it.
            size_bytes = request.size_bytes - len(frames[0]) + len(request.message)
            if size_bytes > self._settings.max_message_bytes:
                raise too_large("request", size_bytes, self._settings.max_message_bytes)
            if self._listener is not None and not self._listener.has_room(request.size_bytes):
                raise Overloaded("the memory limit for requests is reached", advice="try again later")
            sender = Sender(peer_key or peer, header.client_id)
            if 2 * len(self._answers.deferred) >= self._settings.deferred_limit:
                self._answers.check_deferred(sender)
        except NearsightError as error:
            self._reject(frames, request, error, reply)
            return None
        context = CallContext(
            deadline=Deadline(arrived_s + clamp_s(header.time_left_ms / 1000.0), self._clock),
            client_id=header.client_id,
            catalogue=catalogue,
            names_catalogue=bool(header.catalogue),
            trace_id=header.trace_id,
            caller=caller,
            blobs=request.blobs,
            stopping=partial(self._abandoned, caller),
        )
        call = ServedCall(request, endpoint, context, reply, sender, peer, arrived_s)
        self._answers.unanswered[id(call)] = call
        pool = self._own_pools.get(header.service, self._pool)
        if pool.offer(call):
            self._background.submit(self._sweep, name="sweep", after_s=SWEEP_S)
        return pool

    def _reject(
        self,
        frames: Sequence[Buffer],
        request: Request | None,
        error: NearsightError,
        reply: Callable[[Sequence[Buffer]], None],
    ) -> None:
        """Answer a request that did not become a call."""
        trace_id = request.header.trace_id if request else ""
        request_id = request.header.request_id if request else salvage_request_id(frames)
        self._log.info("request rejected", reason=error.message, trace_id=trace_id)
        reply(encode_response(request_id, (), error=error))
        if self._metrics is not None:
            self._metrics.on_call("", "", error.code, 0.0, None, sum(map(len, frames)), 0)

    def _run(self, call: ServedCall) -> None:
        """Run a handler; called in a worker."""
        call.started_s = self._clock.monotonic()
        call.context.queue_ms = (call.started_s - call.arrived_s) * 1000.0
        try:
            if isinstance(call.peer, Connection) and call.peer.closed:
                raise Unavailable("the client has disconnected")
            if self._allowed is not None and self._abandoned(call.context.caller):
                raise _forbidden()
            message = call.endpoint.method.request_class()
            try:
                message.ParseFromString(call.request.message)
            except (DecodeError, UnicodeDecodeError) as error:
                raise InvalidMessage(f"the message is not a {message.DESCRIPTOR.full_name}") from error
            result = call.endpoint.handler(message, call.context)
        except Exception as error:  # noqa: BLE001  # a bug in a handler must not end the worker
            self._answers.fail(call, error)
            return
        self._answers.finish(call, result)

    def _abandoned(self, caller: Caller) -> bool:
        """Whether the work on a call must end: the server stops, or the caller has lost a right."""
        lost = self._allowed is not None and not self._allowed.still_allows(caller)
        return lost or self._finished.is_set()

    def _watch(self) -> None:
        """Check connections and changes of the allowed keys, with or without traffic."""
        if self._listener is None:
            return
        after_s = REFRESH_S
        try:
            if self._allowed is not None:
                self._allowed.refresh()
                self._listener.close_forbidden()
            check_after_s = self._listener.tick()
            if self._allowed is None:
                after_s = check_after_s
        finally:
            self._background.submit(self._watch, name="watch", after_s=after_s)

    def _sweep(self) -> None:
        """Refuse calls that have waited too long for a worker; repeated while calls wait."""
        now_s = self._clock.monotonic()
        try:
            for pool in self._pools:
                pool.sweep(now_s)
        finally:
            if self.queue_length:
                self._background.submit(self._sweep, name="sweep", after_s=SWEEP_S)


def _forbidden() -> Unauthenticated:
    return Unauthenticated(
        "this key is not allowed any more, or has lost rights",
        advice="ask the server's operator to allow it again",
    )


def _stopping_error() -> Unavailable:
    return Unavailable("the server is stopping", advice="try again in a moment")
