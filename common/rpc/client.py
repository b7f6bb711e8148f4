"""The calling side: a channel to one server, shared by all threads of a process.

The calling thread sends. One thread receives, watches the connections and handles timeouts; it belongs to one
channel or to a group of channels to many servers. A caller that waits for its answer receives it itself if no
other thread receives, which saves two thread switches per call. `PendingCalls` makes the decisions about
calls and connection, without sockets and threads.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Unpack

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import pending
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, InvalidMessage, NearsightError, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.rpc.call import CallNames, Outgoing, Reply, Waiter
from nearsight.common.rpc.envelope import Hop, Response, clamp_s, decode_response, salvage_request_id
from nearsight.common.rpc.links import Link
from nearsight.common.rpc.pending_calls import Action, Connect, PendingCalls, Send
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.rpc.service import python_name, rpc_method
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.transport import Transport

__all__ = ["Channel", "ChannelGroup", "ChannelSettings", "Hop", "Reply", "Stub"]

_Ended = tuple[Outgoing, Response | NearsightError]
_LONGEST_SLEEP_S = 60.0
_ENDING_S = 1.0
"""Time for which the socket is polled after a disconnect; ZeroMQ needs this to close the connection."""


class Channel:
    """Calls to one server. Thread-safe.

    The channel connects at the first call, and reconnects by itself after the connection was lost.
    Done-callbacks of the futures run on the thread of its group: they must be short and must not wait for
    another call.

    Parameters
    ----------
    endpoint : str
        The server's address.
    client_id : str
        Stable name of this device or daemon.
    settings : ChannelSettings
        Timeouts, retries, limits.
    security : ClientSecurity or None
        Keys; needed if the server uses keys.
    clock : Clock
        Time of deadlines.
    group : ChannelGroup or None
        Provides socket and thread; by default the channel has its own.

    Raises
    ------
    ConfigurationError
        If the endpoint is not an address or a key cannot be read.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        settings: ChannelSettings | None = None,
        security: ClientSecurity | None = None,
        clock: Clock = SYSTEM_CLOCK,
        group: ChannelGroup | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._settings = settings or ChannelSettings()
        self._clock = clock
        self._link = Link(endpoint, self._settings, security)
        self._pending: PendingCalls[Outgoing] = PendingCalls(endpoint, self._settings, random.Random())
        self._last_id = 0
        self._trace_prefix = os.urandom(6).hex()
        self._closed = False
        self._group = group or ChannelGroup(clock=clock)
        self._owns_group = group is None

    def call(
        self, method: MethodDescriptor, request: Message, *, timeout_s: float, **names: Unpack[CallNames]
    ) -> Future[Reply]:
        """Begin a call.

        Parameters
        ----------
        method : MethodDescriptor
            The rpc.
        request : Message
            Of its request type.
        timeout_s : float
            Timeout of the call; also sent to the server.
        **names
            Blobs, catalogue, trace id and client id; see `CallNames`.

        Returns
        -------
        Future of Reply
            Completes exactly once, by the deadline, with a reply or a `NearsightError`; it cannot be
            cancelled.
        """
        future: Future[Reply] = pending()
        self._begin(method, request, names, timeout_s, future, waits=False)
        return future

    def ask(
        self, method: MethodDescriptor, request: Message, *, timeout_s: float, **names: Unpack[CallNames]
    ) -> Reply:
        """Call and wait for the answer; parameters as in `call`.

        Raises
        ------
        NearsightError
            The error of the server's answer, or the reason why the call failed.
        RuntimeError
            If a done-callback of this channel waits for a call on it, which would never end.
        """
        if self._group.is_current_thread():
            raise RuntimeError("a done-callback of a channel must not wait for a call on it")
        waiter = Waiter()
        if self._begin(method, request, names, timeout_s, waiter, waits=True):
            self._group.receive_until(waiter, self._clock.monotonic() + clamp_s(timeout_s))
        return waiter.wait()

    def close(self) -> None:
        """End all calls with `Unavailable`, and close the connection; safe to call twice."""
        self._group.end(self)
        if self._owns_group:
            self._group.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self,
        method: MethodDescriptor,
        request: Message,
        names: CallNames,
        timeout_s: float,
        outcome: Future[Reply] | Waiter,
        *,
        waits: bool,
    ) -> bool:
        """Begin a call; returns whether the caller, which waits, has to receive the answers."""
        now_s = self._clock.monotonic()
        limit_bytes, deadline_s = self._settings.max_message_bytes, now_s + clamp_s(timeout_s)
        try:
            call = Outgoing(rpc_method(method), request, names, limit_bytes, deadline_s, outcome)
        except NearsightError as error:
            outcome.set_exception(error)
            return False
        header = call.header
        header.client_id = header.client_id or self._client_id
        call.kind = (header.service, header.method, header.client_id)
        with self._group.lock:
            self._last_id += 1
            call.request_id = header.request_id = self._last_id
            header.trace_id = header.trace_id or f"{self._trace_prefix}-{self._last_id:x}"
            ended, receives = self._group.submit(self, call, now_s, waits=waits)
        _hand_out(ended)
        return receives


class ChannelGroup:
    """The socket and the thread that channels share. Thread-safe.

    Parameters
    ----------
    clock : Clock
        Time of deadlines, of all its channels.
    transport : Transport or None
        Carries the frames. Tests pass one without sockets.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, transport: Transport | None = None) -> None:
        self._clock = clock
        self._log = get_logger("rpc.channel")
        self._transport = transport or Transport()
        self.lock = threading.Lock()
        self._channels: dict[Link, Channel] = {}  # used and not closed
        self._busy: dict[Link, Channel] = {}  # of these, those with calls or timers
        self._closed = False
        self._thread_ended = False
        self._wakes_at_s = self._ending_until_s = -math.inf
        self._thread_receives = False
        self._caller_receives = False
        self._thread = threading.Thread(target=self._loop, name="rpc-channels", daemon=True)
        self._thread.start()

    def is_current_thread(self) -> bool:
        """Whether the caller is a done-callback of one of the channels."""
        return threading.current_thread() is self._thread

    def submit(
        self, channel: Channel, call: Outgoing, now_s: float, *, waits: bool
    ) -> tuple[list[_Ended], bool]:
        """Begin a call, under the lock.

        Returns the calls that ended at once, and whether the caller receives the answers.
        """
        if self._closed or channel._closed:
            return [(call, Unavailable("the channel is closed"))], False
        self._channels[channel._link] = self._busy[channel._link] = channel
        ended = self._perform(channel, channel._pending.submit(call, now_s), now_s)
        no_receiver = not (self._thread_receives or self._caller_receives)
        receives = waits and not ended and no_receiver and channel._pending.up
        receives = receives and self._transport.caller_can_wait()
        self._caller_receives |= receives
        # Wake the thread if it has to receive, or if this call is due before its next wake-up.
        due_s = channel._pending.next_due_s()
        missed = not receives and self._transport.has_arrivals()
        if (no_receiver and not receives) or missed or (due_s is not None and due_s < self._wakes_at_s):
            self._transport.wake()
        if missed and self._caller_receives:
            self._transport.wake_caller()
        return ended, receives

    def receive_until(self, waiter: Waiter, deadline_s: float) -> None:
        """Receive in a waiting caller until its answer arrives or the group's thread must take over."""
        undisturbed = True
        try:
            with self.lock:
                # Needed: a socket signals an arrival only after it was polled empty.
                arrived = self._transport.has_arrivals()
            while undisturbed:
                if arrived:
                    with self.lock:
                        answers = self._receive_answers()
                    _hand_out(answers)
                if waiter.done():
                    break
                left_s = max(0.0, deadline_s - self._clock.monotonic())
                undisturbed = self._transport.wait_in_caller(left_s) and self._clock.monotonic() < deadline_s
                arrived = True
        finally:  # also after an error, such as Ctrl-C: otherwise the thread would never receive again
            with self.lock:
                self._caller_receives = False
                if self._unanswered() and not self._closed:
                    self._transport.wake()
                unused = self._thread_ended
            if unused:
                self._transport.close()

    def end(self, channel: Channel) -> None:
        """End the calls and the connection of one channel."""
        with self.lock:
            if channel._closed:
                return
            channel._closed = True
            ended = self._perform(channel, channel._pending.close(Unavailable("the channel is closed")), 0.0)
            self._disconnect(channel, self._clock.monotonic())
            self._channels.pop(channel._link, None)
            self._busy.pop(channel._link, None)
        _hand_out(ended)

    def close(self) -> None:
        """End the thread and close the socket; close the channels before. Safe to call twice.

        The last of the thread and a waiting caller closes the transport, because both use its descriptors.
        """
        with self.lock:
            if self._closed:
                return
            self._closed = True
        self._transport.wake()
        self._transport.wake_caller()
        if not self.is_current_thread():
            self._thread.join()

    def _unanswered(self) -> int:
        """Number of calls without an answer, of all channels."""
        count = 0
        for channel in self._busy.values():
            count += len(channel._pending.calls)
        return count

    def _perform(self, channel: Channel, actions: Sequence[Action[Outgoing]], now_s: float) -> list[_Ended]:
        """Execute actions under the lock; returns failed calls, which are completed without the lock."""
        ended: list[_Ended] = []
        for action in actions:
            if isinstance(action, Send):
                call = action.call
                if not self._transport.send(channel._link, call.frames(call.deadline_s - now_s)):
                    channel._pending.not_sent(call, now_s)
            elif isinstance(action, Connect):
                self._transport.connect(channel._link)
                self._transport.wake()
            else:
                ended.append((action.call, action.error))
        return ended

    def _disconnect(self, channel: Channel, now_s: float) -> None:
        self._transport.disconnect(channel._link)
        self._ending_until_s = now_s + _ENDING_S
        self._transport.wake()
        if self._caller_receives:  # its own call may have ended, and disconnecting may consume a signal
            self._transport.wake_caller()

    def _loop(self) -> None:
        """Receive, watch connections and handle timeouts until the group is closed."""
        while not self._closed:
            try:
                self._wait()
                self._step()
            except Exception:  # noqa: BLE001  # after any error here, callers must not wait for ever
                self._log.exception("the channels failed", endpoints=[link.endpoint for link in self._busy])
                with self.lock:
                    ended: list[_Ended] = []
                    for channel in self._busy.values():
                        self._disconnect(channel, self._clock.monotonic())
                        failed = channel._pending.close(InternalError("the channel failed"))
                        ended += self._perform(channel, failed, 0.0)
                _hand_out(ended)
        with self.lock:
            self._thread_ended = True
            unused = not self._caller_receives
        if unused:
            self._transport.close()

    def _wait(self) -> None:
        now_s = self._clock.monotonic()
        with self.lock:
            self._wakes_at_s = now_s + _LONGEST_SLEEP_S
            for link, channel in list(self._busy.items()):
                due_s = channel._pending.next_due_s()
                if due_s is not None:
                    self._wakes_at_s = min(self._wakes_at_s, due_s)
                elif not channel._pending.calls:
                    del self._busy[link]
            ending = now_s < self._ending_until_s
            if ending:
                self._wakes_at_s = min(self._wakes_at_s, self._ending_until_s)
            wait_s = max(0.0, self._wakes_at_s - now_s)
            wanted = self._unanswered() > 0
            self._thread_receives = wanted and not self._caller_receives
            watches = (wanted or ending) and not self._caller_receives
            # Poll before the wait: a socket signals an arrival only after it was polled empty, and sending
            # and connecting may consume the signal.
            arrived = watches and self._transport.has_arrivals() and wanted
        if not arrived:
            self._transport.wait(wait_s, arrivals=watches)

    def _step(self) -> None:
        ended: list[_Ended] = []
        try:
            with self.lock:
                if self._closed:
                    return
                self._wakes_at_s = -math.inf
                # Changes are read before messages: a message is still delivered if its connection ended
                # afterwards.
                changes = self._transport.changes()
                ended += self._receive_answers()
                now_s = self._clock.monotonic()
                for link, error in changes:
                    ended += self._on_change(self._channels[link], error, now_s)
                for channel in self._busy.values():
                    ended += self._perform(channel, channel._pending.tick(now_s), now_s)
                # The operations above may have consumed the signal for which the caller waits.
                if self._caller_receives and (changes or ended or self._transport.has_arrivals()):
                    self._transport.wake_caller()
        finally:  # also after an error: these calls have left the table of pending ones
            _hand_out(ended)

    def _on_change(self, channel: Channel, error: NearsightError | None, now_s: float) -> list[_Ended]:
        if error is None:
            return self._perform(channel, channel._pending.connected(now_s), now_s)
        self._disconnect(channel, now_s)
        self._log.debug("no connection", endpoint=channel.endpoint, reason=error.message)
        return self._perform(channel, channel._pending.disconnected(error, now_s), now_s)

    def _receive_answers(self) -> list[_Ended]:
        """Receive until no message or no unanswered call is left; returns the answered calls."""
        answers: list[_Ended] = []
        while wanted := self._unanswered():
            messages = self._transport.receive(wanted)
            for link, frames in messages:
                result: Response | NearsightError
                try:
                    result = decode_response(frames)
                    request_id = result.header.request_id
                except InvalidMessage as error:
                    request_id = salvage_request_id(frames)
                    result = InternalError(f"{link.endpoint} sent an invalid response: {error.message}")
                pending = self._channels[link]._pending
                call = pending.answered(request_id)
                if call is not None:
                    answers.append((call, result))
                    if isinstance(result, Response) and result.header.retry_after_ms:
                        pause_s = result.header.retry_after_ms / 1000.0
                        pending.server_busy(call, pause_s, self._clock.monotonic())
                else:
                    self._log.debug(
                        "an answer belongs to no pending call", endpoint=link.endpoint, request_id=request_id
                    )
            if len(messages) < wanted:
                break
        return answers


def _hand_out(ended: Sequence[_Ended]) -> None:
    for call, result in ended:
        call.end(result)


class Method:
    """One remote method: call it and wait, or begin it with `future`."""

    def __init__(self, channel: Channel, descriptor: MethodDescriptor) -> None:
        self._channel = channel
        self._descriptor = descriptor
        self.future = partial(channel.call, descriptor)
        """Begin the call; see `Channel.call`."""

    def __call__(self, request: Message, *, timeout_s: float, **names: Unpack[CallNames]) -> Reply:
        """Call and wait for the answer; see `Channel.ask`."""
        return self._channel.ask(self._descriptor, request, timeout_s=timeout_s, **names)


class Stub:
    """A remote service: one method in snake_case per rpc, made from its descriptor.

    Parameters
    ----------
    channel : Channel
        To the server.
    service : ServiceDescriptor
        From the generated code, e.g. ``health_pb2.DESCRIPTOR.services_by_name["Health"]``.

    Examples
    --------
    ``Stub(channel, descriptor).check(HealthRequest(), timeout_s=1.0).message.ready``
    """

    def __init__(self, channel: Channel, service: ServiceDescriptor) -> None:
        self._service_name = service.full_name
        for method in service.methods:
            setattr(self, python_name(method), Method(channel, method))

    def __getattr__(self, name: str) -> Method:  # for methods that the service does not have
        raise AttributeError(f"{self.__dict__.get('_service_name')} has no method {name}()")
