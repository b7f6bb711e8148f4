"""Limits per client of memory, unread answers and connections, over real sockets."""

import errno
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import Overloaded, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.rpc.envelope import decode_response
from nearsight.common.rpc.listener import Listener
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.zmtp import Connection
from nearsight.protos import echo_pb2
from support.rpc import Gate, ScriptedEcho, echo_stub, serving, text
from support.waiting import wait_until
from support.zmtp import READY, RawPeer, frame, frame_header, greeting, raw_peers

TCP = "tcp://127.0.0.1:0"
KIB = 1024
CONNECTS = greeting() + frame(READY, 4)


class Observer:
    """Records the reasons why connections were closed."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def on_call(self, *_: Any) -> None:
        pass

    def read_connections(self, *_: Any) -> None:
        pass

    def on_dropped(self, reason: str) -> None:
        self.dropped.append(reason)


@contextmanager
def observed(handler: Any = None, **settings: Any) -> Iterator[tuple[RpcServer, Observer]]:
    observer = Observer()
    echo = ScriptedEcho(handler) if handler else ScriptedEcho()
    with serving(echo, listen=TCP, metrics=observer, **settings) as server:
        yield server, observer


def held_bytes(server: RpcServer) -> int:
    assert server._listener is not None
    return server._listener.held_bytes


def answers(size: int) -> Callable[[Any, CallContext], echo_pb2.EchoResponse]:
    def answer(_: Any, context: CallContext) -> echo_pb2.EchoResponse:
        context.response_blobs.append(bytes(size))
        return echo_pb2.EchoResponse()

    return answer


def test_a_message_of_millions_of_frames_ends_only_its_own_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        observed() as (server, observer),
        echo_stub(server) as stub,
        raw_peers(server.endpoint, 1) as (bomber,),
    ):
        assert not bomber.send(b"\x01\x00" * 4_000_000)
        wait_until(lambda: observer.dropped != [], what="the cut")
        assert held_bytes(server) == 0
        assert stub.echo(text("fine"), timeout_s=60).message.text == "fine"
        name = "{}:{}".format(*bomber.socket.getsockname())
    assert observer.dropped == ["broke the protocol"]
    assert name in capsys.readouterr().err


def test_unfinished_messages_take_no_more_memory_than_the_limit() -> None:
    limits = {"max_message_bytes": 1024 * KIB, "memory_limit_bytes": 2560 * KIB}
    with (
        observed(**limits) as (server, observer),
        echo_stub(server) as stub,
        raw_peers(server.endpoint, 8) as peers,
    ):
        for peer in peers:
            peer.send(frame_header(1000 * KIB) + bytes(900 * KIB))
        wait_until(lambda: len(observer.dropped) >= 6, what="six of them being cut")
        assert 0 < held_bytes(server) <= 2560 * KIB
        assert stub.echo(text(), timeout_s=60, blobs=[bytes(100 * KIB)]).blobs[0].nbytes == 100 * KIB
        assert sum(peer.is_cut() for peer in peers) == 6
    assert set(observer.dropped) == {"holds more memory than any other"}


def test_memory_of_a_client_is_freed_when_it_disconnects() -> None:
    with serving(ScriptedEcho(), listen=TCP) as server, raw_peers(server.endpoint, 1) as (peer,):
        peer.send(frame_header(1000 * KIB) + bytes(900 * KIB))
        wait_until(lambda: held_bytes(server) >= 900 * KIB, what="the bytes")
        peer.close()
        wait_until(lambda: held_bytes(server) == 0, what="the end")


def test_a_client_that_does_not_read_its_answers_loses_its_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        observed(answers(1024 * KIB), send_limit_bytes=8 * 1024 * KIB) as (server, observer),
        echo_stub(server) as stub,
    ):
        lazy = RawPeer(server.endpoint, receive_buffer=4096)
        lazy.greet()
        with suppress(ConnectionError):  # the cut may come before the last request
            for number in range(60):
                lazy.request(request_id=number + 1)
        wait_until(lambda: observer.dropped != [], what="the cut")
        wait_until(lambda: held_bytes(server) == 0, what="its memory")
        assert stub.echo(text(), timeout_s=60).blobs[0].nbytes == 1024 * KIB
        lazy.close()
    assert observer.dropped == ["does not read its answers"]
    assert "does not read its answers" in capsys.readouterr().err


def test_requests_of_a_disconnected_client_are_not_executed() -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with serving(echo, listen=TCP, workers=1) as server, echo_stub(server) as stub:
        first = stub.echo.future(text("first"), timeout_s=60)
        assert gate.entered.acquire(timeout=60)
        with raw_peers(server.endpoint, 1) as (peer,):
            peer.request("not executed")
            wait_until(lambda: server.queue_length == 1, what="the request")
        assert server._listener is not None
        listener = server._listener
        wait_until(lambda: len(listener._connections) == 1, what="its end")
        gate.open.set()
        assert first.result(60).message.text == "first"
        assert stub.echo(text("last"), timeout_s=60).message.text == "last"
    assert echo.seen == ["first", "last"]


def test_connections_are_counted_when_the_metrics_are_read() -> None:
    metrics = DaemonMetrics("edge")
    with serving(ScriptedEcho(), listen=TCP, metrics=metrics) as server:
        assert metrics.registry.get_sample_value("nearsight_rpc_connections") == 0
        with echo_stub(server) as stub:
            stub.echo(text(), timeout_s=60)
            assert metrics.registry.get_sample_value("nearsight_rpc_connections") == 1
            assert metrics.registry.get_sample_value("nearsight_rpc_held_bytes") == held_bytes(server)


def test_a_client_with_many_waiting_requests_is_not_read_further() -> None:
    gate = Gate()
    with (
        serving(ScriptedEcho(gate), listen=TCP, workers=1, max_message_bytes=256 * KIB) as server,
        raw_peers(server.endpoint, 1) as (peer,),
    ):
        peer.socket.setblocking(False)
        taken = 0
        with pytest.raises(BlockingIOError):
            for number in range(10_000):
                peer.request("x" * 100_000, request_id=number + 1)
                taken += 1
        assert gate.entered.acquire(timeout=60)
        wait_until(lambda: held_bytes(server) >= 256 * KIB, what="its bytes")
        assert held_bytes(server) <= 2 * 256 * KIB
        assert server.queue_length <= 4
        peer.socket.settimeout(60)
        gate.open.set()
        for _ in range(taken):
            assert decode_response([peer.frame()]).header.status == 0


def test_without_memory_a_large_request_is_refused_and_a_small_one_is_served() -> None:
    gate = Gate()
    with (
        serving(ScriptedEcho(gate), listen=TCP, workers=1, memory_limit_bytes=1000 * KIB) as server,
        echo_stub(server) as first,
        echo_stub(server) as second,
    ):
        served = first.echo.future(text(), timeout_s=60, blobs=[bytes(400 * KIB)])
        assert gate.entered.acquire(timeout=60)
        with pytest.raises(Overloaded, match="memory"):
            second.echo(text(), timeout_s=60, blobs=[bytes(400 * KIB)])
        small = second.echo.future(text(), timeout_s=60, blobs=[bytes(100 * KIB)])
        wait_until(lambda: server.queue_length == 1, what="the small request")
        gate.open.set()
        assert served.result(60).blobs[0].nbytes == 400 * KIB
        assert small.result(60).blobs[0].nbytes == 100 * KIB
        wait_until(lambda: held_bytes(server) == 0, what="the memory")


def test_many_empty_blobs_count_as_the_memory_that_they_take() -> None:
    gate = Gate()
    with (
        serving(ScriptedEcho(gate), listen=TCP, workers=1, memory_limit_bytes=1000 * KIB) as server,
        echo_stub(server) as stub,
    ):
        served = stub.echo.future(text(), timeout_s=60, blobs=[b""] * 2000)
        assert gate.entered.acquire(timeout=60)
        with pytest.raises(Overloaded, match="memory"):
            stub.echo(text(), timeout_s=60, blobs=[b""] * 2000)
        gate.open.set()
        assert len(served.result(60).blobs) == 2000
        wait_until(lambda: held_bytes(server) == 0, what="the memory")


def test_idle_connections_are_replaced_by_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with observed(connections_limit=8) as (server, observer), raw_peers(server.endpoint, 7) as idle:
        with echo_stub(server) as busy:
            busy.echo(text(), timeout_s=60)
            for _ in range(3):
                with echo_stub(server) as newcomer:
                    assert newcomer.echo(text("new"), timeout_s=60).message.text == "new"
                assert busy.echo(text("busy"), timeout_s=60).message.text == "busy"
        wait_until(idle[0].is_cut, what="the cut of the one that was idle longest")
        assert not idle[-1].is_cut()
    assert set(observer.dropped) == {"was idle while there are too many connections"}
    assert capsys.readouterr().err.count("was idle while") == 1  # the rest is counted


def test_connections_without_any_request_are_replaced_before_idle_ones() -> None:
    with observed(connections_limit=8) as (server, _), echo_stub(server) as asked:
        asked.echo(text(), timeout_s=60)
        assert server._listener is not None
        (connection,) = server._listener._connections.values()
        with raw_peers(server.endpoint, 7) as idle, echo_stub(server) as newcomer:
            assert newcomer.echo(text("new"), timeout_s=60).message.text == "new"
            assert not connection.closed
            wait_until(idle[0].is_cut, what="the cut of one that never asked")


def test_new_connections_wait_after_they_have_used_their_processor_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, CONNECTS) as (listener, look, peer):
        connection = handshaken(listener, look)
        later: list[tuple[Callable[[], None], float]] = []
        monkeypatch.setattr(listener, "_later", lambda *job: later.append(job))
        monkeypatch.setattr("nearsight.common.rpc.listener._NEWCOMERS_BURST_S", 0.0)
        with connected(listener, lambda: look() or later):
            ((accept, after_s),) = later
            assert len(listener._connections) == 1
            peer.sendall(frame(b"\x04PING\x00\x00", 4))  # existing connections are still served
            clock.advance(1.0)
            wait_until(
                lambda: bool(look() or connection.received_s == clock.monotonic()), what="the heartbeat"
            )
            assert 0.0 < after_s < 1.0
            monkeypatch.undo()
            accept()
            assert len(listener._connections) == 2


def test_connections_with_pending_calls_are_not_replaced() -> None:
    gate = Gate()
    with (
        serving(ScriptedEcho(gate), listen=TCP, workers=1, connections_limit=2) as server,
        ExitStack() as stack,
    ):
        stubs = [stack.enter_context(echo_stub(server)) for _ in range(2)]
        calls = [stub.echo.future(text(), timeout_s=60) for stub in stubs]
        assert gate.entered.acquire(timeout=60)
        wait_until(lambda: server.queue_length == 1, what="both calls")
        with echo_stub(server, connect_grace_s=0.0) as newcomer, pytest.raises(Unavailable):
            newcomer.echo(text(), timeout_s=60)
        gate.open.set()
        assert all(call.result(60).message is not None for call in calls)


Driven = tuple[Listener, Callable[[], Any], socket.socket]


@contextmanager
def driven(clock: ManualClock, observer: Observer, said: bytes = b"", **settings: Any) -> Iterator[Driven]:
    """A listener that the test polls with the returned function, and a client that has sent ``said``."""
    with select.epoll() as poller:
        options = ServerSettings(listen=TCP, **settings)
        listener = Listener(options, None, poller, lambda job, _: job(), observer, clock)

        def look() -> Any:
            return listener.receive(dict(poller.poll(0.05)))

        try:
            with connected(listener, look) as peer:
                peer.sendall(said)
                yield listener, look, peer
        finally:
            listener.close()


def connected(listener: Listener, look: Callable[[], Any]) -> socket.socket:
    host, _, port = listener.endpoint.removeprefix("tcp://").rpartition(":")
    peer = socket.create_connection((host, int(port)), timeout=60)
    wait_until(lambda: bool(look() or listener._connections), what="the connection")
    return peer


def handshaken(listener: Listener, look: Callable[[], Any]) -> Connection:
    """The only connection, after its handshake."""
    (connection,) = listener._connections.values()
    wait_until(lambda: bool(look() or connection.session.mechanism.done), what="the handshake")
    return connection


def test_a_silent_client_gets_a_heartbeat_and_is_dropped_if_it_does_not_answer() -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, CONNECTS, heartbeat_s=5.0) as (listener, look, peer):
        connection = handshaken(listener, look)
        while not peer.recv(4096).endswith(b"\x08Identity\x00\x00\x00\x00"):
            pass
        clock.advance(6.0)
        listener.tick()
        assert peer.recv(4096) == frame(b"\x04PING\x00\x00", 4)
        peer.sendall(frame(b"\x04PONG", 4))
        wait_until(lambda: bool(look() or connection.received_s == clock.monotonic()), what="the answer")
        for _ in range(2):
            clock.advance(7.0)
            listener.tick()
            assert not connection.closed
        clock.advance(2.0)
        listener.tick()
        assert connection.closed
    assert observer.dropped == ["is gone"]


def test_a_server_that_was_suspended_sends_a_heartbeat_before_it_drops_a_client() -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, CONNECTS, heartbeat_s=5.0) as (listener, look, peer):
        connection = handshaken(listener, look)
        while not peer.recv(4096).endswith(b"\x08Identity\x00\x00\x00\x00"):
            pass
        clock.advance(100.0)
        listener.tick()
        assert peer.recv(4096) == frame(b"\x04PING\x00\x00", 4)
        assert not connection.closed
        clock.advance(6.0)
        listener.tick()
        assert connection.closed
    assert observer.dropped == ["is gone"]


def test_connections_are_checked_again_when_a_client_may_be_silent_for_too_long() -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, b"\xff", heartbeat_s=5.0, handshake_timeout_s=7.0) as (listener, look, peer):
        assert listener.tick() == 5.0, "a client that connects now may be silent from then on"
        clock.advance(4.0)
        assert listener.tick() == 3.0, "the handshake must be complete by then"
        peer.sendall(CONNECTS[1:])
        handshaken(listener, look)
        clock.advance(2.0)
        assert listener.tick() == 3.0
        clock.advance(4.0)
        assert listener.tick() == 0.5, "its heartbeat is not answered yet"


def test_a_client_with_unread_data_is_not_dropped() -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, CONNECTS, heartbeat_s=5.0) as (listener, look, peer):
        connection = handshaken(listener, look)
        peer.sendall(frame(b"\x04PING\x00\x00", 4))
        assert select.select([connection.socket], [], [], 60)[0]
        clock.advance(100.0)
        listener.tick()
        assert not connection.closed
    assert observer.dropped == []


def test_a_client_that_does_not_complete_the_handshake_is_dropped() -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer, b"\xff", handshake_timeout_s=10.0) as (listener, _, _):
        clock.advance(9.0)
        listener.tick()
        assert len(listener._connections) == 1
        clock.advance(2.0)
        listener.tick()
        assert not listener._connections
    assert observer.dropped == ["did not finish connecting"]


def test_without_descriptors_idle_connections_are_closed_for_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, observer = ManualClock(), Observer()
    with driven(clock, observer) as (listener, _, _):
        real = listener._socket

        class Exhausted:
            fileno = real.fileno

            def accept(self) -> None:
                raise OSError(errno.EMFILE, "Too many open files")

        later: list[Any] = []
        monkeypatch.setattr(listener, "_later", lambda job, _: later.append(job))
        monkeypatch.setattr(listener, "_socket", Exhausted())
        listener._accept()
        assert not observer.dropped, "no client waits"
        host, port = real.getsockname()
        with socket.create_connection((host, port), timeout=60):
            listener._accept()
            assert observer.dropped == ["was idle while there are too many connections"]
            monkeypatch.setattr(listener, "_socket", real)
            (again,) = later
            wait_until(lambda: bool(again() or listener._connections), what="the connection")
            assert len(listener._connections) == 1
