"""The calling side: a channel to one server, shared by all threads of a process.

The calling thread sends; one thread per channel receives, watches the connection and keeps the times. A
caller that waits for its answer receives it itself where nobody else does, which saves two hand-overs between
threads per call. What to do about calls and connection is decided by `PendingCalls`, apart from sockets and
threads.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import (
    InternalError,
    InvalidArgument,
    InvalidMessage,
    NearsightError,
    StatusCode,
    Unavailable,
)
from nearsight.common.logging import get_logger
from nearsight.common.rpc.connection import Change, ConnectionEvent
from nearsight.common.rpc.deadline import Deadline
from nearsight.common.rpc.envelope import (
    PROTOCOL,
    Buffer,
    Response,
    as_blob,
    decode_response,
    salvage_request_id,
    size_of,
)
from nearsight.common.rpc.hops import Hop
from nearsight.common.rpc.pending_calls import Action, Connect, Fail, PendingCall, PendingCalls, Send
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.rpc.service import is_idempotent
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.status import error_of
from nearsight.common.rpc.stub import Stub
from nearsight.common.rpc.transport import ZmqTransport
from nearsight.protos import rpc_pb2

__all__ = ["Channel", "ChannelSettings", "Hop", "Reply", "Stub", "Transport"]


class Transport(Protocol):
    """What carries the frames of a channel; all but waits and wakes is called under the channel's lock."""

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""

    def receive(self) -> list[list[Buffer]]:
        """The messages that have arrived."""

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection."""

    def disconnect(self) -> None:
        """Drop the connection, if any."""

    def has_arrivals(self) -> bool:
        """Whether a message waits that no wait will report, because sending consumed its signal."""

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, unless a caller drives, arrivals; one thread does."""

    def wake(self) -> None:
        """Interrupt `wait`; any thread may."""

    def can_drive(self) -> bool:
        """Whether a caller may wait for arrivals on the connection that there is."""

    def drive(self, timeout_s: float) -> bool:
        """Wait for arrivals, in a caller; False if it was interrupted. One caller does at a time."""

    def wake_driver(self) -> None:
        """Interrupt `drive`; any thread may."""

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Parameters
    ----------
    message : Message
        Of the method's response type.
    blobs : tuple of memoryview
        Large values beside it, read-only.
    hops : tuple of Hop
        One per tier that worked on it, the answering server last.
    sent_bytes, received_bytes : int
        All frames of request and response.
    """

    message: Message
    blobs: tuple[memoryview, ...]
    hops: tuple[Hop, ...]
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class _RemoteMethod:
    """What a channel needs to know of a method."""

    service: str
    method: str
    input_name: str
    response_class: type[Message]
    idempotent: bool


@dataclass(slots=True)
class _Outgoing:
    """A request while it is not answered."""

    future: Future[Reply]
    header: rpc_pb2.RequestHeader
    frames: list[Buffer]
    deadline: Deadline
    remote: _RemoteMethod
    sent_bytes: int = 0


class Channel:
    """Calls to one server. Thread-safe.

    It connects with the first call, and again after the connection was lost, by itself. Done-callbacks of
    the futures run on the channel's own thread: they must be short and must not wait for another call.

    Parameters
    ----------
    endpoint : str
        The server's address.
    client_id : str
        Stable name of this device or daemon.
    settings : ChannelSettings
        Grace, retries, limits.
    security : ClientSecurity or None
        Keys; needed where the server has some.
    clock : Clock
        Time of deadlines.
    transport : Transport or None
        Carries the frames; by default ZeroMQ to ``endpoint``.
    rng : random.Random or None
        Jitter of retries; by default seeded by the system.

    Raises
    ------
    ConfigurationError
        If the endpoint is no address or a key cannot be read.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        settings: ChannelSettings | None = None,
        security: ClientSecurity | None = None,
        clock: Clock = SYSTEM_CLOCK,
        transport: Transport | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._settings = settings or ChannelSettings()
        self._clock = clock
        self._log = get_logger("rpc.channel")
        self._transport: Transport = transport or ZmqTransport(endpoint, self._settings, security)
        self._lock = threading.Lock()
        self._pending: PendingCalls[_Outgoing] = PendingCalls(
            endpoint, self._settings, rng or random.Random()
        )
        self._last_id = 0
        self._trace_prefix = os.urandom(6).hex()
        self._closed = False
        self._remotes: dict[MethodDescriptor, _RemoteMethod] = {}
        self._wakes_at_s = 0.0
        self._thread_receives = False
        self._caller_receives = False
        self._thread = threading.Thread(target=self._loop, name="rpc-channel", daemon=True)
        self._thread.start()

    def call(
        self,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
        trace_id: str = "",
        client_id: str = "",
    ) -> Future[Reply]:
        """Begin a call.

        Parameters
        ----------
        method : MethodDescriptor
            Which rpc.
        request : Message
            Of its request type.
        timeout_s : float
            When to give up; the server learns it too.
        blobs : sequence of buffers
            Large values beside the message. They are sent without a copy and must not change until the
            call has ended.
        catalogue : str
            What the call is about.
        trace_id : str
            Of the request that this call is part of; by default a new one.
        client_id : str
            On whose behalf; by default the channel's own.

        Returns
        -------
        Future of Reply
            Ends once, by the time given, with a reply or a `NearsightError`; it cannot be cancelled.
        """
        return self._begin(method, request, blobs, (catalogue, trace_id, client_id), timeout_s, waits=False)[
            0
        ]

    def ask(
        self,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
        trace_id: str = "",
        client_id: str = "",
    ) -> Reply:
        """Call and wait for the answer; parameters as in `call`.

        Raises
        ------
        NearsightError
            As the server answered, or the call failed.
        RuntimeError
            If a done-callback of this channel waits for a call on it, which would never end.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a done-callback of a channel must not wait for a call on it")
        future, receives = self._begin(
            method, request, blobs, (catalogue, trace_id, client_id), timeout_s, waits=True
        )
        if receives:
            self._receive_until(future, Deadline.after(timeout_s, self._clock))
        return future.result()

    def close(self) -> None:
        """End all calls with `Unavailable` and the connection; safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            ended = self._perform(self._pending.close(_closed_error()), 0.0)
        self._transport.wake()
        self._transport.wake_driver()
        _end(ended)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._transport.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self,
        method: MethodDescriptor,
        request: Message,
        blobs: Sequence[Buffer],
        names: tuple[str, str, str],
        timeout_s: float,
        *,
        waits: bool,
    ) -> tuple[Future[Reply], bool]:
        """Begin a call; also returns whether the caller, who then waits, has to receive the answers."""
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()
        now_s = self._clock.monotonic()
        deadline = Deadline.after(timeout_s, self._clock)
        try:
            outgoing = self._prepare(method, request, blobs, deadline, future)
        except NearsightError as error:
            future.set_exception(error)
            return future, False
        header = outgoing.header
        header.catalogue, trace_id, client_id = names
        header.client_id = client_id or self._client_id
        receives = False
        with self._lock:
            self._last_id += 1
            header.request_id = self._last_id
            header.trace_id = trace_id or f"{self._trace_prefix}-{self._last_id:x}"
            pending = PendingCall(self._last_id, outgoing, deadline.at_s, outgoing.remote.idempotent)
            if self._closed:
                ended: list[Fail[_Outgoing]] = [Fail(pending, _closed_error())]
            else:
                ended = self._perform(self._pending.submit(pending, now_s), now_s)
                receives = waits and not ended and self._claim_receiving()
                self._alert_thread(receives)
        _end(ended)
        return future, receives

    def _claim_receiving(self) -> bool:
        """Whether the calling thread is to receive: nobody does, and there is a connection."""
        if self._thread_receives or self._caller_receives or not self._pending.up:
            return False
        self._caller_receives = self._transport.can_drive()
        return self._caller_receives

    def _alert_thread(self, caller_receives: bool) -> None:
        """Wake the channel's thread if it has to receive, or to keep an earlier time than it knows of."""
        due_s = self._pending.next_due_s()
        nobody = not (self._thread_receives or self._caller_receives)
        missed = not caller_receives and self._transport.has_arrivals()
        if nobody or missed or (due_s is not None and due_s < self._wakes_at_s):
            self._transport.wake()
        if missed and self._caller_receives:
            self._transport.wake_driver()

    def _receive_until(self, future: Future[Reply], deadline: Deadline) -> None:
        """Receive, in a caller, until its answer is there or the channel's thread must take over."""
        undisturbed = True
        while undisturbed:
            with self._lock:
                answers = self._match(self._transport.receive())
            for call, response in answers:
                _complete(call.item, response)
            if future.done():
                break
            undisturbed = self._transport.drive(deadline.remaining_s()) and not deadline.expired()
        with self._lock:
            self._caller_receives = False
            if len(self._pending) and not self._closed:
                self._transport.wake()

    def _prepare(
        self,
        method: MethodDescriptor,
        request: Message,
        blobs: Sequence[Buffer],
        deadline: Deadline,
        future: Future[Reply],
    ) -> _Outgoing:
        remote = self._remote(method)
        if request.DESCRIPTOR.full_name != remote.input_name:
            raise InvalidArgument(
                f"{method.full_name} takes {method.input_type.name}, not {request.DESCRIPTOR.name}"
            )
        frames: list[Buffer] = [request.SerializeToString(), *(as_blob(blob) for blob in blobs)]
        limit = self._settings.max_message_bytes
        if size_of(frames) > limit:
            raise InvalidArgument(
                f"the request has {size_of(frames)} bytes, more than the limit of {limit}",
                advice="send less at once, or raise max_message_bytes on both sides",
            )
        header = rpc_pb2.RequestHeader(
            protocol=PROTOCOL,
            service=remote.service,
            method=remote.method,
            newest_wins=self._settings.newest_wins,
        )
        return _Outgoing(future, header, frames, deadline, remote)

    def _remote(self, method: MethodDescriptor) -> _RemoteMethod:
        # Asking a descriptor builds Python objects anew each time.
        found = self._remotes.get(method)
        if found is None:
            found = self._remotes[method] = _RemoteMethod(
                method.containing_service.full_name,
                method.name,
                method.input_type.full_name,
                GetMessageClass(method.output_type),
                is_idempotent(method),
            )
        return found

    def _perform(self, actions: Sequence[Action[_Outgoing]], now_s: float) -> list[Fail[_Outgoing]]:
        """Do what was decided, under the lock; failures are for the caller to hand out without it."""
        ended = []
        for action in actions:
            if isinstance(action, Send):
                self._send(action.call, now_s)
            elif isinstance(action, Connect):
                self._transport.connect()
                self._transport.wake()
            else:
                ended.append(action)
        return ended

    def _send(self, call: PendingCall[_Outgoing], now_s: float) -> None:
        outgoing = call.item
        outgoing.header.time_left_ms = int(outgoing.deadline.remaining_s() * 1000)
        header = outgoing.header.SerializeToString()
        outgoing.sent_bytes = len(header) + size_of(outgoing.frames)
        if not self._transport.send([header, *outgoing.frames]):
            self._pending.not_sent(call, now_s)

    def _loop(self) -> None:
        """Receive, watch and keep the times until the channel is closed."""
        while not self._closed:
            now_s = self._clock.monotonic()
            with self._lock:
                due_s = self._pending.next_due_s()
                self._wakes_at_s = due_s = now_s + 60.0 if due_s is None else due_s
                self._thread_receives = receives = len(self._pending) > 0 and not self._caller_receives
            self._transport.wait(max(0.0, due_s - now_s), arrivals=receives)
            self._step()

    def _step(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._wakes_at_s = 0.0
            # Changes are read before messages: what arrived on a connection counts although it ended since.
            changes = self._transport.changes()
            answers = self._match(self._transport.receive())
            now_s = self._clock.monotonic()
            ended = [fail for change in changes for fail in self._on_change(change, now_s)]
            ended += self._perform(self._pending.tick(now_s), now_s)
            if self._caller_receives and (changes or answers or ended):
                self._transport.wake_driver()
        for call, response in answers:
            _complete(call.item, response)
        _end(ended)

    def _on_change(self, event: ConnectionEvent, now_s: float) -> list[Fail[_Outgoing]]:
        if event.change is Change.UP or event.error is None:
            return self._perform(self._pending.connected(now_s), now_s)
        self._transport.disconnect()
        decide = {
            Change.REFUSED: self._pending.refused,
            Change.REJECTED: self._pending.rejected,
            Change.LOST: self._pending.lost,
        }[event.change]
        self._log.debug(
            "connection", endpoint=self.endpoint, change=event.change.name, reason=event.error.message
        )
        return self._perform(decide(event.error, now_s), now_s)

    def _match(
        self, messages: list[list[Buffer]]
    ) -> list[tuple[PendingCall[_Outgoing], Response | NearsightError]]:
        """The calls that messages answer, taken off the pending ones."""
        found: list[tuple[PendingCall[_Outgoing], Response | NearsightError]] = []
        for frames in messages:
            result: Response | NearsightError
            try:
                result = decode_response(frames)
                request_id = result.request_id
            except InvalidMessage as error:
                request_id = salvage_request_id(frames)
                result = InternalError(
                    f"{self.endpoint} sent a response that cannot be read: {error.message}"
                )
            call = self._pending.answered(request_id)
            if call is not None:
                found.append((call, result))
            else:
                self._log.debug(
                    "an answer that nobody waits for", endpoint=self.endpoint, request_id=request_id
                )
        return found


def _closed_error() -> Unavailable:
    return Unavailable("the channel is closed")


def _end(ended: Sequence[Fail[_Outgoing]]) -> None:
    for fail in ended:
        fail.call.item.future.set_exception(fail.error)


def _complete(outgoing: _Outgoing, result: Response | NearsightError) -> None:
    if isinstance(result, NearsightError):
        outgoing.future.set_exception(result)
        return
    if result.status != StatusCode.OK:
        outgoing.future.set_exception(error_of(result.status, result.error, result.advice))
        return
    message = outgoing.remote.response_class()
    try:
        message.ParseFromString(bytes(result.message))
    except (DecodeError, UnicodeDecodeError):
        name = outgoing.remote.response_class.DESCRIPTOR.full_name
        outgoing.future.set_exception(InternalError(f"the response is not a {name}"))
        return
    reply = Reply(message, result.blobs, result.hops, outgoing.sent_bytes, result.size_bytes)
    outgoing.future.set_result(reply)
