"""Heartbeats of a channel, by libzmq: a slow server stays connected, an unreachable one does not."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.rpc.envelope import decode_request, encode_response
from nearsight.common.rpc.settings import ChannelSettings
from support.rpc import echo_stub_to, text
from support.zmtp import RawServer, frame


@pytest.fixture
def server() -> Iterator[RawServer]:
    with closing(RawServer()) as one:
        yield one


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections survive many unanswered heartbeats, because a busy machine may stop the process."""
    monkeypatch.setattr("nearsight.common.rpc.transport._UNANSWERED_HEARTBEATS", 1000)


@pytest.mark.usefixtures("unanswered")
def test_an_answer_may_take_longer_than_several_heartbeats(server: RawServer) -> None:
    blob = bytes(100_000)
    with echo_stub_to(server.endpoint, heartbeat_s=0.1, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=60)
        server.greet()
        header, *blobs = encode_response(decode_request([server.frame()]).header.request_id, (), blobs=[blob])
        answer = frame(bytes(header), 1) + b"".join(frame(bytes(one)) for one in blobs)
        server.socket.sendall(answer[:-1])
        for _ in range(6):
            assert server.frame().startswith(b"\x04PING")
        server.socket.sendall(answer[-1:])
        assert future.result(60).blobs == (blob,)


@pytest.mark.usefixtures("unanswered")
def test_a_server_machine_that_acknowledges_nothing_ends_the_call_before_its_deadline(
    server: RawServer,
) -> None:
    with echo_stub_to(server.endpoint, heartbeat_s=0.5, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=60)
        server.greet()
        server.frame()
        server.stop_responding()
        with pytest.raises(Unavailable, match="was lost during the request"):
            future.result(60)


def test_a_server_that_hangs_ends_the_call_before_its_deadline(server: RawServer) -> None:
    with echo_stub_to(server.endpoint, heartbeat_s=0.02, max_attempts=1, connect_grace_s=0.1) as stub:
        future = stub.echo.future(text(), timeout_s=60)
        server.greet()
        with pytest.raises(Unavailable):
            future.result(60)


def test_surplus_answers_do_not_stop_heartbeats(server: RawServer) -> None:
    # Otherwise libzmq would end the client's process when the server closes the connection.
    most = ChannelSettings().pending_limit
    with echo_stub_to(server.endpoint, heartbeat_s=0.0) as stub:
        future = stub.echo.future(text(), timeout_s=60)
        server.greet()
        (answer,) = encode_response(decode_request([server.frame()]).header.request_id, ())
        server.socket.sendall(frame(bytes(answer)))
        future.result(60)
        server.socket.sendall(frame(bytes(answer)) * most + frame(b"\x04PING\x00\x00", 4))
        assert server.frame() == b"\x04PONG"
