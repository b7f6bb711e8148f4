"""The proxy on real loopback sockets: bytes pass, and each side sees how the other one ends."""

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from nearsight.common.errors import AddressInUse
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.links.proxy import BUFFER_BYTES, ShapingProxy
from support.waiting import wait_until

TIMEOUT_S = 100.0
FAST = LinkShape(rtt_ms=4, jitter_ms=0.5, up_mbps=400, down_mbps=400)


class EchoServer:
    """Echoes what it receives on every connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self.ended = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            pass
        self.ended += 1

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._thread.join()  # it may just have accepted a connection
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


def proxy_to(port: int, shape: LinkShape = FAST) -> ShapingProxy:
    return ShapingProxy(("127.0.0.1", port), shape, rng=np.random.default_rng(1))


def connect(proxy: ShapingProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=TIMEOUT_S)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, f"ended after {len(data)} of {size} bytes"
        data += part
    return data


def test_bytes_pass_unchanged_and_are_counted_per_direction(echo: EchoServer) -> None:
    sent = np.random.default_rng(2).bytes(300_000)
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        threading.Thread(target=client.sendall, args=(sent,)).start()
        assert receive(client, len(sent)) == sent
        wait_until(lambda: proxy.counters["down"].bytes == len(sent), what="counting")
        assert proxy.counters["up"].bytes == len(sent)
        assert proxy.connections == 1


def test_several_connections_share_the_link_without_mixing(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy:
        clients = [connect(proxy) for _ in range(5)]
        for number, client in enumerate(clients):
            client.sendall(bytes([number]) * 20_000)
        for number, client in enumerate(clients):
            assert set(receive(client, 20_000)) == {number}
            client.close()


def test_descriptors_above_those_that_select_supports_are_served(echo: EchoServer) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    files = []
    try:
        with proxy_to(echo.port) as proxy, connect(proxy) as first:
            while not files or files[-1] < 1024:
                files.append(os.open(os.devnull, os.O_RDONLY))
            with connect(proxy) as second:
                for client in (second, first):
                    client.sendall(b"x")
                    assert receive(client, 1) == b"x"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_refused_connection_to_the_server_closes_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with proxy_to(port) as proxy:
        # The reset may arrive while the client still connects.
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            if client.recv(1) == b"":
                raise ConnectionResetError
        wait_until(lambda: proxy.refused == 1, what="counting the refusal")


def test_the_end_of_the_server_reaches_the_client_after_its_last_bytes(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        client.sendall(b"last words")
        assert receive(client, 10) == b"last words"
        echo.connections[0].sendall(b"bye")
        echo.connections[0].shutdown(socket.SHUT_RDWR)
        assert receive(client, 3) == b"bye"
        assert client.recv(1) == b""


def test_the_end_of_the_client_reaches_the_server(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy:
        with connect(proxy) as client:
            client.sendall(b"x")
            assert receive(client, 1) == b"x"
        wait_until(lambda: echo.ended == 1, what="the server's end")


def test_a_cut_resets_all_connections_and_new_ones_work(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy:
        clients = [connect(proxy) for _ in range(2)]
        for client in clients:
            client.sendall(b"x")
            assert receive(client, 1) == b"x"
        proxy.cut()
        for client in clients:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            client.close()
        wait_until(lambda: proxy.lost == 2, what="counting")
        with connect(proxy) as client:
            client.sendall(b"y")
            assert receive(client, 1) == b"y"


def test_a_new_shape_applies_to_open_connections(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        client.sendall(b"x")
        assert receive(client, 1) == b"x"
        proxy.reshape(LinkShape(rtt_ms=200))
        started_s = time.monotonic()
        client.sendall(b"y")
        assert receive(client, 1) == b"y"
        assert time.monotonic() - started_s >= 0.19  # a busy machine may be slower


@pytest.mark.parametrize("steps", range(5))
def test_a_connection_that_ends_while_the_proxy_stops_is_no_error(
    echo: EchoServer, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    proxy = proxy_to(echo.port)

    async def end_soon_after_the_stop(client: socket.socket) -> None:
        proxy._stopping.set()
        for _ in range(steps):  # turns of the event loop
            await asyncio.sleep(0)

    monkeypatch.setattr(proxy, "_serve", end_soon_after_the_stop)
    with proxy, connect(proxy):
        assert proxy._thread is not None
        proxy._thread.join()


def test_connections_are_lost_at_the_requested_rate(echo: EchoServer) -> None:
    shape = LinkShape(loss_per_minute=60_000)  # one millisecond each
    with proxy_to(echo.port, shape) as proxy:
        # The connection may be lost before this thread sees that it is established.
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)
        wait_until(lambda: proxy.lost == 1, what="counting")


def test_the_sender_is_blocked_while_the_receiver_does_not_read(echo: EchoServer) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        proxy_to(listener.getsockname()[1]) as proxy,
        connect(proxy) as client,
        listener.accept()[0] as server,
    ):
        client.settimeout(0.3)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 100 * BUFFER_BYTES:
                sent += client.send(bytes(65536))
        assert len(receive(server, sent)) == sent  # delayed, not lost


def test_bytes_on_a_long_and_fast_link_do_not_block_the_sender(echo: EchoServer) -> None:
    with proxy_to(echo.port) as proxy, connect(proxy) as client:
        client.sendall(b"x")
        assert receive(client, 1) == b"x"
        proxy.reshape(LinkShape(rtt_ms=1e6, up_mbps=1e4))
        client.sendall(bytes(64 * BUFFER_BYTES))  # more than the sockets hold; nothing arrives before its end


def test_a_port_in_use_is_refused(echo: EchoServer) -> None:
    taken = ("127.0.0.1", echo.port)
    proxy = ShapingProxy(("127.0.0.1", 1), FAST, rng=np.random.default_rng(1), listen=taken)
    with pytest.raises(AddressInUse, match="port 0"):
        proxy.start()


def test_zeromq_with_curve_passes_and_reconnects_after_a_cut() -> None:
    context = zmq.Context()
    server_public, server_secret = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    with context.socket(zmq.ROUTER) as server, context.socket(zmq.DEALER) as client:
        server.curve_server, server.curve_secretkey = True, server_secret
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client.curve_serverkey, client.curve_publickey, client.curve_secretkey = server_public, public, secret
        client.reconnect_ivl = 10
        client.linger = server.linger = 0
        with proxy_to(port) as proxy:
            client.connect(f"tcp://127.0.0.1:{proxy.address[1]}")
            for body in (b"before", b"after"):
                client.send(body * 10_000)
                assert server.poll(int(1000 * TIMEOUT_S))
                server.send_multipart(server.recv_multipart())
                assert client.poll(int(1000 * TIMEOUT_S))
                assert client.recv() == body * 10_000
                proxy.cut()
                wait_until(lambda: proxy.lost >= 1, what="the cut")
                wait_until(lambda: proxy.connections >= 2, what="the reconnection")
    context.term()
