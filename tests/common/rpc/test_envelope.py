import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import (
    CorruptStore,
    DeadlineExceeded,
    ImageTooLarge,
    InternalError,
    InvalidArgument,
    InvalidMessage,
    NearsightError,
    NotFound,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.rpc.envelope import (
    LARGEST_HEADER,
    LONGEST_S,
    Buffer,
    Hop,
    as_blob,
    clamp_s,
    decode_request,
    decode_response,
    encode_response,
    error_for_peer,
    error_of,
    salvage_request_id,
)
from nearsight.protos import rpc_pb2

names = st.text(max_size=40)
hops = st.builds(
    Hop,
    names,
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
)
blobs = st.lists(st.binary(max_size=100), max_size=4)


headers = st.builds(
    rpc_pb2.RequestHeader,
    protocol=st.just(1),
    request_id=st.integers(0, 2**64 - 1),
    service=names,
    method=names,
    time_left_ms=st.integers(0, 2**32 - 1),
    client_id=names,
    catalogue=names,
    trace_id=names,
    message=st.binary(max_size=99),
)


@given(headers, blobs)
def test_a_request_arrives_as_it_was_sent(header: rpc_pb2.RequestHeader, parts: list[bytes]) -> None:
    frames: list[Buffer] = [header.SerializeToString(), *parts]
    got = decode_request(frames)
    assert (got.header, got.message) == (header, header.message)
    assert [bytes(blob) for blob in got.blobs] == parts
    assert got.size_bytes == sum(map(len, frames))


@given(
    st.integers(0, 2**64 - 1),
    st.none() | st.builds(Overloaded, names, advice=names),
    st.lists(hops, max_size=4),
    st.binary(max_size=99),
    blobs,
    st.integers(0, 60_000),
)
def test_a_response_arrives_as_it_was_sent(
    request_id: int,
    error: Overloaded | None,
    way: list[Hop],
    message: bytes,
    parts: list[bytes],
    retry_after_ms: int,
) -> None:
    frames = encode_response(request_id, way, message, parts, error, retry_after_ms / 1000)
    got = decode_response(frames)
    told = (error.code, error.message, error.advice) if error else (0, "", "")
    assert (got.header.request_id, got.header.status, got.header.error, got.header.advice) == (
        request_id,
        *told,
    )
    assert got.hops == tuple(way)
    assert got.message == message
    assert [bytes(blob) for blob in got.blobs] == parts
    assert got.size_bytes == sum(map(len, frames))
    assert got.header.retry_after_ms == (retry_after_ms if error else 0)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_arbitrary_frames_are_a_message_or_invalid_and_nothing_else(frames: list[bytes]) -> None:
    for decode in (decode_request, decode_response):
        try:
            decode(frames)
        except InvalidMessage as error:
            assert error.message
    assert 0 <= salvage_request_id(frames) < 2**64


@given(st.integers(1, 2**64 - 1), st.binary(min_size=1, max_size=50))
def test_the_request_id_survives_damage_behind_it(request_id: int, damage: bytes) -> None:
    head = rpc_pb2.RequestHeader(protocol=1, request_id=request_id).SerializeToString()
    broken = head + b"\x1a\xff" + damage.replace(b"\x10", b"\x00")  # a string that claims more than there is
    assert salvage_request_id([broken]) == request_id


@given(st.integers(1, 2**64 - 1), st.data())
def test_a_truncated_header_gives_the_id_or_none(request_id: int, data: st.DataObject) -> None:
    head = rpc_pb2.RequestHeader(protocol=1, request_id=request_id, service="s" * 20).SerializeToString()
    cut = data.draw(st.integers(0, len(head)))
    assert salvage_request_id([head[:cut]]) in {0, request_id}


def test_another_version_of_the_protocol_is_refused_by_name() -> None:
    with pytest.raises(InvalidMessage, match="version 9"):
        decode_request([rpc_pb2.RequestHeader(protocol=9).SerializeToString()])


def test_a_header_beyond_the_size_limit_is_refused() -> None:
    header = rpc_pb2.RequestHeader(protocol=1, client_id="x" * LARGEST_HEADER)
    with pytest.raises(InvalidMessage, match="more than"):
        decode_request([header.SerializeToString()])
    large = rpc_pb2.RequestHeader(protocol=1, message=b"x" * 10 * LARGEST_HEADER)
    assert len(decode_request([large.SerializeToString()]).message) == 10 * LARGEST_HEADER


def test_an_array_becomes_a_blob_without_a_copy() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    blob = as_blob(array.data)
    array[0, 0] = 5.0
    assert len(blob) == 48
    assert bytes(blob) == array.tobytes()


def test_an_array_that_is_not_contiguous_is_refused_as_a_blob() -> None:
    with pytest.raises(InvalidMessage, match="contiguous"):
        as_blob(np.zeros((4, 4))[:, ::2].data)


def over_the_wire(error: Exception) -> NearsightError:
    return error_of(decode_response(encode_response(1, (), error=error_for_peer(error, "t1"))))


@pytest.mark.parametrize(
    "error",
    [InvalidArgument, NotFound, DeadlineExceeded, Overloaded, Unavailable, Unauthenticated, InternalError],
)
def test_an_error_of_the_tree_arrives_complete(error: type[NearsightError]) -> None:
    back = over_the_wire(error("what", advice="next"))
    assert type(back) is error
    assert (back.message, back.advice) == ("what", "next")


def test_a_more_specific_error_arrives_as_the_error_of_its_status_code() -> None:
    assert type(over_the_wire(ImageTooLarge("too large"))) is InvalidArgument


@pytest.mark.parametrize(
    "error", [ValueError("secret /etc/path"), KeyError("secret"), CorruptStore("secret.db")]
)
def test_an_internal_error_sends_the_peer_only_the_trace_id(error: Exception) -> None:
    back = over_the_wire(error)
    assert type(back) is InternalError
    assert "secret" not in str(back)
    assert "t1" in back.advice


def test_a_status_of_a_newer_peer_counts_as_internal() -> None:
    frames = [rpc_pb2.ResponseHeader(protocol=1, status=99).SerializeToString()]  # type: ignore[arg-type]
    assert type(error_of(decode_response(frames))) is InternalError


def test_a_very_long_text_is_cut() -> None:
    assert len(over_the_wire(InvalidArgument("x" * 10**6)).message) <= 2000


@given(st.floats())
def test_any_time_left_is_limited_to_the_range_of_the_wire_format(seconds: float) -> None:
    kept = clamp_s(seconds)
    assert 0.0 <= kept <= LONGEST_S
    assert int(kept * 1000) < 2**32
    if not math.isnan(seconds) and 0.0 <= seconds <= LONGEST_S:
        assert kept == seconds
