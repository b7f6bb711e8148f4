"""One request in the hands of a server, and the requests whose answers are still owed."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from nearsight.common.errors import DeadlineExceeded
from nearsight.common.rpc.dispatch import Endpoint
from nearsight.common.rpc.envelope import Buffer, Request, as_blob, encode_response, size_of
from nearsight.common.rpc.hops import Hop
from nearsight.common.rpc.service import CallContext
from nearsight.common.rpc.status import OK


class ServedCall:
    """A request that was admitted, with its times.

    Parameters
    ----------
    serial : int
        Unique within the server.
    request : Request
        As it arrived.
    endpoint : Endpoint
        Its method.
    context : CallContext
        What its handler sees.
    reply : callable
        Sends the frames of the answer.
    arrived_s : float
        When it arrived.
    """

    __slots__ = ("_started_s", "arrived_s", "context", "endpoint", "reply", "request", "serial")

    def __init__(
        self,
        serial: int,
        request: Request,
        endpoint: Endpoint,
        context: CallContext,
        reply: Callable[[Sequence[Buffer]], None],
        arrived_s: float,
    ) -> None:
        self.serial = serial
        self.request = request
        self.endpoint = endpoint
        self.context = context
        self.reply = reply
        self.arrived_s = arrived_s
        self._started_s: float | None = None

    def start(self, now_s: float) -> None:
        """The work begins."""
        self._started_s = now_s
        self.context.queue_ms = (now_s - self.arrived_s) * 1000.0

    def hop(self, tier: str, now_s: float, *, sent_bytes: int) -> Hop:
        """What this server spent on the call so far."""
        if self._started_s is None:
            return Hop(tier, (now_s - self.arrived_s) * 1000.0, 0.0, 0.0, self.request.size_bytes, sent_bytes)
        worked_ms = (now_s - self._started_s) * 1000.0
        next_tier_ms = self.context.next_tier_ms
        return Hop(
            tier,
            self.context.queue_ms,
            max(0.0, worked_ms - next_tier_ms),
            next_tier_ms,
            self.request.size_bytes,
            sent_bytes,
        )

    def response_frames(self, tier: str, response: Message, now_s: float) -> tuple[list[Buffer], int]:
        """The frames of the answer, and the bytes of its message and blobs."""
        message = response.SerializeToString()
        blobs = [as_blob(blob) for blob in self.context.response_blobs]
        sent_bytes = len(message) + size_of(blobs)
        hops = [*self.context.hops, self.hop(tier, now_s, sent_bytes=sent_bytes)]
        return encode_response(self.request.request_id, OK, hops, message, blobs), sent_bytes

    def too_late(self) -> DeadlineExceeded:
        """The error of a call whose work did not end in time."""
        return DeadlineExceeded(f"{self.endpoint.method.full_name} did not finish within the time given")


class DeferredCalls:
    """Calls whose handlers returned a future, by deadline; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, ServedCall] = {}
        self._dues: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ServedCall) -> None:
        """An answer is owed."""
        with self._lock:
            self._calls[call.serial] = call
            heapq.heappush(self._dues, (call.context.deadline.at_s, call.serial))

    def discard(self, call: ServedCall) -> None:
        """The answer came."""
        with self._lock:
            self._calls.pop(call.serial, None)
            while self._dues and self._dues[0][1] not in self._calls:
                heapq.heappop(self._dues)

    def expired(self, now_s: float) -> list[ServedCall]:
        """Remove and return the calls whose time is over."""
        late: list[ServedCall] = []
        with self._lock:
            while self._dues and (self._dues[0][0] <= now_s or self._dues[0][1] not in self._calls):
                call = self._calls.pop(heapq.heappop(self._dues)[1], None)
                if call is not None:
                    late.append(call)
        return late
