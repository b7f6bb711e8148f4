"""Heartbeats of a channel, as libzmq does them: what is slow stays connected, what is gone does not."""

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


def test_an_answer_may_take_longer_than_several_heartbeats(server: RawServer) -> None:
    blob = bytes(100_000)
    with echo_stub_to(server.endpoint, heartbeat_s=0.1, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=30)
        server.greet()
        header, *blobs = encode_response(decode_request([server.frame()]).request_id, (), blobs=[blob])
        answer = frame(bytes(header), 1) + b"".join(frame(bytes(one)) for one in blobs)
        server.socket.sendall(answer[:-1])
        for _ in range(6):
            assert server.frame().startswith(b"\x04PING")
        server.socket.sendall(answer[-1:])
        assert future.result(30).blobs == (blob,)


def test_a_server_whose_machine_is_gone_ends_the_call_before_its_deadline(server: RawServer) -> None:
    with echo_stub_to(server.endpoint, heartbeat_s=0.5, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=14)
        server.greet()
        server.frame()
        server.stop_responding()
        with pytest.raises(Unavailable, match="closed the connection"):
            future.result(30)


def test_a_server_that_hangs_ends_the_call_before_its_deadline(server: RawServer) -> None:
    with echo_stub_to(server.endpoint, heartbeat_s=0.02, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=30)
        server.greet()
        with pytest.raises(Unavailable, match="closed the connection"):
            future.result(30)


def test_answers_that_nobody_waits_for_do_not_stop_heartbeats(server: RawServer) -> None:
    # Else libzmq would end the client's process when the server closes the connection.
    most = ChannelSettings().pending_limit
    with echo_stub_to(server.endpoint, heartbeat_s=0.0) as stub:
        future = stub.echo.future(text(), timeout_s=30)
        server.greet()
        (answer,) = encode_response(decode_request([server.frame()]).request_id, ())
        server.socket.sendall(frame(bytes(answer)))
        future.result(30)
        server.socket.sendall(frame(bytes(answer)) * most + frame(b"\x04PING\x00\x00", 4))
        assert server.frame() == b"\x04PONG"
