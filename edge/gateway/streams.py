"""Live frames over a WebSocket: the client sends binary frames, and receives one text message for each.

A frame consists of its number (4 bytes, big endian) and an image file. The number of unanswered frames is
limited by credits. Each answer or error returns one credit. So does a message that a newer frame has replaced
a waiting one (see `turns`). `Streams` limits the number of streams, and ends them.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from starlette.websockets import WebSocket, WebSocketDisconnect

from nearsight.common.errors import InvalidArgument, NearsightError, Overloaded, Unavailable
from nearsight.common.rpc.envelope import Hop
from nearsight.edge.gateway.edge_client import Outcome
from nearsight.edge.gateway.errors import TooFast, error_json, error_response
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.tokens import Token
from nearsight.edge.gateway.turns import Turns

SUBPROTOCOL = "nearsight.v1"
ROUTE = "stream"
NORMAL, GOING_AWAY, REFUSED, TRY_LATER = 1000, 1001, 1008, 1013
"""Close codes of a stream."""

_STOPS = "the gateway is stopping"
_NUMBER_BYTES = 4
_MAX_UNSENT = 8
"""Limit of unsent texts beyond the credits; if a client does not read, its frames are not read either."""
_CLOSE_TIMEOUT_S = 5.0
"""Time for a client to read pending data before its stream is closed."""
_TICK_S = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame of a stream that needs an answer."""

    stream: Stream
    number: int
    """Number that the client gave the frame."""
    image: memoryview
    """Content of the image file."""


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
        Receives each accepted frame, and ensures that it is answered or superseded.

    Attributes
    ----------
    catalogue, client_id : str
        Catalogue of its frames, and name of the stream at the edge.
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
        ask: Callable[[Frame], None],
    ) -> None:
        self.visitor = visitor
        self.unanswered = 0
        self.last_frame_s = services.clock.monotonic()
        self.closing_since_s: float | None = None
        self.leaving = False
        self._websocket = websocket
        self.catalogue = catalogue
        # Each stream has its own history at the edge, which learns transitions per client.
        self.client_id = f"{services.client_id}/{visitor.name}/{secrets.token_hex(4)}"
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
            while not sending.done():
                message = await self._websocket.receive()
                if message["type"] != "websocket.receive":
                    break
                self._take(message.get("bytes"))
                while len(self._unsent) > limits.credits + _MAX_UNSENT and not sending.done():
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
            self._services.metrics.closed.labels(str(code)).inc()
            self._wake.set()

    def abort(self) -> None:
        """End the stream without a message, because its client does not read."""
        if self._task is not None:
            self._task.cancel()

    def _take(self, frame: bytes | None) -> None:
        """Pass a frame on to be recognised, or reject it."""
        services = self._services
        number = int.from_bytes(frame[:_NUMBER_BYTES]) if frame and len(frame) > _NUMBER_BYTES else None
        if number is not None:
            self.last_frame_s = services.clock.monotonic()
        try:
            services.access.charge(self.visitor)
            if frame is None or number is None:
                raise InvalidArgument(
                    "a frame is binary: its number in four bytes, then an image", advice="see docs/gateway.md"
                )
            if self.leaving:
                raise Unavailable(_STOPS, advice="connect again in a moment")
            if self.unanswered >= services.limits.credits:
                raise Overloaded(
                    f"{self.unanswered} frames are unanswered",
                    advice="wait for an answer before the next frame",
                )
            services.access.hold(len(frame))
        except NearsightError as error:
            self._fail(number, error)
            return
        self.unanswered += 1
        self._ask(Frame(self, number, memoryview(frame)[_NUMBER_BYTES:]))

    def answer(self, frame: Frame, outcome: Outcome) -> None:
        """Send the edge's answer to a frame."""
        self._finish(frame)
        self._services.metrics.edge_seconds.labels(ROUTE).observe(outcome.latency_ms / 1000)
        if isinstance(outcome.answer, NearsightError):
            self._fail(frame.number, outcome.answer)
            return
        self._services.metrics.requests.labels(ROUTE, "OK").inc()
        self._send({"type": "answer", "frame": frame.number, **outcome.to_json()})

    def refuse(self, frame: Frame, error: NearsightError) -> None:
        """Send an error for a frame that is not sent to the edge."""
        self._finish(frame)
        self._fail(frame.number, error)

    def supersede(self, frame: Frame) -> None:
        """Report that a newer frame replaced a waiting one."""
        self._finish(frame)
        self._services.metrics.requests.labels(ROUTE, "SUPERSEDED").inc()
        self._send({"type": "superseded", "frame": frame.number})

    def _finish(self, frame: Frame) -> None:
        self.unanswered -= 1
        self._services.access.release(_NUMBER_BYTES + len(frame.image))

    def _fail(self, number: int | None, error: NearsightError) -> None:
        self._services.metrics.requests.labels(ROUTE, error.code.name).inc()
        text: dict[str, object] = {"type": "error", "frame": number, "error": error_json(error)}
        if isinstance(error, TooFast):
            text["retry_after_s"] = error.retry_after_s
        self._send(text)

    def _send(self, text: dict[str, object]) -> None:
        self._unsent.append(json.dumps(text))
        self._wake.set()

    async def _send_all(self) -> None:
        try:
            while self._close is None or self._unsent:
                await self._wake.wait()
                self._wake.clear()
                while self._unsent:
                    await self._websocket.send_text(self._unsent.popleft())
                    self._room.set()
            await self._websocket.close(*self._close)
        except (WebSocketDisconnect, RuntimeError):
            pass  # closed by the client meanwhile
        finally:
            self._room.set()


class Streams:
    """Opens, monitors and ends streams. For the event loop.

    Parameters
    ----------
    services : GatewayServices
        Objects that requests and streams share.
    """

    def __init__(self, services: GatewayServices) -> None:
        self._services = services
        self._open: set[Stream] = set()
        self._stopping = False
        self.turns: Turns[Stream, Frame] = Turns()
        """Waiting frames, and places at the edge."""

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, websocket: WebSocket) -> None:
        """Serve a WebSocket until it is closed."""
        with suppress(WebSocketDisconnect):  # during the handshake
            await self._serve(websocket)

    async def _serve(self, websocket: WebSocket) -> None:
        services = self._services
        catalogue = websocket.path_params["name"]
        offered = websocket.scope["subprotocols"]
        try:
            services.access.check_origin(websocket)
        except NearsightError as error:
            # Before the handshake: a page of another site gets status 403, and no open connection.
            await websocket.send_denial_response(error_response(error))
            return
        # Browsers hide the status of a failed handshake from a page. Therefore other rejections follow the
        # handshake.
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        try:
            visitor = services.access.identify(websocket)
            services.access.check(visitor, catalogue)
        except NearsightError as error:
            services.metrics.closed.labels(str(REFUSED)).inc()
            await websocket.close(REFUSED, _reason(error))
            return
        if self._stopping:
            services.metrics.closed.labels(str(GOING_AWAY)).inc()
            await websocket.close(GOING_AWAY, _STOPS)
            return
        if len(self._open) >= services.limits.streams_max:
            services.metrics.closed.labels(str(TRY_LATER)).inc()
            await websocket.close(TRY_LATER, "too many streams; try again later")
            return
        stream = Stream(websocket, visitor, catalogue, services, self._take)
        self._open.add(stream)
        try:
            await stream.run()
        finally:
            self._open.discard(stream)
            waiting = self.turns.withdraw(stream)
            if waiting is not None:
                stream.supersede(waiting)

    def _take(self, frame: Frame) -> None:
        """Accept a new frame: it goes to the edge, or waits for its stream's turn."""
        replaced = self.turns.offer(frame.stream, frame)
        if replaced is not None:
            replaced.stream.supersede(replaced)
        self._send_next()

    def _send_next(self) -> None:
        while (frame := self.turns.take()) is not None:
            stream = frame.stream
            asked = self._services.edge.recognize(
                frame.image, stream.catalogue, stream.client_id, one_look=True
            )
            asked.add_done_callback(partial(self._answered, frame))

    def _answered(self, frame: Frame, done: asyncio.Future[Outcome]) -> None:
        outcome = done.result()
        answer = outcome.answer
        if isinstance(answer, NearsightError):
            self.turns.failed(overloaded=isinstance(answer, Overloaded))
        else:
            edge = answer.hops[-1] if answer.hops else Hop("edge")
            self.turns.answered(edge.queue_ms, edge.compute_ms + edge.next_tier_ms)
        frame.stream.answer(frame, outcome)
        if isinstance(answer, Unavailable) and not answer.reached:  # waiting frames would fail as well
            for waiting in self.turns.withdraw_all():
                waiting.stream.refuse(waiting, answer)
        self._send_next()

    def sweep(self) -> None:
        """End streams with a revoked token, idle ones, and those that do not close."""
        services = self._services
        now_s = services.clock.monotonic()
        for stream in self._open:
            if stream.closing_since_s is not None:
                if now_s > stream.closing_since_s + _CLOSE_TIMEOUT_S:
                    stream.abort()
            elif not services.access.still_allows(stream.visitor):
                stream.close(REFUSED, "this token is invalid or was revoked")
            elif now_s > stream.last_frame_s + services.limits.idle_s:
                stream.close(NORMAL, "no frame arrived for a long time")

    async def stop(self, grace_s: float) -> None:
        """Answer the present frames within ``grace_s`` seconds, close all streams, and open no more."""
        until_s = self._services.clock.monotonic() + grace_s
        self._stopping = True
        for stream in self._open:
            stream.leaving = True
        while any(stream.unanswered for stream in self._open) and self._services.clock.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
        for stream in self._open:
            stream.close(GOING_AWAY, _STOPS)
        while self._open and self._services.clock.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
        for stream in self._open:
            stream.abort()


def _reason(error: NearsightError) -> str:
    """The message of an error, truncated to the limit of the protocol: 123 bytes."""
    return error.message.encode()[:120].decode(errors="ignore")
