"""Live frames over a WebSocket: binary frames up, one text for each down, credits between them.

Frames: 4 bytes with the number of the frame, big endian, then an image file. A client may have as many frames
unanswered as it has credits; each answer or error gives one back, and so does the word that a newer frame has
taken the place of one that waited (see `turns`).
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
from nearsight.edge.gateway.access import Visitor
from nearsight.edge.gateway.edge_client import Outcome, Photo
from nearsight.edge.gateway.errors import TooFast, error_json
from nearsight.edge.gateway.services import GatewayServices

SUBPROTOCOL = "nearsight.v1"
ROUTE = "stream"
NORMAL, GOING_AWAY, REFUSED, TRY_LATER = 1000, 1001, 1008, 1013
"""Codes with which a stream is closed."""

Desk = Callable[["Frame"], None]
"""Takes a frame; sees that it is answered or superseded."""

_NUMBER_BYTES = 4
_MOST_UNSENT = 8
"""Texts beyond the credits that may wait for a client which reads none: then it is not read either."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A picture of a stream, which is owed an answer."""

    stream: Stream
    number: int
    """As the client calls it."""
    photo: Photo


class Stream:
    """One WebSocket, on the event loop, in the task that runs it.

    Parameters
    ----------
    websocket : WebSocket
        Accepted.
    visitor : Visitor
        Who asks.
    catalogue : str
        About what.
    services : GatewayServices
        Rates, metrics.
    ask : callable
        Takes each frame that may be asked about.

    Attributes
    ----------
    unanswered : int
        Frames that are taken and not answered.
    last_frame_s : float
        When the last frame came, or the stream began.
    closing_since_s : float or None
        When this side began to close it.
    leaving : bool
        The gateway stops: no further frame is taken.
    """

    def __init__(
        self, websocket: WebSocket, visitor: Visitor, catalogue: str, services: GatewayServices, ask: Desk
    ) -> None:
        self.visitor = visitor
        self.unanswered = 0
        self.last_frame_s = services.clock.monotonic()
        self.closing_since_s: float | None = None
        self.leaving = False
        self._websocket = websocket
        self._catalogue = catalogue
        # Each stream has a history of its own at the edge: who looks at what next is learnt per client.
        self._client_id = f"{services.client_id}/{visitor.name}/{secrets.token_hex(4)}"
        self._services = services
        self._ask = ask
        self._task = asyncio.current_task()
        self._unsent: deque[str] = deque()
        self._close: tuple[int, str] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Serve until either side closes."""
        limits = self._services.limits
        ready = {"type": "ready", "credits": limits.credits, "max_bytes": limits.max_frame_bytes}
        self._send(ready)
        sending = asyncio.create_task(self._send_all())
        try:
            while (message := await self._websocket.receive())["type"] == "websocket.receive":
                self._take(message.get("bytes"))
                while len(self._unsent) > limits.credits + _MOST_UNSENT:
                    self._room.clear()
                    await self._room.wait()
        except asyncio.CancelledError:
            pass  # by `abort`: nothing is left to be said to this client
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    def close(self, code: int, reason: str) -> None:
        """Close it from this side, after what waits to be sent."""
        if self._close is None:
            self._close = code, reason
            self.closing_since_s = self._services.clock.monotonic()
            self._services.metrics.closed(code)
            self._wake.set()

    def abort(self) -> None:
        """End it without a word: its client reads nothing."""
        if self._task is not None:
            self._task.cancel()

    def _take(self, frame: bytes | None) -> None:
        """Ask the edge about a frame, or say why not."""
        services, number = self._services, None
        try:
            if frame is None or len(frame) <= _NUMBER_BYTES:
                raise InvalidArgument(
                    "a frame is binary: its number in four bytes, then an image", advice="see docs/gateway.md"
                )
            number = int.from_bytes(frame[:_NUMBER_BYTES])
            self.last_frame_s = services.clock.monotonic()
            if self.leaving:
                raise Unavailable("the gateway stops", advice="connect again in a moment")
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
        """The edge has answered one of its frames."""
        self._finish(frame)
        self._services.metrics.asked(ROUTE, outcome.latency_ms)
        if isinstance(outcome.answer, NearsightError):
            self._fail(frame.number, outcome.answer)
            return
        self._services.metrics.answered(ROUTE, "OK")
        self._send({"type": "answer", "frame": frame.number, **outcome.to_json()})

    def refuse(self, frame: Frame, error: NearsightError) -> None:
        """One of its frames is not asked about."""
        self._finish(frame)
        self._fail(frame.number, error)

    def supersede(self, frame: Frame) -> None:
        """A newer frame has taken the place of one that waited."""
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
