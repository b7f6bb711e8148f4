import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nearsight.common.errors import Unauthenticated, Unavailable
from nearsight.common.rpc import names
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.links import mechanism_of
from nearsight.common.rpc.security import ClientSecurity, ServerSecurity, generate_keys
from support.rpc import Keys, ScriptedEcho, echo_stub_to, serving, text, unused_endpoint
from support.waiting import LONG_S

TCP = "tcp://127.0.0.1:0"

CONNECTING_AGAIN_AFTER_A_REFUSED_KEY = """
import socket
import sys
from nearsight.common.errors import Unauthenticated
from nearsight.common.rpc.links import Link
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.transport import Transport

def connect(transport, link):
    transport.connect(link)
    while not (changes := transport.changes()):
        transport.wait(60, arrivals=False)
    return changes

def let_libzmq_perform_its_commands():
    # Its one thread performs them in order: those of this connection are the last.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        transport = Transport(find_reason=False)
        transport.connect(Link(endpoint, ChannelSettings(), None))
        listener.accept()[0].close()
        while not transport.changes():
            transport.wait(60, arrivals=False)
        transport.close()

endpoint, key, server_key = sys.argv[1:]
transport, link = Transport(), Link(endpoint, ChannelSettings(), ClientSecurity(key, server_key))
for _ in range(3):
    ((_, error),) = connect(transport, link)
    assert isinstance(error, Unauthenticated), error
    let_libzmq_perform_its_commands()
    transport.has_arrivals()
    let_libzmq_perform_its_commands()
"""


@contextmanager
def talking(said: bytes) -> Iterator[str]:
    """A listener that sends some bytes and closes each connection, as a proxy without its server does."""
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
            thread.join(60)


@pytest.fixture
def secured(tmp_path: Path) -> ServerSecurity:
    allow_client(generate_keys(tmp_path, "client").public_file, tmp_path / "allowed")
    return ServerSecurity(generate_keys(tmp_path, "server").secret_file, tmp_path / "allowed")


def test_a_server_states_whether_it_uses_keys(secured: ServerSecurity) -> None:
    with serving(ScriptedEcho(), listen=TCP) as server:
        assert mechanism_of(server.endpoint, 60) == "NULL"
    with serving(ScriptedEcho(), listen=TCP, security=secured) as server:
        assert mechanism_of(server.endpoint, 60) == "CURVE"


def test_the_mechanism_is_known_although_the_rest_of_the_greeting_does_not_come() -> None:
    with talking(b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE".ljust(24, b"\x00")) as endpoint:
        assert mechanism_of(endpoint, 60) == "CURVE"


def test_a_server_that_sends_its_greeting_slowly_has_no_mechanism() -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE".ljust(23, b"\x00")
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(mechanism_of, f"tcp://127.0.0.1:{listener.getsockname()[1]}", 0.2)
        asked.add_done_callback(lambda _: ended.set())
        link, _ = listener.accept()
        with link, suppress(OSError):
            for byte in greeting:
                link.sendall(bytes((byte,)))
                ended.wait(0.1)
        assert asked.result(LONG_S) is None


@pytest.mark.parametrize("said", [b"", b"\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3, bytes(64)])
def test_a_listener_without_a_zeromq_greeting_has_no_mechanism(said: bytes) -> None:
    with talking(said) as endpoint:
        assert mechanism_of(endpoint, 60) is None


def test_unreachable_servers_and_other_transports_have_no_mechanism() -> None:
    assert mechanism_of(unused_endpoint(), 60) is None
    assert mechanism_of("ipc:///nowhere", 60) is None


def test_a_call_connects_as_soon_as_the_name_of_its_server_is_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def look_up(_host: str, _port: object) -> list[tuple[object, ...]]:
        asked.set()
        assert answered.wait(LONG_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(names, "LONGEST_S", LONG_S)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with serving(ScriptedEcho(), listen=TCP) as server:
        port = server.endpoint.rpartition(":")[2]
        with echo_stub_to(f"tcp://edge.museum:{port}", connect_timeout_s=600.0) as stub:
            call = stub.echo.future(text("x"), timeout_s=600.0)
            assert asked.wait(LONG_S)
            answered.set()
            assert call.result(LONG_S).message.text == "x"


@pytest.mark.parametrize("attempt", range(8))
def test_a_client_without_a_key_gets_unauthenticated_whichever_side_notices_first(
    secured: ServerSecurity, attempt: int
) -> None:
    with (
        serving(ScriptedEcho(), listen=TCP, security=secured) as server,
        echo_stub_to(server.endpoint) as stub,
        pytest.raises(Unauthenticated, match=r"accepts only clients with a key.*nearsight keys generate"),
    ):
        stub.echo(text(), timeout_s=60)


def test_a_proxy_without_its_server_is_unavailable_and_not_a_refused_key(
    tmp_path: Path, secured: ServerSecurity
) -> None:
    client = ClientSecurity(tmp_path / "client.key_secret", tmp_path / "server.key")
    with (
        talking(b"") as endpoint,
        echo_stub_to(endpoint, client, connect_grace_s=0.1) as stub,
        pytest.raises(Unavailable),
    ):
        stub.echo(text(), timeout_s=60)


def test_connecting_again_after_a_refused_key_does_not_crash_the_process(keys: Keys) -> None:
    # libzmq ends the failed connection in several steps; it frees half of it before the last one.
    stranger = generate_keys(keys.folder, "stranger")
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        arguments = (server.endpoint, stranger.secret_file, keys.server_files.public_file)
        client = [sys.executable, "-c", CONNECTING_AGAIN_AFTER_A_REFUSED_KEY, *arguments]
        assert subprocess.run(client, check=False, timeout=60).returncode == 0
