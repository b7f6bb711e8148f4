"""A server with real sockets: addresses, other protocols, large messages and slow peers."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq

from nearsight.common.errors import (
    AddressInUse,
    ConfigurationError,
    DeadlineExceeded,
    Overloaded,
    StatusCode,
    Unavailable,
)
from nearsight.common.rpc.envelope import decode_response
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.settings import ServerSettings
from nearsight.protos import echo_pb2
from support.rpc import (
    Gate,
    ScriptedEcho,
    echo_stub,
    echo_stub_to,
    request_frames,
    serving,
    text,
    unused_endpoint,
)

TCP = "tcp://127.0.0.1:0"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path, because the path of a local socket has a small maximum length."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def raw_client(endpoint: str, **options: int) -> Iterator["zmq.Socket[bytes]"]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = 60_000
    for name, value in options.items():
        setattr(dealer, name, value)
    dealer.connect(endpoint)
    try:
        yield dealer
    finally:
        dealer.close()
        context.term()


def test_a_port_in_use_is_reported_in_one_line_with_the_address() -> None:
    with serving(ScriptedEcho(), listen=TCP) as server:
        second = RpcServer([ScriptedEcho()], tier="t", settings=ServerSettings(listen=server.endpoint))
        with pytest.raises(AddressInUse, match=f"{server.endpoint} is in use") as caught:
            second.start()
        assert "\n" not in str(caught.value)
        with echo_stub(server) as stub:
            assert stub.echo(text("still here"), timeout_s=60).message.text == "still here"


def test_a_local_socket_in_use_is_not_taken_over(short_folder: Path) -> None:
    endpoint = f"ipc://{short_folder}/s"
    with serving(ScriptedEcho(), listen=endpoint) as server, echo_stub(server) as stub:
        assert stub.echo(text("ipc"), timeout_s=60).message.text == "ipc"
        with pytest.raises(AddressInUse):
            RpcServer([ScriptedEcho()], tier="t", settings=ServerSettings(listen=endpoint)).start()
        assert stub.echo(text("ours"), timeout_s=60).message.text == "ours"


@pytest.mark.parametrize("length", [104, 105, 106, 107])
def test_each_attempt_to_connect_reaches_a_local_socket_with_a_long_path(
    short_folder: Path, length: int
) -> None:
    endpoint = f"ipc://{short_folder}/".ljust(length + len("ipc://"), "x")
    with echo_stub_to(endpoint, connect_grace_s=0.0) as stub:
        for _ in range(4):
            with pytest.raises(Unavailable, match="no server answers"):
                stub.echo(text(), timeout_s=60)
        with serving(ScriptedEcho(), listen=endpoint):
            assert stub.echo(text("there"), timeout_s=60).message.text == "there"


def test_the_local_socket_file_of_a_dead_daemon_is_reused(short_folder: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(short_folder / "s"))
    left.close()
    with serving(ScriptedEcho(), listen=f"ipc://{short_folder}/s") as server, echo_stub(server) as stub:
        assert stub.echo(text("x"), timeout_s=60).message.text == "x"


def test_a_regular_file_is_not_replaced_by_a_local_socket(short_folder: Path) -> None:
    (short_folder / "s").write_text("kept")
    with pytest.raises(AddressInUse):
        RpcServer(
            [ScriptedEcho()], tier="t", settings=ServerSettings(listen=f"ipc://{short_folder}/s")
        ).start()
    assert (short_folder / "s").read_text() == "kept"


@pytest.mark.needs("ipv6")
def test_a_server_listens_on_ipv6_loopback() -> None:
    with serving(ScriptedEcho(), listen="tcp://[::1]:0") as server, echo_stub(server) as stub:
        assert server.endpoint.startswith("tcp://[::1]:")
        assert stub.echo(text("six"), timeout_s=60).message.text == "six"


@pytest.mark.parametrize("listen", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://10.0.0.1:7000"])
def test_a_server_beyond_loopback_refuses_to_start_without_keys(listen: str) -> None:
    server = RpcServer([ScriptedEcho()], tier="t", settings=ServerSettings(listen=listen))
    with pytest.raises(ConfigurationError, match="nearsight keys generate"):
        server.start()
    server.stop()


def test_an_address_that_cannot_be_bound_is_a_configuration_error() -> None:
    server = RpcServer([ScriptedEcho()], tier="t", settings=ServerSettings(listen="ipc:///nowhere/at/all"))
    with pytest.raises(ConfigurationError, match=r"cannot listen on .*: .*No such file"):
        server.start()


def test_bytes_of_other_protocols_do_not_disturb_the_server() -> None:
    with serving(ScriptedEcho(), listen=TCP) as server, echo_stub(server) as stub:
        host, port = server.endpoint.removeprefix("tcp://").split(":")
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 500,
            b"\x00",
            b"\xff\0\0\0\0\0\0\0\1\x7f" + b"\3" * 90,
        ):
            with closing(socket.create_connection((host, int(port)), timeout=60)) as stranger:
                stranger.sendall(garbage)
        assert stub.echo(text("fine"), timeout_s=60).message.text == "fine"


@pytest.mark.parametrize("frames", [[b""], [b"\xff" * 100], [b"\x08\x01\x10\x05\xff"], [b"", b"", b"", b""]])
def test_invalid_messages_are_answered_with_invalid_argument(frames: list[bytes]) -> None:
    with serving(ScriptedEcho(), listen=TCP) as server, raw_client(server.endpoint) as dealer:
        dealer.send_multipart(frames)
        answer = decode_response(dealer.recv_multipart()).header
        assert answer.status == StatusCode.INVALID_ARGUMENT
        assert answer.request_id == (5 if frames[0].startswith(b"\x08\x01\x10\x05") else 0)


def test_only_the_peer_that_exceeds_the_size_limit_is_disconnected() -> None:
    with serving(ScriptedEcho(), listen=TCP, max_message_bytes=10_000) as server, echo_stub(server) as stub:
        with echo_stub_to(server.endpoint, connect_grace_s=0.0, max_attempts=1) as careless:
            with pytest.raises(Unavailable):
                careless.echo(text(), timeout_s=60, blobs=[bytes(20_000)])
            assert careless.echo(text("small"), timeout_s=60).message.text == "small"
        assert stub.echo(text("fine"), timeout_s=60).message.text == "fine"


def test_a_client_that_never_reads_does_not_delay_others() -> None:
    with (
        serving(ScriptedEcho(), listen=TCP, queue_limit=10_000) as server,
        raw_client(server.endpoint, rcvhwm=1, rcvbuf=4096) as lazy,
        echo_stub(server) as stub,
    ):
        for number in range(300):
            lazy.send_multipart([*request_frames(request_id=number), bytes(50_000)])
        for number in range(20):
            assert stub.echo(text(str(number)), timeout_s=60).message.text == str(number)


def test_large_blobs_travel_unchanged_both_ways() -> None:
    blob = bytes(range(256)) * 16384  # 4 MiB: more than one write, beyond the limit of copying
    with serving(ScriptedEcho(), listen=TCP) as server, echo_stub(server) as stub:
        reply = stub.echo(text(), timeout_s=60, blobs=[blob, b"", blob[:70_000]])
        assert reply.blobs[0] == blob
        assert [len(b) for b in reply.blobs] == [len(blob), 0, 70_000]
        assert reply.blobs[0].readonly


def test_a_call_to_an_absent_server_fails_after_the_grace_and_before_its_deadline() -> None:
    endpoint = unused_endpoint()
    with (
        echo_stub_to(endpoint, connect_grace_s=0.05) as stub,
        pytest.raises(Unavailable, match=f"no server answers at {endpoint}"),
    ):
        stub.echo(text(), timeout_s=60)


def test_deadline_before_connect_ends_the_call() -> None:
    # It accepts connections and sends nothing, as a machine that hangs.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with echo_stub_to(endpoint) as stub, pytest.raises(DeadlineExceeded, match="no connection"):
            stub.echo(text(), timeout_s=0.1)


def test_a_handshake_that_is_never_completed_fails_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.common.rpc.links._GREETING_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with (
            echo_stub_to(endpoint, connect_timeout_s=0.1, connect_grace_s=0.0) as stub,
            pytest.raises(Unavailable),
        ):
            stub.echo(text(), timeout_s=60)


def test_a_web_server_at_the_address_makes_calls_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def serve() -> None:
            try:
                while True:
                    client, _ = web.accept()
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + b" " * 200)
                    client.close()
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        endpoint = f"tcp://127.0.0.1:{web.getsockname()[1]}"
        with echo_stub_to(endpoint, connect_grace_s=0.05) as stub, pytest.raises(Unavailable):
            stub.echo(text(), timeout_s=60)
        web.shutdown(socket.SHUT_RDWR)


def test_requests_that_arrive_together_use_all_workers() -> None:
    gate = Gate()
    with serving(ScriptedEcho(gate), listen=TCP, workers=3) as server, echo_stub(server) as stub:
        futures = [stub.echo.future(text(str(n)), timeout_s=60) for n in range(3)]
        for _ in range(3):
            assert gate.entered.acquire(timeout=60)
        gate.open.set()
        assert [f.result(60).message.text for f in futures] == ["0", "1", "2"]


def test_requests_beyond_the_queue_are_refused_while_every_worker_is_busy() -> None:
    gate = Gate()
    with (
        serving(ScriptedEcho(gate), listen=TCP, workers=2, queue_limit=1) as server,
        echo_stub(server) as stub,
    ):
        running = [stub.echo.future(text(), timeout_s=60) for _ in range(2)]
        for _ in running:
            assert gate.entered.acquire(timeout=60)
        waiting = stub.echo.future(text(), timeout_s=60)
        with pytest.raises(Overloaded, match="full"):
            stub.echo(text(), timeout_s=60)
        gate.open.set()
        for future in (*running, waiting):
            assert isinstance(future.result(60).message, echo_pb2.EchoResponse)
