"""The frames of a call: ``[header with the message] [blob 0] [blob 1] ...``, encoded and decoded.

All input is untrusted: decoding either returns a complete, validated value or raises `InvalidMessage`, and
raises no other error. Errors become status codes on the server, and status codes become errors at the client,
only in this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from operator import attrgetter
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nearsight.common.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidMessage,
    NearsightError,
    Overloaded,
    SetupError,
    StatusCode,
    error_from_status,
)
from nearsight.protos import rpc_pb2

PROTOCOL = 1
"""Version of the envelope. Both sides refuse all other versions."""

LARGEST_HEADER = 4096
"""Maximum size of a request's header without the message [bytes]: ids and names."""

LONGEST_TEXT = 2000
"""Maximum length of a transmitted error text [characters]; a text may quote what the peer sent."""

LONGEST_S = 24 * 3600.0
"""Maximum time left [s]. Longer times are reduced to a day: no caller waits longer, and the field has 32 bits
of milliseconds."""

_START_OF_HEADER = re.compile(rb"(?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x10([\x80-\xff]{0,9}[\x00-\x7f])")
"""``protocol`` (field 1; absent if 0) and ``request_id`` (field 2) of both headers, as Protobuf encodes them.
An integer has at most ten bytes."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Hop:
    """Timings of one tier for one request. Every response carries one per tier.

    Parameters
    ----------
    tier : str
        "cloud", "edge" or "device".
    queue_ms : float
        From the arrival to the start of the work.
    compute_ms : float
        From the start of the work to the response, without the wait for the next tier.
    next_tier_ms : float
        Round trips to the next tier; 0 if there was none.
    received_bytes : int
        All frames of the request.
    sent_bytes : int
        Message and blobs of the response. The header is not counted, because it carries this number.
    """

    tier: str
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    next_tier_ms: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0


_HOP_VALUES = attrgetter(*Hop.__slots__)


class Request(NamedTuple):
    """A received request. The message is still encoded: its type depends on the method."""

    header: rpc_pb2.RequestHeader
    message: bytes
    blobs: tuple[memoryview, ...]
    size_bytes: int


class Response(NamedTuple):
    """A received response. The message is still encoded."""

    header: rpc_pb2.ResponseHeader
    hops: tuple[Hop, ...]
    """One per tier that worked on the request, the answering server last."""
    message: bytes
    blobs: tuple[memoryview, ...]
    size_bytes: int


def clamp_s(seconds: float) -> float:
    """Limit a time left to the range from 0 to `LONGEST_S`; NaN becomes 0."""
    if 0.0 <= seconds <= LONGEST_S:
        return seconds
    return LONGEST_S if seconds > LONGEST_S else 0.0


def as_blob(value: Buffer) -> bytes | memoryview:
    """A blob as flat bytes, without a copy; its length is its size in bytes.

    Raises
    ------
    InvalidMessage
        If the memory is not contiguous.
    """
    if isinstance(value, bytes):
        return value
    view = memoryview(value)
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    try:
        return view.cast("B")
    except TypeError as error:
        raise InvalidMessage("a blob is not contiguous", advice="send a contiguous copy of it") from error


def encode_response(
    request_id: int,
    hops: Sequence[Hop],
    message: bytes = b"",
    blobs: Sequence[Buffer] = (),
    error: NearsightError | None = None,
    retry_after_s: float = 0.0,
) -> list[Buffer]:
    """The frames of a response; one with an error has no message."""
    header = rpc_pb2.ResponseHeader(protocol=PROTOCOL, request_id=request_id, message=message)
    if error is not None:
        header.status = error.code  # type: ignore[assignment]  # same numbers; a test checks this
        header.error, header.advice = error.message[:LONGEST_TEXT], error.advice[:LONGEST_TEXT]
        header.retry_after_ms = round(retry_after_s * 1000)
    for hop in hops:
        header.hops.add(
            tier=hop.tier,
            queue_ms=hop.queue_ms,
            compute_ms=hop.compute_ms,
            next_tier_ms=hop.next_tier_ms,
            received_bytes=hop.received_bytes,
            sent_bytes=hop.sent_bytes,
        )
    return [header.SerializeToString(), *blobs]


def decode_request(frames: Sequence[Buffer]) -> Request:
    """Read and validate the frames of a request.

    Raises
    ------
    InvalidMessage
        If the frames are not a request of this protocol.
    """
    header = rpc_pb2.RequestHeader()
    request = Request(header, *_open(frames, header))
    if len(frames[0]) - len(request.message) > LARGEST_HEADER:
        raise InvalidMessage(f"ids and names of the header have more than {LARGEST_HEADER} bytes")
    return request


def decode_response(frames: Sequence[Buffer]) -> Response:
    """Read and validate the frames of a response.

    Raises
    ------
    InvalidMessage
        If the frames are not a response of this protocol.
    """
    header = rpc_pb2.ResponseHeader()
    content = _open(frames, header)
    return Response(header, tuple(starmap(Hop, map(_HOP_VALUES, header.hops))), *content)


def _open(
    frames: Sequence[Buffer], header: rpc_pb2.RequestHeader | rpc_pb2.ResponseHeader
) -> tuple[bytes, tuple[memoryview, ...], int]:
    """Parse the first frame into the header; returns the message, the blobs, and the size of all frames."""
    if not frames:
        raise InvalidMessage("a call has at least a header")
    try:
        header.ParseFromString(bytes(frames[0]))
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage("the header cannot be read") from error
    if header.protocol != PROTOCOL:
        raise InvalidMessage(
            f"the peer speaks version {header.protocol} of the protocol, this side version {PROTOCOL}",
            advice="install the same version of nearsight on both sides",
        )
    blobs = tuple([memoryview(frame).toreadonly() for frame in frames[1:]])
    return header.message, blobs, sum(map(len, frames))


def salvage_request_id(frames: Sequence[Buffer]) -> int:
    """The request id of a header whose later bytes may be damaged; 0 if there is none.

    An error must reach the call that caused it even if most of its header cannot be read. Protobuf writes
    fields in order, so the id is near the start and often intact.
    """
    start = _START_OF_HEADER.match(bytes(frames[0][:32])) if frames else None
    value = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(start[1])) if start else 0
    return value if value < 2**64 else 0


def error_for_peer(error: BaseException, trace_id: str) -> NearsightError:
    """The error that the peer receives.

    The texts of errors in `nearsight.common.errors`, except `SetupError`, are written for the peer and sent
    unchanged. A `TimeoutError` becomes `DeadlineExceeded`. All other errors are bugs or problems of this
    machine: their details stay in its log, under the trace id.
    """
    if isinstance(error, NearsightError) and not isinstance(error, SetupError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("the server's own wait timed out")
    return InternalError(
        "the request failed inside the server",
        advice=f"its log has the details under trace_id {trace_id}"
        if trace_id
        else "its log has the details",
    )


def error_of(response: Response) -> NearsightError:
    """The error for a status other than OK; unknown codes of a newer peer become `InternalError`."""
    header = response.header
    try:
        code = StatusCode(header.status)
    except ValueError:
        text = f"the server answered with unknown status {header.status}: {header.error}"
        return InternalError(text, advice=header.advice)
    error = error_from_status(code, header.error, header.advice)
    if isinstance(error, Overloaded) and header.hops:
        error.tier = header.hops[0].tier  # the first hop is the farthest tier, which refused
    return error
