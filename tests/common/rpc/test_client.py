import os
import resource
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from nearsight.common.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NearsightError,
    Unavailable,
)
from nearsight.common.rpc.client import Channel, ChannelGroup, Reply, Stub
from nearsight.common.rpc.links import Link
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.protos import echo_pb2, rpc_pb2
from support.inprocess import InProcessTransport, channel_over
from support.rpc import ECHO, Gate, ScriptedEcho, echo_stub, serving, text
from support.waiting import wait_until


@pytest.fixture(params=["tcp://127.0.0.1:0", "inproc://test"])
def listen(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_waiting_calls_and_futures_of_many_threads_mix(listen: str) -> None:
    with (
        serving(ScriptedEcho(), listen=listen) as server,
        echo_stub(server) as stub,
        ThreadPoolExecutor(6) as pool,
    ):

        def ask(number: int) -> bool:
            name = str(number)
            if number % 3 == 0:
                return bool(stub.echo.future(text(name), timeout_s=60).result(60).message.text == name)
            reply = stub.echo(text(name), timeout_s=60, blobs=[b"b" * number])
            return bool(reply.message.text == name and len(reply.blobs[0]) == number)

        assert all(pool.map(ask, range(400)))


def test_a_future_is_answered_while_another_thread_waits_for_a_slower_call(listen: str) -> None:
    gate = Gate()

    def some_slow(request: echo_pb2.EchoRequest, context: Any) -> Any:
        return gate(request, context) if request.text == "slow" else echo_pb2.EchoResponse(text=request.text)

    with serving(ScriptedEcho(some_slow), listen=listen) as server, echo_stub(server) as stub:
        stub.echo(text("warm"), timeout_s=60)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(stub.echo, text("slow"), timeout_s=60)
            assert gate.entered.acquire(timeout=60)
            quick = [stub.echo.future(text(str(n)), timeout_s=60) for n in range(5)]
            assert [f.result(60).message.text for f in quick] == list("01234")
            assert not slow.done()
            gate.open.set()
            assert slow.result(60).message.text == "slow"


def test_a_waiting_call_ends_at_its_deadline(listen: str) -> None:
    with serving(ScriptedEcho(lambda *_: Future()), listen=listen) as server, echo_stub(server) as stub:
        for _ in range(3):
            with pytest.raises(DeadlineExceeded):
                stub.echo(text(), timeout_s=0.05)


def test_a_late_answer_is_not_mistaken_for_that_of_the_next_call(listen: str) -> None:
    gate = Gate()

    def first_slow(request: echo_pb2.EchoRequest, context: Any) -> Any:
        return gate(request, context) if request.text == "late" else echo_pb2.EchoResponse(text=request.text)

    with serving(ScriptedEcho(first_slow), listen=listen) as server, echo_stub(server) as stub:
        stub.echo(text("warm"), timeout_s=60)
        with pytest.raises(DeadlineExceeded):
            stub.echo(text("late"), timeout_s=0.05)
        gate.open.set()
        for number in range(20):
            assert stub.echo(text(str(number)), timeout_s=60).message.text == str(number)


def test_a_future_cannot_be_cancelled_and_ends_with_its_answer(listen: str) -> None:
    with serving(ScriptedEcho(), listen=listen) as server, echo_stub(server) as stub:
        future = stub.echo.future(text("hello"), timeout_s=60)
        assert not future.cancel()
        assert future.result(60).message.text == "hello"


def test_closing_fails_calls_that_are_pending_and_those_that_follow(listen: str) -> None:
    with serving(ScriptedEcho(lambda *_: Future()), listen=listen) as server, echo_stub(server) as stub:
        pending = stub.echo.future(text(), timeout_s=60)
        waiting = []

        def wait() -> None:
            try:
                stub.echo(text(), timeout_s=60)
            except NearsightError as error:
                waiting.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(server._answers.deferred) == 2)
        stub.echo._channel.close()
        thread.join(60)
        assert not thread.is_alive()
        for error in (pending.exception(60), *waiting):
            assert isinstance(error, Unavailable)
        with pytest.raises(Unavailable, match="closed"):
            stub.echo(text(), timeout_s=60)


def test_a_channel_may_be_closed_by_its_own_callback(listen: str) -> None:
    with serving(ScriptedEcho(), listen=listen) as server, echo_stub(server) as stub:
        closed = threading.Event()

        def close(_: Future[Reply]) -> None:
            stub.echo._channel.close()
            closed.set()

        stub.echo.future(text(), timeout_s=60).add_done_callback(close)
        assert closed.wait(60)


def test_a_callback_that_waits_for_a_call_does_not_hang(listen: str) -> None:
    outcome: Future[object] = Future()

    with serving(ScriptedEcho(), listen=listen) as server, echo_stub(server) as stub:

        def wait(_: Future[Reply]) -> None:
            try:
                outcome.set_result(stub.echo(text(), timeout_s=60))
            except RuntimeError as error:
                outcome.set_result(error)

        gate = threading.Event()
        first = stub.echo.future(text(), timeout_s=60)
        first.add_done_callback(lambda _: gate.wait(60))
        second = stub.echo.future(text(), timeout_s=60)
        second.add_done_callback(wait)
        gate.set()
        assert isinstance(outcome.result(60), RuntimeError | Reply)


def test_a_request_of_the_wrong_type_or_size_fails_before_it_is_sent(listen: str) -> None:
    echo = ScriptedEcho()
    with serving(echo, listen=listen) as server, echo_stub(server, max_message_bytes=1000) as stub:
        with pytest.raises(InvalidArgument, match="EchoRequest"):
            stub.echo(rpc_pb2.Hop(), timeout_s=60)
        with pytest.raises(InvalidArgument, match=r"more than the limit of 1000; send less at once$"):
            stub.echo(text(), timeout_s=60, blobs=[bytes(1001)])
    assert echo.seen == []


def test_a_stub_has_exactly_the_methods_of_its_service() -> None:
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        with pytest.raises(AttributeError, match=r"nearsight.v1.Echo has no method shout\(\)"):
            stub.shout(text(), timeout_s=60)
        assert stub.echo_once(text("x"), timeout_s=60).message.text == "x"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:5", "http://x", "tcp://h"])
def test_a_channel_to_an_invalid_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        Channel(endpoint, client_id="test")


def faulty(server: Any, **settings: Any) -> tuple[Channel, InProcessTransport]:
    transport = InProcessTransport(server)
    return channel_over(transport, settings=ChannelSettings(**settings)), transport


def test_an_idempotent_call_is_repeated_after_a_lost_connection() -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with serving(echo) as server:
        channel, transport = faulty(server, backoff_s=0.001)
        with channel:
            future = Stub(channel, ECHO).echo.future(text("again"), timeout_s=60)
            assert gate.entered.acquire(timeout=60)
            transport.interrupt()
            assert gate.entered.acquire(timeout=60)
            gate.open.set()
            assert future.result(60).message.text == "again"
    assert echo.seen == ["again", "again"]


def test_a_call_that_is_not_idempotent_is_never_sent_twice() -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with serving(echo) as server:
        channel, transport = faulty(server)
        with channel:
            future = Stub(channel, ECHO).echo_once.future(text("once"), timeout_s=60)
            assert gate.entered.acquire(timeout=60)
            transport.interrupt()
            with pytest.raises(Unavailable, match="was lost during the request"):
                future.result(60)
            gate.open.set()
    assert echo.seen == ["once"]


class Garbler(InProcessTransport):
    """A transport that damages the answers of the server."""

    damage: Any = staticmethod(lambda frames: frames)

    def receive(self, limit: int) -> list[Any]:
        return [(link, self.damage(frames)) for link, frames in super().receive(limit)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda frames: [frames[0] + b"\xff"],
        lambda _: [rpc_pb2.ResponseHeader(protocol=9, request_id=1).SerializeToString()],
        lambda _: [rpc_pb2.ResponseHeader(protocol=1, request_id=1, message=b"\x0a\xff").SerializeToString()],
        lambda _: [rpc_pb2.ResponseHeader(protocol=1, request_id=1, status=77).SerializeToString()],  # type: ignore[arg-type]
    ],
)
def test_a_response_that_cannot_be_read_fails_its_call_at_once(damage: Any) -> None:
    with serving(ScriptedEcho()) as server:
        transport = Garbler(server)
        transport.damage = damage
        with channel_over(transport) as channel, pytest.raises(InternalError):
            Stub(channel, ECHO).echo(text(), timeout_s=60)


def test_an_answer_with_an_unknown_request_id_is_ignored() -> None:
    with serving(ScriptedEcho()) as server:
        transport = Garbler(server)
        transport.damage = lambda _: [rpc_pb2.ResponseHeader(protocol=1, request_id=555).SerializeToString()]
        with channel_over(transport) as channel:
            with pytest.raises(DeadlineExceeded):
                Stub(channel, ECHO).echo(text(), timeout_s=0.1)
            transport.damage = lambda frames: frames
            assert Stub(channel, ECHO).echo(text("x"), timeout_s=60).message.text == "x"


def test_an_exception_in_the_transport_fails_the_calls_and_the_thread_continues() -> None:
    class Broken(InProcessTransport):
        broken = True

        def changes(self) -> list[tuple[Link, NearsightError | None]]:
            if self.broken:
                self.broken = False
                raise RuntimeError("bug")
            return super().changes()

    with serving(ScriptedEcho()) as server:
        transport = Broken(server)
        with channel_over(transport) as channel:
            with pytest.raises(NearsightError):
                Stub(channel, ECHO).echo(text(), timeout_s=60)
            assert Stub(channel, ECHO).echo(text("x"), timeout_s=60).message.text == "x"


class EdgeTriggered(InProcessTransport):
    """Signals an arrival only if it was seen empty before, as a ZeroMQ socket does."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._seen_empty = False
        self._attached = False

    def connect(self, link: Link) -> None:
        self._attached = False
        super().connect(link)

    def receive(self, limit: int) -> list[Any]:
        with self._lock:
            taken, self._arrived = self._arrived[:limit], self._arrived[limit:]
        self._seen_empty = len(taken) < limit
        return [(self.link, frames) for frames in taken]

    def has_arrivals(self) -> bool:
        with self._lock:
            self._seen_empty = not self._arrived
            return bool(self._arrived)

    def send(self, link: Link, frames: Any) -> bool:
        if not self._connected:
            return False
        if not self._attached:  # the new connection was never seen empty
            self._attached, self._seen_empty = True, False
        answered = threading.Event()

        def reply(answer: Any) -> None:
            with self._lock:
                signals, self._seen_empty = self._seen_empty, False
                self._arrived.append(list(answer))
            if signals:
                self.wake()
            answered.set()

        self._server.submit(list(frames), reply, peer=id(self))
        # The worst case: the answer arrives before the client checks for it.
        assert answered.wait(60)
        return True


def test_no_answer_is_missed_with_an_edge_triggered_transport() -> None:
    with serving(ScriptedEcho(), workers=2) as server:
        transport = EdgeTriggered(server)
        with channel_over(transport) as channel, ThreadPoolExecutor(3) as pool:
            echo = Stub(channel, ECHO).echo
            # A single call: no other call receives its answer.
            assert echo.future(text("first"), timeout_s=60).result(60).message.text == "first"
            for _ in range(20):
                futures = [echo.future(text(str(number)), timeout_s=60) for number in range(2)]
                waiting = [pool.submit(echo, text(str(number)), timeout_s=60) for number in range(3)]
                assert [future.result(60).message.text for future in futures] == ["0", "1"]
                assert [future.result(60).message.text for future in waiting] == ["0", "1", "2"]


def test_a_channel_of_a_group_takes_one_descriptor_and_no_thread() -> None:
    with serving(ScriptedEcho(), listen="tcp://127.0.0.1:0") as server, closing(ChannelGroup()) as group:
        descriptors, tasks = _descriptors(), _tasks()
        channels = [Channel(server.endpoint, client_id=str(number), group=group) for number in range(128)]
        with ExitStack() as stack:
            calls = [
                Stub(stack.enter_context(channel), ECHO).echo.future(text(str(number)), timeout_s=60)
                for number, channel in enumerate(channels)
            ]
            answers = [call.result(60).message.text for call in calls]
            assert answers == [str(number) for number in range(128)]
            # This process has both ends, as a device with 128 peers that are also its clients.
            assert len(_descriptors() - descriptors) <= 300
            assert len(_tasks() - tasks) <= 4


def test_without_descriptors_new_connections_fail_and_existing_ones_continue() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(ScriptedEcho(), listen="tcp://127.0.0.1:0") as server, closing(ChannelGroup()) as group:
        first, second = (Channel(server.endpoint, client_id="test", group=group) for _ in range(2))
        with first, second:
            assert Stub(first, ECHO).echo(text("before"), timeout_s=60).message.text == "before"
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(_descriptors()) + 1, limits[1]))
            try:
                files = []
                with suppress(OSError):
                    while True:  # the free numbers in between
                        files.append(os.open(os.devnull, os.O_RDONLY))
                with pytest.raises(Unavailable, match="may open no more files"):
                    Stub(second, ECHO).echo(text("refused"), timeout_s=60)
                with pytest.raises(Unavailable, match="may open no more files"):
                    Channel(server.endpoint, client_id="test")
                assert Stub(first, ECHO).echo(text("there"), timeout_s=60).message.text == "there"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for file in files:
                    os.close(file)

            def answered() -> bool:  # with the next attempt to connect
                with suppress(Unavailable):
                    return bool(Stub(second, ECHO).echo(text("again"), timeout_s=60).message.text == "again")
                return False

            wait_until(answered, what="an answer")


def test_what_is_no_address_is_reported_and_other_channels_continue() -> None:
    with serving(ScriptedEcho(), listen="tcp://127.0.0.1:0") as server, closing(ChannelGroup()) as group:
        wrong, right = (Channel(to, client_id="x", group=group) for to in ("tcp://[é]:80", server.endpoint))
        with wrong, right:
            with pytest.raises(Unavailable, match="is not an address"):
                Stub(wrong, ECHO).echo(text("nowhere"), timeout_s=60)
            assert Stub(right, ECHO).echo(text("here"), timeout_s=60).message.text == "here"


def _descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


def _tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())
