"""Heartbeats of a channel, as libzmq does them: what is slow stays connected, what is gone does not."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.rpc.envelope import decode_request, encode_response
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
        server.vanish()
        with pytest.raises(Unavailable, match="went away"):
            future.result(30)


def test_a_server_that_hangs_ends_the_call_before_its_deadline(server: RawServer) -> None:
    with echo_stub_to(server.endpoint, heartbeat_s=0.02, max_attempts=1) as stub:
        future = stub.echo.future(text(), timeout_s=30)
        server.greet()
        with pytest.raises(Unavailable, match="went away"):
            future.result(30)
