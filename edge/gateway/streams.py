"""All streams of a gateway: their limit, and when the gateway ends them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from starlette.websockets import WebSocket, WebSocketDisconnect

from nearsight.common.errors import NearsightError, Overloaded, Unavailable
from nearsight.common.rpc.envelope import Hop
from nearsight.edge.gateway.edge_client import Outcome
from nearsight.edge.gateway.errors import error_response
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.stream import GOING_AWAY, NORMAL, REFUSED, SUBPROTOCOL, TRY_LATER, Frame, Stream
from nearsight.edge.gateway.turns import Turns

_CLOSE_TIMEOUT_S = 5.0
"""Time for a client to read pending data before its stream is closed."""
_TICK_S = 0.02


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
            services.metrics.closed(REFUSED)
            await websocket.close(REFUSED, _reason(error))
            return
        if len(self._open) >= services.limits.streams_max:
            services.metrics.closed(TRY_LATER)
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
            self._services.edge.recognize(frame.photo, partial(self._answered, frame))

    def _answered(self, frame: Frame, outcome: Outcome) -> None:
        answer = outcome.answer
        if isinstance(answer, NearsightError):
            self.turns.failed(overloaded=isinstance(answer, Overloaded))
        else:
            edge = answer.hops[-1] if answer.hops else Hop("edge")
            self.turns.answered(edge.queue_ms, edge.compute_ms + edge.next_tier_ms)
        frame.stream.answer(frame, outcome)
        if isinstance(answer, Unavailable):  # waiting frames would fail as well
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
        """Answer the present frames within ``grace_s`` seconds, and close all streams."""
        until_s = self._services.clock.monotonic() + grace_s
        for stream in self._open:
            stream.leaving = True
        while any(stream.unanswered for stream in self._open) and self._services.clock.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
        for stream in self._open:
            stream.close(GOING_AWAY, "the gateway is stopping")
        while self._open and self._services.clock.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
        for stream in self._open:
            stream.abort()


def _reason(error: NearsightError) -> str:
    """The message of an error, truncated to the limit of the protocol: 123 bytes."""
    return error.message.encode()[:120].decode(errors="ignore")
