"""Limits that uvicorn lacks: of connections, and for clients that send slowly or too much, or do not read."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Response
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from nearsight.common.errors import InternalError, InvalidArgument, Overloaded
from nearsight.common.rpc.sockets import connections_allowed
from nearsight.edge.gateway.errors import error_response
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import LimitSettings

_MAX_PIPELINED = 100
"""Limit of pipelined requests per connection; browsers do not use pipelining."""
_MAX_OVERHEAD_BYTES = 64 * 1024
"""Limit of a request's size without its body: headers, chunk sizes and trailer, which the parser stores.
Counted after the chunk in which the request starts."""
_MAX_FRAGMENTS = 1024
"""Limit of the fragments of a WebSocket message; each takes memory, even without content."""
_CLOSING_S = 5.0
"""Time for a client to read pending data before its connection is closed."""
_ROOM = 32
"""Divisor of the limit of connections; the quotient is the number of connections that are closed together,
because finding them takes time."""


class TlsConnection(ssl.SSLObject):
    """TLS that lets a client end its side (close_notify) before it has the responses.

    asyncio itself would close the connection, without the responses.
    """

    client_ended: Callable[[], object] | None = None
    """Called, perhaps more than once, after the client ended its side."""

    def read(self, len: int = 1024, buffer: Any = None) -> bytes:  # noqa: A002  the name of the base
        """Read data; asyncio sees an end of the client's side as a pause."""
        read = super().read(len, buffer)
        if not read and self.client_ended is not None:
            self.client_ended()
            raise ssl.SSLWantReadError
        return read


class HttpConnection(HttpToolsProtocol):
    """A connection that records the time of its last change of state."""

    since_s = 0.0
    """Time of the last change of state, on the clock of the loop."""
    in_request = False
    """Whether a request is in progress."""
    overhead_bytes = 0
    """Size of the last request without its body."""
    declines_upgrade = False
    """Whether the current request offers an upgrade to a protocol other than WebSocket."""
    piece = b""
    """The data that is being parsed."""

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a request."""
        self.since_s = self.loop.time()
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, TlsConnection):
            # Later: data that arrived together with the end is parsed first.
            tls.client_ended = lambda: self.loop.call_soon(self._end_unless_responding)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse data; after an idle period, a request starts with its first byte."""
        if self.timeout_keep_alive_task is not None:
            self.since_s = self.loop.time()
        self.overhead_bytes += len(data)
        self.piece = data
        super().data_received(data)
        self.piece = b""
        if self.overhead_bytes > _MAX_OVERHEAD_BYTES:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool; uvicorn says None
        """Keep the connection for pending responses after the client closed its side.

        With TLS this needs close_notify, see `TlsConnection`. An end of TCP always ends TLS.
        """
        return self.scheme != "https" and self._is_kept_to_respond()

    def _end_unless_responding(self) -> None:
        """Process that the client ended its side of TLS."""
        if self.transport.get_protocol() is not self or not self._is_kept_to_respond():
            self.transport.close()

    def _is_kept_to_respond(self) -> bool:
        """Whether responses are pending; the connection then ends behind them."""
        waits = self.in_request and not self.cycle.more_body
        if waits:
            self.cycle.keep_alive = False
        return waits

    def on_message_begin(self) -> None:
        """Start to parse a request."""
        self.overhead_bytes = 0
        self.declines_upgrade = False
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Do not count the bytes of a body: the application limits them."""
        self.overhead_bytes -= len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Start a request.

        Raises
        ------
        Overloaded
            If too many requests are pipelined; uvicorn then closes the connection. Without this limit uvicorn
            would read and queue thousands of requests.
        """
        self.since_s, self.in_request = self.loop.time(), True
        offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        self.declines_upgrade = offers and not self._should_upgrade()
        if self.declines_upgrade:
            return
        super().on_headers_complete()
        if len(self.pipeline) > _MAX_PIPELINED:
            raise Overloaded(f"more than {_MAX_PIPELINED} requests wait for a response")

    def on_message_complete(self) -> None:
        """Process the end of a request."""
        if not self.declines_upgrade:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Decline an upgrade, such as h2c: parse the request again without it, as the protocol permits.

        uvicorn would lose the body, because the parser expects the other protocol after these headers.
        """
        upgrade = sys.exception()
        if not self.declines_upgrade or not isinstance(upgrade, httptools.HttpParserUpgrade):
            super()._unsupported_upgrade_warning()
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn
        self.data_received(b"\r\n".join((*lines, b"", b"")) + self.piece[upgrade.args[0] :])

    def handle_websocket_upgrade(self) -> None:
        """Upgrade to a WebSocket, or reject headers that `websockets` cannot parse; uvicorn would hang."""
        super().handle_websocket_upgrade()
        websocket = self.transport.get_protocol()
        if isinstance(websocket, WebSocketsSansIOProtocol) and not websocket.handshake_initiated:
            self.send_400_response("the headers of the stream are too long or too many, or announce a body")

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP in the format of all errors, and close the connection."""
        response = error_response(InvalidArgument(msg.rstrip("."), advice="see docs/gateway.md"))
        fields = (*response.raw_headers, (b"connection", b"close"))
        lines = (b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % field for field in fields), b"", b"")
        self.transport.write(b"\r\n".join(lines) + bytes(response.body))
        self.transport.close()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or wait for one, or for the rest of one answered early."""
        self.since_s, self.in_request = self.loop.time(), bool(self.pipeline)
        super().on_response_complete()

    @property
    def idle(self) -> bool:
        """Whether the connection is idle; uvicorn itself limits this time."""
        return self.timeout_keep_alive_task is not None

    @property
    def responding(self) -> bool:
        """Whether a request is in progress, and the client reads data."""
        return self.in_request and not self.flow.write_paused


class _Handshake(ServerProtocol):
    """A handshake whose rejection has the format of all errors."""

    def reject(self, status: StatusLike, text: str) -> Response:
        """Create the response for a failed handshake."""
        response = super().reject(status, text)
        kind = InternalError if response.status_code >= 500 else InvalidArgument
        reason = text.partition("\n")[0].rstrip(".")
        error = error_response(kind(reason, advice="see docs/gateway.md"))
        response.body = bytes(error.body)
        for name, value in error.headers.items():
            del response.headers[name]
            response.headers[name] = value
        return response


class StreamConnection(WebSocketsSansIOProtocol):
    """A WebSocket with a limit of fragments, whose rejected handshake is not an error in the log."""

    def __init__(self, config: uvicorn.Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.conn = _Handshake(max_size=config.ws_max_size, logger=self.logger)

    async def send(self, message: Any) -> None:
        """Send a message of the application; a complete rejection completes the handshake."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """Add a fragment; too many end the connection, because `websockets` limits only their bytes."""
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.transport.is_closing():
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"more than {_MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the unfinished message now: the objects of a connection form cycles, and are freed late."""
        super().connection_lost(exc)
        self.conn.reader.buffer.clear()
        self.frames.clear()

    @property
    def unfinished_bytes(self) -> int:
        """Size of the received part of a message."""
        return len(self.conn.reader.buffer) + sum(map(len, self.frames))


class Connections:
    """Limits the number of connections, and ends slow ones. For the event loop.

    Parameters
    ----------
    state : ServerState
        State of uvicorn, which adds a connection after its TLS handshake, and removes it.
    limits : LimitSettings
        Limits of number and times.
    metrics : GatewayMetrics
        Counts the ended connections.
    """

    def __init__(self, state: ServerState, limits: LimitSettings, metrics: GatewayMetrics) -> None:
        self._state = state
        self._limits = limits
        self._most = connections_allowed(limits.connections_max, "limits.connections_max")
        self._metrics = metrics
        self._accepted: dict[int, tuple[socket.socket, float]] = {}
        """Descriptor → socket, and time of its acceptance. Closed sockets are removed later."""
        self._ending = False
        """Whether connections were ended in this step of the loop."""
        self._closing: dict[Any, float] = {}

    def __len__(self) -> int:
        return sum(_is_open(*one) for one in list(self._accepted.items()))

    def accept(self, accept: Callable[[], tuple[socket.socket, Any]]) -> tuple[socket.socket, Any]:
        """Accept a connection. If there are too many, the longest idle ones are ended.

        Raises
        ------
        BlockingIOError
            If no client waits; if all connections are open streams, so that the new one is closed; or if
            connections were just ended: the loop accepts again in its next step, when their descriptors are
            free.
        """
        if self._ending:
            self._ending = False
            raise BlockingIOError
        connection, address = accept()
        if len(self._accepted) >= self._most:
            self._forget_closed()
        if len(self._accepted) >= self._most:
            self._ending = self._end_idlest()
            if not self._ending:
                self._metrics.dropped.labels("too many").inc()
                connection.close()
                raise BlockingIOError
        self._accepted[connection.fileno()] = connection, asyncio.get_running_loop().time()
        return connection, address

    def sweep(self, now_s: float) -> None:
        """End connections that exceed a limit of memory, or of time at this time of the loop."""
        self._forget_closed()
        self._end_largest()
        for descriptor, since_s in self._in_handshake().items():
            if now_s > since_s + self._limits.body_timeout_s:
                self._end_handshake(descriptor, "slow")
        closing: dict[Any, float] = {}
        for connection in list(self._state.connections):
            if connection.transport.is_closing():
                closing[connection] = self._closing.get(connection, now_s)
                if now_s > closing[connection] + _CLOSING_S:
                    self._end(connection, "unread")
            elif isinstance(connection, HttpConnection) and self._is_slow(connection, now_s):
                self._end(connection, "slow")
        self._closing = closing

    def end_idle(self) -> None:
        """End all connections when the server stops, except those whose client reads a response."""
        for descriptor in self._in_handshake():
            self._end_handshake(descriptor, "unread")
        for connection in list(self._state.connections):
            if not (isinstance(connection, HttpConnection) and connection.responding):
                self._end(connection, "unread")

    def _end_largest(self) -> None:
        """End the streams with the largest unfinished messages, if all together exceed the limit."""
        streams = [one for one in self._state.connections if isinstance(one, StreamConnection)]
        unfinished = sorted([(one.unfinished_bytes, id(one), one) for one in streams])
        total_bytes = sum(size_bytes for size_bytes, _, _ in unfinished)
        while total_bytes > self._limits.memory_bytes:
            size_bytes, _, largest = unfinished.pop()
            total_bytes -= size_bytes
            self._end(largest, "memory")

    def _is_slow(self, connection: HttpConnection, now_s: float) -> bool:
        limits, spent_s = self._limits, now_s - connection.since_s
        if connection.in_request:  # the application limits the time of the body, and responds
            return spent_s > 2 * limits.body_timeout_s + limits.timeout_s
        return not connection.idle and spent_s > limits.body_timeout_s

    def _end_idlest(self) -> bool:
        """End the longest idle connections, otherwise the oldest request; whether there was one."""
        found = [
            (one.in_request, one.since_s, partial(self._end, one))
            for one in self._state.connections
            if isinstance(one, HttpConnection) and _descriptor(one) in self._accepted
        ]
        found += [  # streams that the gateway has closed, but not their clients
            (False, 0.0, partial(self._end, one))
            for one in self._state.connections
            if isinstance(one, StreamConnection) and one.close_sent and _descriptor(one) in self._accepted
        ]
        found += [
            (False, since_s, partial(self._end_handshake, descriptor))
            for descriptor, since_s in self._in_handshake().items()
        ]
        found.sort(key=itemgetter(0, 1))
        idle = [one for one in found if not one[0]]
        for _, _, end in idle[: max(1, self._most // _ROOM)] or found[:1]:
            end("too many")
        return bool(found)

    def _in_handshake(self) -> dict[int, float]:
        """Descriptors without a complete TLS handshake, unknown to uvicorn → time of acceptance."""
        served = {_descriptor(one) for one in self._state.connections}
        return {
            descriptor: since_s
            for descriptor, (_, since_s) in self._accepted.items()
            if descriptor not in served
        }

    def _end_handshake(self, descriptor: int, reason: str) -> None:
        self._metrics.dropped.labels(reason).inc()
        connection, _ = self._accepted.pop(descriptor)
        with suppress(OSError):  # the client has closed it meanwhile
            connection.shutdown(socket.SHUT_RDWR)  # its transport then ends it

    def _end(self, connection: Any, reason: str) -> None:
        self._metrics.dropped.labels(reason).inc()
        self._accepted.pop(_descriptor(connection), None)
        connection.transport.abort()

    def _forget_closed(self) -> None:
        self._accepted = dict(one for one in self._accepted.items() if _is_open(*one))


def _descriptor(connection: Any) -> int:
    """Descriptor of a connection of uvicorn; -1 if it is closed."""
    accepted = connection.transport.get_extra_info("socket")
    return -1 if accepted is None else int(accepted.fileno())


def _is_open(descriptor: int, accepted: tuple[socket.socket, float]) -> bool:
    return accepted[0].fileno() == descriptor
