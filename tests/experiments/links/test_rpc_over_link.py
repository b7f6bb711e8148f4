"""RPC over a shaped link; typed errors after the loss of the link or the server."""

from collections.abc import Iterator

import numpy as np
import pytest

from nearsight.common.errors import PeerError
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.settings import ServerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.proxy import ShapingProxy
from nearsight.experiments.links.shaper import parse_endpoint
from nearsight.protos.echo_pb2 import EchoRequest
from support.rpc import ECHO, ScriptedEcho
from support.waiting import wait_until

SHAPE = LinkShape(rtt_ms=6.0, jitter_ms=1.0, up_mbps=200.0, down_mbps=200.0)


@pytest.fixture
def server() -> Iterator[RpcServer]:
    server = RpcServer([ScriptedEcho()], tier="cloud", settings=ServerSettings())
    server.start()
    yield server
    server.stop(0.1)


def link_to(server: RpcServer, shape: LinkShape = SHAPE) -> ShapingProxy:
    return ShapingProxy(parse_endpoint(server.endpoint), shape, rng=np.random.default_rng(1))


def channel_through(proxy: ShapingProxy) -> Channel:
    return Channel(f"tcp://127.0.0.1:{proxy.address[1]}", client_id="device")


def echo(channel: Channel, size_bytes: int = 50_000, timeout_s: float = 100.0) -> bool:
    blob = np.random.default_rng(2).bytes(size_bytes)
    stub = Stub(channel, ECHO)
    reply = stub.echo(EchoRequest(text="x"), timeout_s=timeout_s, blobs=[blob])
    return bytes(reply.blobs[0]) == blob


def test_calls_pass_unchanged(server: RpcServer) -> None:
    with link_to(server) as proxy, channel_through(proxy) as channel:
        assert all(echo(channel) for _ in range(5))
        assert proxy.counters["up"].bytes > 250_000
        assert proxy.connections == 1


def test_calls_over_a_lost_link_end_with_an_answer_or_a_typed_error_and_later_ones_succeed(
    server: RpcServer,
) -> None:
    slow = LinkShape(rtt_ms=40.0, up_mbps=5.0, down_mbps=5.0)
    with link_to(server, slow) as proxy, channel_through(proxy) as channel:
        assert echo(channel, 1000)
        stub = Stub(channel, ECHO)
        calls = [stub.echo.future(EchoRequest(), timeout_s=3.0, blobs=[bytes(100_000)]) for _ in range(4)]
        wait_until(lambda: proxy.counters["up"].bytes > 20_000, what="bytes in transit")
        proxy.cut()
        for call in calls:
            error = call.exception(timeout=100.0)
            assert error is None or isinstance(error, PeerError)
        assert echo(channel, 1000)
        assert proxy.lost >= 1


def test_calls_to_a_stopped_server_fail_through_the_link(server: RpcServer) -> None:
    with link_to(server) as proxy, channel_through(proxy) as channel:
        assert echo(channel)
        server.stop(0.1)
        with pytest.raises(PeerError):
            echo(channel, timeout_s=1.0)
