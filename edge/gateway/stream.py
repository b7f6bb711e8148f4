"""Live frames over a WebSocket: the client sends binary frames, and receives one text message for each.

A frame consists of its number (4 bytes, big endian) and an image file. The number of unanswered frames is
limited by credits. Each answer or error returns one credit. So does a message that a newer frame has replaced
a waiting one (see `turns`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.websockets import WebSocket, WebSocketDisconnect

from nearsight.common.errors import InvalidArgument, NearsightError, Overloaded, Unavailable
from nearsight.edge.gateway.edge_client import Outcome, Photo
from nearsight.edge.gateway.errors import TooFast, error_json
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.tokens import Token

SUBPROTOCOL = "nearsight.v1"
ROUTE = "stream"
NORMAL, GOING_AWAY, REFUSED, TRY_LATER = 1000, 1001, 1008, 1013
"""Close codes of a stream."""

FrameHandler = Callable[["Frame"], None]
"""Receives a frame, and ensures that it is answered or superseded."""

_NUMBER_BYTES = 4
_MAX_UNSENT = 8
"""Limit of unsent texts beyond the credits; if a client does not read, its frames are not read either."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame of a stream that needs an answer."""

    stream: Stream
    number: int
    """Number that the client gave the frame."""
    photo: Photo


class Stream:
    """One WebSocket, on the event loop. The task that creates the object also calls `run`.

    Parameters
    ----------
    websocket : WebSocket
        The accepted WebSocket.
    visitor : Token
        Client of the stream.
    catalogue : str
        Catalogue of the objects that frames may show.
    services : GatewayServices
        Rates, limits and metrics.
    ask : callable
        Receives each accepted frame.

    Attributes
    ----------
    unanswered : int
        Number of accepted frames without an answer.
    last_frame_s : float
        Time of the last frame, or of the start of the stream.
    closing_since_s : float or None
        Time at which the gateway started to close the stream; None before.
    leaving : bool
        Whether the gateway is stopping; then new frames are rejected.
    """

    def __init__(
        self,
        websocket: WebSocket,
        visitor: Token,
        catalogue: str,
        services: GatewayServices,
        ask: FrameHandler,
    ) -> None:
        self.visitor = visitor
        self.unanswered = 0
        self.last_frame_s = services.clock.monotonic()
        self.closing_since_s: float | None = None
        self.leaving = False
        self._websocket = websocket
        self._catalogue = catalogue
        # Each stream has its own history at the edge, which learns transitions per client.
        self._client_id = f"{services.client_id}/{visitor.name}/{secrets.token_hex(4)}"
        self._services = services
        self._ask = ask
        self._task = asyncio.current_task()
        self._unsent: deque[str] = deque()
        self._close: tuple[int, str] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Process the stream until either side closes it."""
        limits = self._services.limits
        ready = {"type": "ready", "credits": limits.credits, "max_bytes": limits.max_frame_bytes}
        self._send(ready)
        sending = asyncio.create_task(self._send_all())
        try:
            while (message := await self._websocket.receive())["type"] == "websocket.receive":
                self._take(message.get("bytes"))
                while len(self._unsent) > limits.credits + _MAX_UNSENT:
                    self._room.clear()
                    await self._room.wait()
        except asyncio.CancelledError:
            pass  # by `abort`, without a message to the client
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    def close(self, code: int, reason: str) -> None:
        """Close the stream after sending the waiting texts."""
        if self._close is None:
            self._close = code, reason
            self.closing_since_s = self._services.clock.monotonic()
            self._services.metrics.closed(code)
            self._wake.set()

    def abort(self) -> None:
        """End the stream without a message, because its client does not read."""
        if self._task is not None:
            self._task.cancel()

    def _take(self, frame: bytes | None) -> None:
        """Pass a frame on to be recognised, or reject it."""
        services, number = self._services, None
        try:
            if frame is None or len(frame) <= _NUMBER_BYTES:
                raise InvalidArgument(
                    "a frame is binary: its number in four bytes, then an image", advice="see docs/gateway.md"
                )
            number = int.from_bytes(frame[:_NUMBER_BYTES])
            self.last_frame_s = services.clock.monotonic()
            if self.leaving:
                raise Unavailable("the gateway is stopping", advice="connect again in a moment")
            if self.unanswered >= services.limits.credits:
                raise Overloaded(
                    f"{self.unanswered} frames are unanswered",
                    advice="wait for an answer before the next frame",
                )
            services.access.charge(self.visitor)
            services.access.hold(len(frame))
        except NearsightError as error:
            self._fail(number, error)
            return
        self.unanswered += 1
        image = memoryview(frame)[_NUMBER_BYTES:]
        self._ask(Frame(self, number, Photo(image, self._catalogue, self._client_id, one_look=True)))

    def answer(self, frame: Frame, outcome: Outcome) -> None:
        """Send the edge's answer to a frame."""
        self._finish(frame)
        self._services.metrics.asked(ROUTE, outcome.latency_ms)
        if isinstance(outcome.answer, NearsightError):
            self._fail(frame.number, outcome.answer)
            return
        self._services.metrics.answered(ROUTE, "OK")
        self._send({"type": "answer", "frame": frame.number, **outcome.to_json()})

    def refuse(self, frame: Frame, error: NearsightError) -> None:
        """Send an error for a frame that is not sent to the edge."""
        self._finish(frame)
        self._fail(frame.number, error)

    def supersede(self, frame: Frame) -> None:
        """Report that a newer frame replaced a waiting one."""
        self._finish(frame)
        self._services.metrics.answered(ROUTE, "SUPERSEDED")
        self._send({"type": "superseded", "frame": frame.number})

    def _finish(self, frame: Frame) -> None:
        self.unanswered -= 1
        self._services.access.release(_NUMBER_BYTES + len(frame.photo.image))

    def _fail(self, number: int | None, error: NearsightError) -> None:
        self._services.metrics.answered(ROUTE, error.code.name)
        text: dict[str, object] = {"type": "error", "frame": number, "error": error_json(error)}
        if isinstance(error, TooFast):
            text["retry_after_s"] = error.retry_after_s
        self._send(text)

    def _send(self, text: dict[str, object]) -> None:
        self._unsent.append(json.dumps(text))
        self._wake.set()

    async def _send_all(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # closed by the client meanwhile
            while self._close is None or self._unsent:
                await self._wake.wait()
                self._wake.clear()
                while self._unsent:
                    await self._websocket.send_text(self._unsent.popleft())
                    self._room.set()
            await self._websocket.close(*self._close)
