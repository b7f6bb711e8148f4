"""Connections that uvicorn would let live: clients that send slowly or too much, or do not read answers."""

from __future__ import annotations

import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from nearsight.common.errors import InvalidArgument, Overloaded
from nearsight.edge.gateway.errors import error_response
from nearsight.edge.gateway.metrics import GatewayMetrics
from nearsight.edge.gateway.settings import LimitSettings

_MOST_PIPELINED = 100
"""Requests of a connection that may wait behind the one in progress; browsers send none before its answer."""
_MOST_BESIDE_BODY_BYTES = 64 * 1024
"""Of a request, after the piece that it begins in: its head, the sizes of its chunks and its trailer. The
parser keeps them all."""
_CLOSING_S = 5.0
"""How long a client may take to read what it gets before its connection is closed."""


class HttpConnection(HttpToolsProtocol):
    """A connection that knows since when it is in its state."""

    since_s = 0.0
    """When its state changed."""
    in_request = False
    """Whether a request has begun and is not answered."""
    beside_body_bytes = 0
    """Of the last request, without its body."""
    declines_upgrade = False
    """Whether the request that is parsed offers another protocol than WebSocket."""
    piece = b""
    """What is parsed."""

    def connection_made(self, transport: Any) -> None:
        """It begins to wait for a request."""
        self.since_s = self.loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """After a rest a request begins with its first byte."""
        if self.timeout_keep_alive_task is not None:
            self.since_s = self.loop.time()
        self.beside_body_bytes += len(data)
        self.piece = data
        super().data_received(data)
        self.piece = b""
        if self.beside_body_bytes > _MOST_BESIDE_BODY_BYTES:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool; uvicorn says None
        """The client sends no more, but may wait for answers to whole requests. TLS cannot wait."""
        waits = (self.in_request or bool(self.pipeline)) and not self.cycle.more_body
        if not waits or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """Another request."""
        self.beside_body_bytes = 0
        self.declines_upgrade = False
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body are for the application, which has a limit of its own."""
        self.beside_body_bytes -= len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """A request is in progress.

        Raises
        ------
        Overloaded
            If too many wait; uvicorn then ends the connection. Without a limit each answer would let it read
            thousands more, which it only queues.
        """
        self.since_s, self.in_request = self.loop.time(), True
        offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        self.declines_upgrade = offers and not self._should_upgrade()
        if self.declines_upgrade:
            return
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_PIPELINED:
            raise Overloaded(f"more than {_MOST_PIPELINED} requests wait for their answer")

    def on_message_complete(self) -> None:
        """The whole request is here."""
        if not self.declines_upgrade:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Parse a request again without the protocol that it offers, such as h2c: a server may decline it.

        uvicorn would lose the body: behind such a head the parser expects the other protocol.
        """
        upgrade = sys.exception()
        if not self.declines_upgrade or not isinstance(upgrade, httptools.HttpParserUpgrade):
            super()._unsupported_upgrade_warning()
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.data_received(b"\r\n".join((*lines, b"", b"")) + self.piece[upgrade.args[0] :])

    def handle_websocket_upgrade(self) -> None:
        """Become a WebSocket, unless websockets cannot read the head: uvicorn would wait for ever then."""
        super().handle_websocket_upgrade()
        websocket = self.transport.get_protocol()
        if isinstance(websocket, WebSocketsSansIOProtocol) and not websocket.handshake_initiated:
            self.send_400_response(
                "the head of the stream is too long, has too many lines, or announces a body"
            )

    def send_400_response(self, msg: str) -> None:
        """Tell what is no HTTP as all other errors are told, and close the connection."""
        response = error_response(InvalidArgument(msg.rstrip("."), advice="see docs/gateway.md"))
        fields = (*response.raw_headers, (b"connection", b"close"))
        lines = (b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % field for field in fields), b"", b"")
        self.transport.write(b"\r\n".join(lines) + bytes(response.body))
        self.transport.close()

    def on_response_complete(self) -> None:
        """It waits for the next request, or for the rest of one that was answered early."""
        self.since_s, self.in_request = self.loop.time(), False
        super().on_response_complete()

    @property
    def rests(self) -> bool:
        """Whether uvicorn itself waits for the next request, with a time limit."""
        return self.timeout_keep_alive_task is not None

    @property
    def answers(self) -> bool:
        """Whether a request is in progress, and its client reads what it gets."""
        return self.in_request and not self.flow.write_paused


class Connections:
    """Ends connections that are too many or too slow. For the event loop.

    Parameters
    ----------
    state : ServerState
        Of uvicorn, which adds and removes connections.
    limits : LimitSettings
        Number and times.
    metrics : GatewayMetrics
        Counts those that are ended.
    """

    def __init__(self, state: ServerState, limits: LimitSettings, metrics: GatewayMetrics) -> None:
        self._state = state
        self._limits = limits
        self._metrics = metrics
        self._closing: dict[Any, float] = {}

    def __len__(self) -> int:
        return len(self._state.connections)

    def sweep(self, now_s: float) -> None:
        """End what has to be ended, at this time of the loop."""
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
        """As the server stops: end all but those that will take an answer."""
        for connection in list(self._state.connections):
            if not (isinstance(connection, HttpConnection) and connection.answers):
                self._end(connection, "unread")

    def _is_slow(self, connection: HttpConnection, now_s: float) -> bool:
        limits, spent_s = self._limits, now_s - connection.since_s
        if connection.in_request:  # the body has a limit of its own, with an answer
            return spent_s > 2 * limits.body_timeout_s + limits.timeout_s
        return not connection.rests and spent_s > limits.body_timeout_s

    def _end(self, connection: Any, reason: str) -> None:
        self._metrics.dropped(reason)
        connection.transport.abort()
