"""The pending answers of a server: every accepted request gets exactly one answer.

A call is answered by the thread that removes it from the table. Its deadline and its handler may race for
that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import xxhash
from google.protobuf.message import Message

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded, InvalidMessage, Overloaded, StatusCode
from nearsight.common.logging import get_logger
from nearsight.common.rpc.admission import Sender
from nearsight.common.rpc.envelope import Buffer, Hop, Request, as_blob, encode_response, error_for_peer
from nearsight.common.rpc.service import CallContext, Endpoint
from nearsight.common.rpc.settings import ServerSettings

if TYPE_CHECKING:
    from nearsight.common.metrics import DaemonMetrics

_LONGEST_WAIT_S = 60.0
"""Maximum time until the next check of deadlines [s]. A check that is replaced by an earlier one needs memory
until its time, and clients choose the deadlines."""


@dataclass(slots=True, eq=False)
class ServedCall:
    """An accepted request and its times."""

    request: Request
    """The request as received."""
    endpoint: Endpoint
    """The called method."""
    context: CallContext
    """Context that the handler receives."""
    reply: Callable[[Sequence[Buffer]], None]
    """Sends the frames of the answer."""
    sender: Sender
    """Identity for the fair order of the queue."""
    peer: Hashable
    """Connection of the request."""
    arrived_s: float
    """Arrival time."""
    started_s: float | None = None
    """Start of the handler; None before."""

    def hop(self, tier: str, now_s: float, sent_bytes: int = 0) -> Hop:
        """Time that this server has spent on the call so far."""
        started_s = now_s if self.started_s is None else self.started_s
        next_tier_ms = self.context.next_tier_ms
        return Hop(
            tier,
            (started_s - self.arrived_s) * 1000.0,
            max(0.0, (now_s - started_s) * 1000.0 - next_tier_ms),
            next_tier_ms,
            self.request.size_bytes,
            sent_bytes,
        )


class Answers:
    """The unanswered calls of a server, and the ways to answer them. Thread-safe.

    Parameters
    ----------
    tier : str
        Name of this tier in the hops of responses.
    settings : ServerSettings
        Limits, and which requests are logged.
    clock : Clock
        Times of calls.
    metrics : DaemonMetrics or None
        Counts every answered call.
    background : BackgroundWorker
        Answers deferred calls at their deadline.
    """

    def __init__(
        self,
        tier: str,
        settings: ServerSettings,
        clock: Clock,
        metrics: DaemonMetrics | None,
        background: BackgroundWorker,
    ) -> None:
        self._tier = tier
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._background = background
        self._log = get_logger("rpc.server")
        self.unanswered: dict[int, ServedCall] = {}
        """Unanswered calls by identity. The code that accepts a request adds its call."""
        self.deferred: dict[int, ServedCall] = {}
        """The subset of `unanswered` whose handlers returned a future."""

    def check_deferred(self, sender: Sender) -> None:
        """Raise Overloaded if too many deferred answers are pending, in total and for this peer.

        A peer may have as many pending answers as are still free for others, so a new peer always has room.
        Source: dynamic thresholds (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998), with
        a factor of 1.
        """
        total = len(self.deferred)
        own = sum(call.sender.peer == sender.peer for call in list(self.deferred.values()))
        if total + own >= self._settings.deferred_limit:
            raise Overloaded(
                f"{own} deferred answers of this client are in progress, and {total} in total",
                advice="try again later",
            )

    def finish(self, call: ServedCall, result: object) -> None:
        """Answer with the result of the handler, now or when the future that it returned is done."""
        if isinstance(result, Future):
            self.deferred[id(call)] = call
            left_s = call.context.deadline.at_s - self._clock.monotonic()
            self._background.submit(self._expire, name="expire", after_s=min(left_s, _LONGEST_WAIT_S))
            result.add_done_callback(partial(self._finish_deferred, call))
            return
        now_s, expected = self._clock.monotonic(), call.endpoint.method.response_class
        try:
            if not isinstance(result, expected):
                raise TypeError(f"the handler returned {type(result).__name__}, not {expected.__name__}")
            if now_s >= call.context.deadline.at_s:
                raise _too_late(call)
            message = result.SerializeToString()
            blobs = list(map(as_blob, call.context.response_blobs))
            sent_bytes = len(message) + sum(map(len, blobs))
            if sent_bytes > self._settings.max_message_bytes:
                raise too_large("response", sent_bytes, self._settings.max_message_bytes)
            hop = call.hop(self._tier, now_s, sent_bytes)
            frames = encode_response(
                call.request.header.request_id, [*call.context.hops, hop], message, blobs
            )
        except Exception as error:  # noqa: BLE001  # blobs or hops of a wrong type are a bug of the handler
            self.fail(call, error)
        else:
            self._answer(call, StatusCode.OK, frames, hop)

    def fail(self, call: ServedCall, error: BaseException, retry_after_s: float = 0.0) -> None:
        """Answer with an error."""
        peer_error = error_for_peer(error, call.context.trace_id)
        if peer_error.code is StatusCode.INTERNAL:
            self._log.error(
                "a call failed inside the server",
                method=call.endpoint.method.full_name,
                trace_id=call.context.trace_id,
                client=call.context.client_id,
                exc_info=error,
            )
        hop = call.hop(self._tier, self._clock.monotonic())
        hops = [*call.context.hops, hop]
        frames = encode_response(
            call.request.header.request_id, hops, error=peer_error, retry_after_s=retry_after_s
        )
        self._answer(call, peer_error.code, frames, hop)

    def _expire(self) -> None:
        """Answer the deferred calls whose deadline has passed; repeated at the next deadline."""
        now_s = self._clock.monotonic()
        try:
            for call in list(self.deferred.values()):
                if call.context.deadline.at_s <= now_s:
                    self.deferred.pop(id(call), None)
                    self.fail(call, _too_late(call))
        finally:
            deadlines_s = [call.context.deadline.at_s for call in list(self.deferred.values())]
            if deadlines_s:
                left_s = min(deadlines_s) - now_s
                self._background.submit(self._expire, name="expire", after_s=min(left_s, _LONGEST_WAIT_S))

    def _finish_deferred(self, call: ServedCall, future: Future[Message]) -> None:
        self.deferred.pop(id(call), None)
        try:
            result = future.result(timeout=0)
        except BaseException as error:  # noqa: BLE001  # any exception of the future, also a cancellation
            self.fail(call, error)
        else:
            self.finish(call, result)

    def _answer(self, call: ServedCall, code: StatusCode, frames: Sequence[Buffer], hop: Hop) -> None:
        if self.unanswered.pop(id(call), None) is None:
            return
        call.reply(frames)
        if self._settings.log_requests != "off":
            self._log_request(call, code, hop)
        if self._metrics is not None:
            self._metrics.on_call(
                call.endpoint.method.service,
                call.endpoint.method.name,
                code,
                hop.queue_ms,
                hop.compute_ms if call.started_s is not None else None,
                hop.received_bytes,
                hop.sent_bytes,
            )

    def _log_request(self, call: ServedCall, code: StatusCode, hop: Hop) -> None:
        """Log a request, if it belongs to the logged share."""
        trace_id, settings = call.context.trace_id, self._settings
        if xxhash.xxh32_intdigest(trace_id.encode()) >= settings.log_share * 2**32:
            return
        self._log.log(
            logging.getLevelNamesMapping()[settings.log_requests.upper()],
            "request",
            method=call.endpoint.method.full_name,
            code=code.name,
            trace_id=trace_id,
            client=call.context.client_id,
            catalogue=call.context.catalogue,
            queue_ms=round(hop.queue_ms, 2),
            compute_ms=round(hop.compute_ms, 2),
            next_tier_ms=round(hop.next_tier_ms, 2),
            received_bytes=hop.received_bytes,
            sent_bytes=hop.sent_bytes,
        )


def _too_late(call: ServedCall) -> DeadlineExceeded:
    return DeadlineExceeded(f"{call.endpoint.method.full_name} did not finish before its deadline")


def too_large(what: str, size_bytes: int, limit_bytes: int) -> InvalidMessage:
    """The error for a request or response that exceeds ``max_message_bytes``."""
    return InvalidMessage(
        f"the {what} has {size_bytes} bytes, more than the limit of {limit_bytes}",
        advice="transfer less at once",
    )
