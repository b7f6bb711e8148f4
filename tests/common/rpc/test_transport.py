import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearsight.common.errors import Unauthenticated, Unavailable
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.links import mechanism_of
from nearsight.common.rpc.security import ClientSecurity, ServerSecurity, generate_keys
from support.rpc import ScriptedEcho, echo_stub_to, serving, text

TCP = "tcp://127.0.0.1:0"


@contextmanager
def talking(said: bytes) -> Iterator[str]:
    """A listener that says something to everybody and closes, as a proxy without its server would."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.fixture
def secured(tmp_path: Path) -> ServerSecurity:
    allow_client(generate_keys(tmp_path, "client").public_file, tmp_path / "allowed")
    return ServerSecurity(generate_keys(tmp_path, "server").secret_file, tmp_path / "allowed")


def test_a_server_states_whether_it_uses_keys(secured: ServerSecurity) -> None:
    with serving(ScriptedEcho(), listen=TCP) as server:
        assert mechanism_of(server.endpoint, 10) == "NULL"
    with serving(ScriptedEcho(), listen=TCP, security=secured) as server:
        assert mechanism_of(server.endpoint, 10) == "CURVE"


@pytest.mark.parametrize("said", [b"", b"\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3, bytes(64)])
def test_what_does_not_greet_has_no_mechanism(said: bytes) -> None:
    with talking(said) as endpoint:
        assert mechanism_of(endpoint, 10) is None


def test_nobody_and_other_transports_have_no_mechanism(unused_tcp_endpoint: str) -> None:
    assert mechanism_of(unused_tcp_endpoint, 10) is None
    assert mechanism_of("ipc:///nowhere", 10) is None


@pytest.mark.parametrize("attempt", range(8))
def test_a_client_without_a_key_is_told_so_whichever_side_notices_first(
    secured: ServerSecurity, attempt: int
) -> None:
    with (
        serving(ScriptedEcho(), listen=TCP, security=secured) as server,
        echo_stub_to(server.endpoint) as stub,
        pytest.raises(Unauthenticated, match="accepts only clients with a key"),
    ):
        stub.echo(text(), timeout_s=60)


def test_a_proxy_whose_server_is_gone_is_no_refused_key(tmp_path: Path, secured: ServerSecurity) -> None:
    client = ClientSecurity(tmp_path / "client.key_secret", tmp_path / "server.key")
    with talking(b"") as endpoint, echo_stub_to(endpoint, client) as stub, pytest.raises(Unavailable):
        stub.echo(text(), timeout_s=60)


@pytest.fixture
def unused_tcp_endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"
