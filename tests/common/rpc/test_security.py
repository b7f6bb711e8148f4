import os
import select
import stat
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.clock import ManualClock
from nearsight.common.errors import ConfigurationError, InvalidArgument, Unauthenticated, Unavailable
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.listener import Listener, Received
from nearsight.common.rpc.security import (
    ClientSecurity,
    ServerSecurity,
    generate_keys,
    read_public_key,
    read_secret_key,
)
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.zmtp import Connection
from nearsight.protos import echo_pb2
from support.rpc import Keys, ScriptedEcho, echo_stub_to, request_frames, serving, text
from support.waiting import wait_until
from support.zmtp import RawServer, frame, greeting, raw_peers

TCP = "tcp://127.0.0.1:0"


def test_a_client_with_an_allowed_key_is_identified_by_it(keys: Keys) -> None:
    seen = []

    def look(request: echo_pb2.EchoRequest, context: object) -> echo_pb2.EchoResponse:
        seen.append(context.caller.key)  # type: ignore[attr-defined]
        return echo_pb2.EchoResponse(text=request.text)

    with (
        serving(ScriptedEcho(look), listen=TCP, security=keys.server) as server,
        echo_stub_to(server.endpoint, keys.of("phone")) as stub,
    ):
        assert stub.echo(text("secret"), timeout_s=60, blobs=[bytes(200_000)]).message.text == "secret"
    assert seen == [keys.phone_files.public_key]


def test_a_server_with_keys_may_listen_beyond_loopback(keys: Keys) -> None:
    with serving(ScriptedEcho(), listen="tcp://0.0.0.0:0", security=keys.server) as server:
        port = server.endpoint.rsplit(":", 1)[1]
        with echo_stub_to(f"tcp://127.0.0.1:{port}", keys.of("phone")) as stub:
            assert stub.echo(text("x"), timeout_s=60).message.text == "x"


def test_a_client_whose_key_is_not_allowed_gets_advice(
    keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_keys(keys.folder, "stranger")
    echo = ScriptedEcho()
    with (
        serving(echo, listen=TCP, security=keys.server) as server,
        echo_stub_to(server.endpoint, keys.of("stranger")) as stub,
        pytest.raises(Unauthenticated, match="nearsight keys allow"),
    ):
        stub.echo(text(), timeout_s=60)
    assert echo.seen == []
    stranger = read_public_key(keys.folder / "stranger.key")
    assert stranger in "".join(capsys.readouterr())


def test_repeated_refusals_of_one_key_are_logged_once(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("stranger", "another"):
        generate_keys(keys.folder, name)
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        for name in ("stranger", "stranger", "another"):
            with (
                echo_stub_to(server.endpoint, keys.of(name)) as stub,
                pytest.raises(Unauthenticated),
            ):
                stub.echo(text(), timeout_s=60)
    assert capsys.readouterr().err.count("client refused") == 2


def test_the_key_with_the_most_connections_is_refused_more_and_other_keys_connect(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nearsight.common.rpc.listener._SETTLED_S", 3600.0)
    keys.add("other")
    with (
        serving(ScriptedEcho(), listen=TCP, security=keys.server, connections_limit=8) as server,
        ExitStack() as stack,
    ):

        def ask(security: ClientSecurity, **settings: float) -> str:
            with echo_stub_to(server.endpoint, security, **settings) as stub:
                return stub.echo(text("x"), timeout_s=60).message.text

        stubs = [stack.enter_context(echo_stub_to(server.endpoint, keys.of("phone"))) for _ in range(8)]
        for stub in stubs:
            stub.echo(text(), timeout_s=60)
        with pytest.raises(Unavailable, match="too many connections, most of them with this key") as refused:
            ask(keys.of("phone"), connect_grace_s=0.0)
        assert "connections_limit" in refused.value.advice
        assert [ask(keys.of("other")) for _ in range(3)] == ["x"] * 3  # makes room for the first
        assert ask(keys.of("phone")) == "x"  # there is room again
        assert server._listener is not None
        assert len(server._listener._connections) <= 8
    assert "client refused: there are too many connections" in capsys.readouterr().err


def test_an_idle_connection_is_replaced_by_a_new_one_of_the_same_key(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsight.common.rpc.listener._SETTLED_S", 0.0)
    with (
        serving(ScriptedEcho(), listen=TCP, security=keys.server, connections_limit=8) as server,
        ExitStack() as stack,
    ):
        for _ in range(12):
            stub = stack.enter_context(echo_stub_to(server.endpoint, keys.of("phone")))
            assert stub.echo(text("x"), timeout_s=60).message.text == "x"


def test_a_server_with_an_unexpected_key_receives_no_request(keys: Keys) -> None:
    generate_keys(keys.folder, "impostor")
    impostor = ServerSecurity(keys.folder / "impostor.key_secret", keys.allowed)
    echo = ScriptedEcho()
    with (
        serving(echo, listen=TCP, security=impostor) as server,
        echo_stub_to(server.endpoint, keys.of("phone")) as stub,
        pytest.raises(Unauthenticated, match="does not own the public key"),
    ):
        stub.echo(text(), timeout_s=60)
    assert echo.seen == []


def test_a_server_without_keys_receives_no_request_of_a_client_with_keys(keys: Keys) -> None:
    echo = ScriptedEcho()
    with (
        serving(echo, listen=TCP) as server,
        echo_stub_to(server.endpoint, keys.of("phone")) as stub,
        pytest.raises(Unauthenticated, match=r"does not use keys|uses no keys"),
    ):
        stub.echo(text(), timeout_s=60)
    assert echo.seen == []


def test_the_connection_recovers_after_a_restart_of_the_server_with_the_same_key(keys: Keys) -> None:
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        endpoint = server.endpoint
        with echo_stub_to(endpoint, keys.of("phone")) as stub:
            stub.echo(text(), timeout_s=60)
            server.stop()
            with serving(ScriptedEcho(), listen=endpoint, security=keys.server):
                assert stub.echo(text("again"), timeout_s=60).message.text == "again"


def test_requests_of_a_raw_client_without_keys_are_not_executed(keys: Keys) -> None:
    echo = ScriptedEcho()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with serving(echo, listen=TCP, security=keys.server) as server, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(server.endpoint)
        frames: list[Buffer] = request_frames("intruder")
        with suppress(zmq.Again):  # libzmq may have given up the connection already
            dealer.send_multipart(frames, zmq.NOBLOCK)
        assert dealer.poll(200) == 0
    context.term()
    assert echo.seen == []


def test_secret_keys_are_readable_by_their_owner_alone_from_the_start(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        files = generate_keys(tmp_path / "new", "edge")
    finally:
        os.umask(old)
    assert stat.S_IMODE(files.secret_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.public_file.stat().st_mode) == 0o644
    pair = read_secret_key(files.secret_file)
    assert pair.public == read_public_key(files.public_file) == files.public_key
    assert pair.secret not in files.public_file.read_text()
    assert pair.secret not in repr(pair)
    assert list(files.secret_file.parent.glob(".*")) == []


def test_a_secret_key_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    files = generate_keys(tmp_path, "edge")
    files.secret_file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_secret_key(files.secret_file)


@pytest.mark.parametrize("name", ["", "../edge", "a/b", ".hidden", "x" * 65, "two words"])
def test_names_that_are_not_valid_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a valid key name"):
        generate_keys(tmp_path / "keys", name)


def test_files_without_a_valid_key_are_refused(tmp_path: Path) -> None:
    files = generate_keys(tmp_path, "edge")
    with pytest.raises(ConfigurationError, match="key_secret file"):
        read_secret_key(files.public_file)
    (tmp_path / "bad.key").write_text("rubbish")
    (tmp_path / "short.key").write_text('curve\n    public-key = "abc"\n')
    # The alphabet is that of Z85, but five times '#' exceeds 4 bytes.
    (tmp_path / "mistyped.key").write_text(f'curve\n    public-key = "{"#" * 40}"\n')
    for name in ("bad.key", "short.key", "mistyped.key", "missing.key"):
        with pytest.raises(ConfigurationError, match="key"):
            read_public_key(tmp_path / name)
    with pytest.raises(ConfigurationError, match="no key file"):
        read_public_key("#" * 40)


def test_a_key_may_be_given_itself_or_as_a_file_whose_path_looks_like_a_key(tmp_path: Path) -> None:
    files = generate_keys(tmp_path, "edge")
    assert read_public_key(files.public_key) == files.public_key
    assert len("/tmp/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.key") == 40
    with pytest.raises(ConfigurationError, match="no key file"):
        read_public_key("/tmp/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.key")


def test_a_server_with_unusable_keys_does_not_start(keys: Keys) -> None:
    for security in (
        ServerSecurity(keys.folder / "missing.key_secret", keys.allowed),
        ServerSecurity(keys.server_files.secret_file, keys.folder / "nowhere"),
    ):
        with pytest.raises(ConfigurationError):
            RpcServer([], tier="t", settings=ServerSettings(listen=TCP), security=security).start()


def test_the_first_calls_of_a_new_connection_are_answered_at_once(keys: Keys) -> None:
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        for _ in range(40):
            with echo_stub_to(server.endpoint, keys.of("phone")) as stub:
                first = [stub.echo.future(text(str(number)), timeout_s=60) for number in range(2)]
                assert [future.result(60).message.text for future in first] == ["0", "1"]


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("said", ["", "x" * 99_996])
def test_requests_and_responses_may_be_as_large_as_the_limit(keys: Keys, with_keys: bool, said: str) -> None:
    server_keys, client_keys = (keys.server, keys.of("phone")) if with_keys else (None, None)
    limit_bytes = 100_000
    blob = bytes(limit_bytes - text(said).ByteSize())
    with (
        serving(ScriptedEcho(), listen=TCP, security=server_keys, max_message_bytes=limit_bytes) as server,
        echo_stub_to(server.endpoint, client_keys, max_message_bytes=limit_bytes, max_attempts=1) as stub,
    ):
        reply = stub.echo(text(said), timeout_s=60, blobs=[blob])
        assert (reply.message.text, reply.blobs) == (said, (blob,))
        with pytest.raises(InvalidArgument, match="more than the limit"):
            stub.echo(text(said), timeout_s=60, blobs=[blob + b"x"])


@pytest.mark.parametrize("client_asks", [False, True])
def test_heartbeats_to_and_from_libzmq_are_answered_and_are_not_messages(
    keys: Keys, client_asks: bool
) -> None:
    clock, arrived = ManualClock(), list[Received]()
    settings = ServerSettings(listen=TCP, heartbeat_s=5.0)
    with select.epoll() as poller, zmq.Context() as context, context.socket(zmq.DEALER) as client:
        listener = Listener(settings, keys.server, poller, lambda job, _: job(), clock=clock)

        def heard() -> bool:
            arrived.extend(listener.receive(dict(poller.poll(0.05))))
            return any(
                one.session.mechanism.done and one.received_s == clock.monotonic()
                for one in listener._connections.values()
            )

        try:
            client.linger = 0
            client.heartbeat_ivl = 20 if client_asks else 0
            keys.give_to(client)
            client.connect(listener.endpoint)
            wait_until(heard, what="the handshake")
            for _ in range(3):
                clock.advance(6.0)
                if not client_asks:
                    listener.tick()
                wait_until(heard, what="a message of the client")
        finally:
            listener.close()
        assert arrived == []
        assert not client.poll(0)


def test_a_client_that_is_replaced_during_its_handshake_gets_the_reason(keys: Keys) -> None:
    clock = ManualClock()
    settings = ServerSettings(listen=TCP, connections_limit=1)
    with select.epoll() as poller, zmq.Context() as context, context.socket(zmq.DEALER) as client:
        listener = Listener(settings, keys.server, poller, lambda job, _: job(), clock=clock)

        def served(*but: Connection) -> list[Connection]:
            ready = dict(poller.poll(0.05))
            for connection in but:
                ready.pop(connection.descriptor, None)
            listener.receive(ready)
            return list(listener._connections.values())

        monitor = client.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        with closing(listener), closing(monitor):
            client.linger = 0
            keys.give_to(client)
            client.connect(listener.endpoint)
            wait_until(lambda: any(one.session._greeted for one in served()), what="its greeting")
            (connection,) = listener._connections.values()
            clock.advance(1.0)
            with raw_peers(listener.endpoint, 2, greet=False):
                wait_until(
                    lambda: connection not in served(connection), what="the replacement of the connection"
                )
                assert monitor.poll(60_000)
                failed = parse_monitor_message(monitor.recv_multipart())
                # The second value if the client was about to send.
                assert failed["value"] in {500, zmq.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND}
            client.disable_monitor()


@pytest.mark.parametrize("begun", [False, True])
def test_a_server_with_too_many_connections_is_unavailable_and_not_unauthenticated(
    keys: Keys, begun: bool
) -> None:
    with (
        closing(RawServer()) as server,
        echo_stub_to(server.endpoint, keys.of("phone"), connect_grace_s=0) as stub,
    ):
        future = stub.echo.future(text(), timeout_s=60)
        server.accept()
        said = [greeting(b"CURVE"), frame(b"\x05ERROR\x03500", 4)]
        server.socket.sendall(said[0] if begun else b"".join(said))
        if begun:
            server.read(64)
            assert server.frame().startswith(b"\x05HELLO")
            server.socket.sendall(said[1])
        with pytest.raises(Unavailable, match="has too many connections"):
            future.result(60)
