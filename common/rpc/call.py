"""One outgoing request of a channel, and its reply."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypedDict

from google.protobuf.message import DecodeError, Message

from nearsight.common.errors import InternalError, InvalidArgument, NearsightError
from nearsight.common.rpc.envelope import PROTOCOL, Buffer, Hop, Response, as_blob, error_of
from nearsight.common.rpc.pending_calls import PendingCall
from nearsight.common.rpc.service import RpcMethod
from nearsight.protos import rpc_pb2


class CallNames(TypedDict, total=False):
    """Optional arguments of a call beside its request."""

    blobs: Sequence[Buffer]
    """Large values beside the message. They are sent without a copy and must not change until the call has
    ended."""
    catalogue: str
    """Catalogue of the call."""
    trace_id: str
    """Trace id of the request that this call is part of; by default a new one."""
    client_id: str
    """Client for which the call is made; by default the channel's own."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call."""

    message: Any
    """Message of the method's response type."""
    blobs: tuple[memoryview, ...]
    """Large values beside it, read-only."""
    hops: tuple[Hop, ...]
    """One per tier that worked on the request, the answering server last."""
    sent_bytes: int
    received_bytes: int
    """Size of all frames of request and response."""


class Waiter:
    """The outcome of a call for which one thread waits.

    It has only the methods of ``Future`` that are needed here: a future costs more time than sending a small
    message.
    """

    __slots__ = ("_error", "_pending", "_result")

    def __init__(self) -> None:
        self._pending = threading.Lock()
        self._pending.acquire()
        self._result: Reply | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the outcome is available."""
        return not self._pending.locked()

    def set_result(self, result: Reply, /) -> None:
        """Complete with a result."""
        self._result = result
        self._pending.release()

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Complete with an error."""
        self._error = exception
        self._pending.release()

    def wait(self) -> Reply:
        """Wait for the result; raises the error if the call failed."""
        with self._pending:
            if self._error is not None or self._result is None:
                raise self._error or RuntimeError("a call ended without an outcome")
            return self._result


class Outgoing(PendingCall):
    """A request without an answer yet.

    Parameters
    ----------
    method : RpcMethod
        The called method.
    request : Message
        Its request.
    names : CallNames
        Blobs, catalogue, trace id and client id.
    limit_bytes : int
        Maximum size of message and blobs.
    deadline_s : float
        Time at which the call ends at the latest.
    outcome : Future or Waiter
        Receives the reply or the error.

    Raises
    ------
    InvalidArgument
        If the request is of another type, or too large.
    """

    __slots__ = ("_blobs", "_method", "_outcome", "_sent_bytes", "header")

    def __init__(
        self,
        method: RpcMethod,
        request: Message,
        names: CallNames,
        limit_bytes: int,
        deadline_s: float,
        outcome: Future[Reply] | Waiter,
    ) -> None:
        super().__init__(0, deadline_s, method.idempotent)
        if type(request) is not method.request_class:
            expected = method.request_class.DESCRIPTOR.full_name
            raise InvalidArgument(f"{method.full_name} takes {expected}, not {type(request).__name__}")
        message = request.SerializeToString()
        self._blobs = list(map(as_blob, names.get("blobs", ())))
        size_bytes = len(message) + sum(map(len, self._blobs))
        if size_bytes > limit_bytes:
            raise InvalidArgument(
                f"the request has {size_bytes} bytes, more than the limit of {limit_bytes}",
                advice="send less at once",
            )
        self._method = method
        self._outcome = outcome
        self._sent_bytes = 0
        self.header = rpc_pb2.RequestHeader(
            protocol=PROTOCOL,
            service=method.service,
            method=method.name,
            message=message,
            catalogue=names.get("catalogue", ""),
            trace_id=names.get("trace_id", ""),
            client_id=names.get("client_id", ""),
        )

    def frames(self, time_left_s: float) -> list[Buffer]:
        """The frames to send, with the time that is left."""
        self.header.time_left_ms = max(0, int(time_left_s * 1000))
        frames: list[Buffer] = [self.header.SerializeToString(), *self._blobs]
        self._sent_bytes = sum(map(len, frames))
        return frames

    def end(self, result: Response | NearsightError) -> None:
        """End the call with the server's response, or with an error."""
        if isinstance(result, Response) and result.header.status:  # not OK
            result = error_of(result)
        if isinstance(result, NearsightError):
            self._outcome.set_exception(result)
            return
        message = self._method.response_class()
        try:
            message.ParseFromString(result.message)
        except (DecodeError, UnicodeDecodeError):
            name = self._method.response_class.DESCRIPTOR.full_name
            self._outcome.set_exception(InternalError(f"the response is not a {name}"))
            return
        self._outcome.set_result(
            Reply(message, result.blobs, result.hops, self._sent_bytes, result.size_bytes)
        )
