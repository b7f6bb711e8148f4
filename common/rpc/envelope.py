"""The frames of a call: ``[header with the message] [blob 0] [blob 1] ...``, encoded and decoded.

Everything that arrives comes from strangers: decoding either gives a whole, checked value or raises
`InvalidMessage`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nearsight.common.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidMessage,
    NearsightError,
    SetupError,
    StatusCode,
    error_from_status,
)
from nearsight.protos import rpc_pb2

PROTOCOL = 1
"""Version of the envelope. Both sides refuse all others."""

LARGEST_HEADER = 4096
"""Bytes that the header of a request may have beside the message: ids and names."""

MOST_FRAMES = 16384
"""Frames that one message may have."""

_REQUEST_ID_TAG = rpc_pb2.RequestHeader.DESCRIPTOR.fields_by_name["request_id"].number << 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CUT_OFF = -1

Buffer = bytes | bytearray | memoryview


class Request(NamedTuple):
    """A request as it arrived. The message is still encoded: its type is the method's."""

    request_id: int
    service: str
    method: str
    time_left_s: float
    client_id: str
    catalogue: str
    trace_id: str
    newest_wins: bool
    message: bytes
    blobs: tuple[memoryview, ...]
    size_bytes: int


class Response(NamedTuple):
    """A response as it arrived. The message is still encoded."""

    request_id: int
    status: int
    error: str
    advice: str
    hops: tuple[Hop, ...]
    message: bytes
    blobs: tuple[memoryview, ...]
    size_bytes: int


def size_of(frames: Sequence[Buffer]) -> int:
    """Bytes of all frames together; views must be flat bytes, as `as_blob` makes them."""
    return sum(map(len, frames))


def as_blob(value: Buffer) -> bytes | memoryview:
    """A blob as flat bytes, without a copy.

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
    outcome: Outcome,
    hops: Sequence[Hop] = (),
    message: bytes = b"",
    blobs: Sequence[Buffer] = (),
) -> list[Buffer]:
    """The frames of a response."""
    header = rpc_pb2.ResponseHeader(
        protocol=PROTOCOL,
        request_id=request_id,
        status=outcome.code,  # type: ignore[arg-type]  # same numbers, as a test holds
        error=outcome.error,
        advice=outcome.advice,
        message=message,
    )
    for hop in hops:
        add_hop(header, hop)
    return [header.SerializeToString(), *blobs]


def decode_request(frames: Sequence[Buffer]) -> Request:
    """Read and check the frames of a request.

    Raises
    ------
    InvalidMessage
        If the frames are no request of this protocol.
    """
    header = rpc_pb2.RequestHeader()
    blobs = _open(frames, header)
    _check_protocol(header.protocol)
    message = header.message
    if len(frames[0]) - len(message) > LARGEST_HEADER:
        raise InvalidMessage(f"ids and names of the header have more than {LARGEST_HEADER} bytes")
    return Request(
        header.request_id,
        header.service,
        header.method,
        header.time_left_ms / 1000.0,
        header.client_id,
        header.catalogue,
        header.trace_id,
        header.newest_wins,
        message,
        blobs,
        size_of(frames),
    )


def decode_response(frames: Sequence[Buffer]) -> Response:
    """Read and check the frames of a response.

    Raises
    ------
    InvalidMessage
        If the frames are no response of this protocol.
    """
    header = rpc_pb2.ResponseHeader()
    blobs = _open(frames, header)
    _check_protocol(header.protocol)
    return Response(
        header.request_id,
        header.status,
        header.error,
        header.advice,
        tuple([hop_from_proto(hop) for hop in header.hops]),
        header.message,
        blobs,
        size_of(frames),
    )


def salvage_request_id(frames: Sequence[Buffer]) -> int:
    """The request id of a header that may be damaged behind it, or 0.

    An error must reach the call that caused it even if most of its header cannot be read: protobuf writes
    fields in order, so the id (field 2 of both headers) comes first and often survives.
    """
    if not frames:
        return 0
    data = bytes(frames[0][:4096])
    position, found = 0, 0
    while 0 <= position < len(data):
        tag, position = _read_varint(data, position)
        if position == _CUT_OFF:
            break
        if tag == _REQUEST_ID_TAG:
            value, position = _read_varint(data, position)
            found = value if position != _CUT_OFF and value < 2**64 else found
        else:
            position = _skip_field(data, position, tag & 7)
    return found


def _open(
    frames: Sequence[Buffer], header: rpc_pb2.RequestHeader | rpc_pb2.ResponseHeader
) -> tuple[memoryview, ...]:
    if not frames:
        raise InvalidMessage("a call has at least a header")
    if len(frames) > MOST_FRAMES:
        raise InvalidMessage(f"a call has at most {MOST_FRAMES} frames, not {len(frames)}")
    try:
        header.ParseFromString(bytes(frames[0]))
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage("the header cannot be read") from error
    return tuple([memoryview(frame).toreadonly() for frame in frames[1:]])


def _check_protocol(version: int) -> None:
    if version != PROTOCOL:
        raise InvalidMessage(
            f"the peer speaks version {version} of the protocol, this side version {PROTOCOL}",
            advice="install the same version of nearsight on both sides",
        )


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, _CUT_OFF


def _skip_field(data: bytes, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _read_varint(data, position)[1]
    if wire_type == _BYTES:
        length, position = _read_varint(data, position)
        return position if position == _CUT_OFF else position + length
    width = {_FIXED64: 8, _FIXED32: 4}.get(wire_type)
    return _CUT_OFF if width is None else position + width


@dataclass(frozen=True, slots=True)
class Hop:
    """The share of one tier in the answer to a request.

    Parameters
    ----------
    tier : str
        "cloud", "edge" or "device".
    queue_ms : float
        From the arrival to the start of the work.
    compute_ms : float
        From the start of the work to the response, without waiting for the next tier.
    next_tier_ms : float
        Round trips to the next tier; 0 if it was not asked.
    received_bytes : int
        All frames of the request.
    sent_bytes : int
        Message and blobs of the response; its header carries this number and is not counted.
    """

    tier: str
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    next_tier_ms: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0


def add_hop(header: rpc_pb2.ResponseHeader, hop: Hop) -> None:
    """Append the wire form of a hop to a response."""
    header.hops.add(
        tier=hop.tier,
        queue_ms=hop.queue_ms,
        compute_ms=hop.compute_ms,
        next_tier_ms=hop.next_tier_ms,
        received_bytes=hop.received_bytes,
        sent_bytes=hop.sent_bytes,
    )


def hop_from_proto(message: rpc_pb2.Hop) -> Hop:
    """The hop that a wire form stands for."""
    return Hop(
        message.tier,
        message.queue_ms,
        message.compute_ms,
        message.next_tier_ms,
        message.received_bytes,
        message.sent_bytes,
    )


LONGEST_TEXT = 2000
"""Characters of an error text that travel; a text may quote what the peer sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: a status code and, unless it is OK, what to tell the peer."""

    code: StatusCode
    error: str = ""
    advice: str = ""


OK = Outcome(StatusCode.OK)


def is_internal(error: BaseException) -> bool:
    """Whether the error is a bug or a trouble of this machine, which the peer is not told about."""
    if isinstance(error, SetupError):
        return True
    return not isinstance(error, NearsightError | TimeoutError)


def outcome_of(error: BaseException, trace_id: str) -> Outcome:
    """The status that an error becomes."""
    if is_internal(error):
        return Outcome(
            StatusCode.INTERNAL,
            "the request failed inside the server",
            f"its log has the details under trace_id {trace_id}" if trace_id else "its log has the details",
        )
    if isinstance(error, NearsightError):
        return Outcome(error.code, error.message[:LONGEST_TEXT], error.advice[:LONGEST_TEXT])
    return Outcome(DeadlineExceeded.code, "the server's own wait timed out")


def error_of(code: int, message: str, advice: str) -> NearsightError:
    """The error that a status other than OK stands for; codes of a newer peer count as INTERNAL."""
    try:
        known = StatusCode(code)
    except ValueError:
        return InternalError(f"the server answered with unknown status {code}: {message}", advice=advice)
    return error_from_status(known, message, advice)
