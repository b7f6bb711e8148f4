"""Limits that uvicorn lacks: for clients that send slowly or too much, or do not read responses."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from nearsight.common.errors import InvalidArgument, Overloaded
from nearsight.edge.gateway.errors import error_response
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import LimitSettings

_MAX_PIPELINED = 100
"""Limit of pipelined requests per connection; browsers do not use pipelining."""
_MAX_OVERHEAD_BYTES = 64 * 1024
"""Limit of a request's size without its body: headers, chunk sizes and trailer, which the parser stores.
Counted after the chunk in which the request starts."""
_CLOSING_S = 5.0
"""Time for a client to read pending data before its connection is closed."""


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


class Connections:
    """Ends connections that are slow, or exceed the limit. For the event loop.

    Parameters
    ----------
    state : ServerState
        State of uvicorn, which adds and removes connections.
    limits : LimitSettings
        Limits of number and times.
    metrics : GatewayMetrics
        Counts the ended connections.
    """

    def __init__(self, state: ServerState, limits: LimitSettings, metrics: GatewayMetrics) -> None:
        self._state = state
        self._limits = limits
        self._metrics = metrics
        self._closing: dict[Any, float] = {}

    def __len__(self) -> int:
        return len(self._state.connections)

    def sweep(self, now_s: float) -> None:
        """End connections that exceed a limit at this time of the loop."""
        closing: dict[Any, float] = {}
        for connection in list(self._state.connections):
            if connection.transport.is_closing():
                closing[connection] = self._closing.get(connection, now_s)
                if now_s > closing[connection] + _CLOSING_S:
                    self._end(connection, "unread")
            elif isinstance(connection, HttpConnection) and self._is_slow(connection, now_s):
                self._end(connection, "slow")
        self._closing = closing
        if len(self) > self._limits.connections_max:
            waiting = [one for one in self._state.connections if isinstance(one, HttpConnection)]
            waiting.sort(key=lambda one: (one.in_request, one.since_s))
            for one in waiting[: len(self) - self._limits.connections_max]:
                self._end(one, "too many")

    def end_idle(self) -> None:
        """End all connections when the server stops, except those whose client reads a response."""
        for connection in list(self._state.connections):
            if not (isinstance(connection, HttpConnection) and connection.responding):
                self._end(connection, "unread")

    def _is_slow(self, connection: HttpConnection, now_s: float) -> bool:
        limits, spent_s = self._limits, now_s - connection.since_s
        if connection.in_request:  # the application limits the time of the body, and responds
            return spent_s > 2 * limits.body_timeout_s + limits.timeout_s
        return not connection.idle and spent_s > limits.body_timeout_s

    def _end(self, connection: Any, reason: str) -> None:
        self._metrics.dropped(reason)
        connection.transport.abort()
