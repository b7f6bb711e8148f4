"""The wire protocol without sockets: excess data is refused before it takes memory."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.rpc.envelope import LARGEST_HEADER, Buffer
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.zmtp import FRAME_COST, Connection, Mechanism, ProtocolError, Session
from support.zmtp import READY, frame, frame_header, greeting


def session(**settings: int) -> Session:
    """A session after its handshake."""
    one = Session(Mechanism(), ServerSettings(**settings))  # type: ignore[arg-type]
    one.receive(greeting() + frame(READY, 4))
    one.replies.clear()
    return one


def take(one: Session, data: bytes) -> list[list[Buffer]]:
    """Pass received bytes to a session, as a connection does."""
    arrived: list[list[Buffer]] = []
    while data or one.more:
        if (space := one.space) is None:
            arrived += one.receive(data[:4096])
            data = data[4096:]
        else:
            size = min(len(space), len(data))
            space[:size] = data[:size]
            arrived += one.filled(size)
            data = data[size:]
    return arrived


@given(
    st.lists(st.lists(st.integers(0, 40_000).map(bytes), min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(1, 30_000), max_size=20).map(lambda cuts: [*cuts, 30_000]),
)
def test_messages_arrive_unchanged_however_the_bytes_are_cut(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    one, arrived = session(), []
    data = b"".join(bytes(piece) for message in messages for piece in one.encode(message))
    number = 0
    while data:
        size = min(cuts[number % len(cuts)], len(data))
        arrived += take(one, data[:size])
        data, number = data[size:], number + 1
    assert arrived == messages
    assert one.held_bytes == 0


def test_large_blobs_are_sent_without_a_copy() -> None:
    blob = memoryview(bytes(100_000))
    assert any(piece is blob for piece in session().encode([b"header", blob]))


def test_a_partly_sent_piece_counts_as_a_whole_and_the_rest_arrives() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        connection = Connection(ours, "peer", session(), 0.0)
        pieces = [bytes([number]) * 2**20 for number in (1, 2)]
        connection.send(pieces)
        received = theirs.recv(2**16, socket.MSG_WAITALL)
        assert connection.flush()
        assert not connection.flush()
        assert connection.droppable_bytes == 2**21
        while len(received) < 2**21:
            received += theirs.recv(2**16)
            connection.flush()
        assert received == b"".join(pieces)
        assert connection.droppable_bytes == 0


def test_a_message_of_too_many_frames_ends_where_the_limit_is() -> None:
    one = session(max_frames=1000)
    one.receive(b"\x01\x00" * 1000)
    assert one.held_bytes == 1000 * FRAME_COST
    with pytest.raises(ProtocolError, match="1000 frames"):
        one.receive(b"\x01\x00")


def test_many_messages_at_once_are_received_in_parts() -> None:
    one = session()
    first = one.receive(b"\x00\x00" * 100)
    assert one.more
    assert len(first) < 100
    second = one.receive(b"")
    assert first + second == [[b""]] * 100
    assert not one.more


def test_a_frame_that_is_too_large_is_refused_by_its_header() -> None:
    with pytest.raises(ProtocolError, match="10000 bytes"):
        session(max_message_bytes=10_000).receive(frame_header(10_000 + LARGEST_HEADER + 1))


def test_the_size_limit_applies_to_all_frames_together() -> None:
    one = session(max_message_bytes=10_000)
    take(one, frame(bytes(8000), 1))
    with pytest.raises(ProtocolError, match="10000 bytes"):
        take(one, frame(bytes(8000)))


def test_a_large_frame_takes_memory_only_for_its_received_part() -> None:
    one = session()
    take(one, frame_header(60_000_000))
    assert one.held_bytes == 0
    take(one, bytes(5000))
    assert one.held_bytes == 5000


def test_discarded_frames_take_no_memory() -> None:
    one = session()
    take(one, frame(b"first", 1) + frame_header(60_000) + bytes(50_000))
    assert one.held_bytes > 50_000
    one.discard()
    assert one.held_bytes == 0


def test_a_heartbeat_is_answered_with_its_context_also_amid_a_message() -> None:
    one = session()
    one.receive(frame(b"first", 1) + frame(b"\x04PING\x00\x64context", 4))
    assert one.replies == [frame(b"\x04PONGcontext", 4)]
    assert one.receive(frame(b"last")) == [[b"first", b"last"]]


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        b"\xff" + 8 * b"\x00" + b"\x7f\x01",
        greeting(b"CURVE"),
        greeting() + frame(b"a message before READY"),
        greeting() + frame(b"\x05HELLO", 4),
        greeting() + bytes([4 | 2]) + (5000).to_bytes(8, "big"),
        greeting() + frame(READY, 4) + b"\x08\x00",
        greeting() + frame(READY, 4) + b"\x05\x00",
    ],
)
def test_data_that_violates_the_protocol_is_refused(said: bytes) -> None:
    with pytest.raises(ProtocolError):
        Session(Mechanism(), ServerSettings()).receive(said)


def test_a_greeting_states_version_3_1_the_mechanism_and_that_this_is_the_server() -> None:
    (said,) = Session(Mechanism(), ServerSettings()).replies
    assert said[:12] == b"\xff" + 8 * b"\x00" + b"\x7f\x03\x01"
    assert said[12:33] == b"NULL".ljust(20, b"\x00") + b"\x01"
    assert len(said) == 64
