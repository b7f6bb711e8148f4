"""A group of channels: its thread, the caller that receives, and the end of both."""

import select
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.rpc.client import Channel, ChannelGroup, Reply, Stub
from nearsight.common.rpc.links import Link
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.transport import Transport
from support.inprocess import INPROC, InProcessTransport
from support.rpc import ECHO, ScriptedEcho, give_back, serving, text
from support.waiting import LONG_S, wait_until


def some_unanswered(request: Any, context: Any) -> Any:
    """Answer all requests but those with the text "never"."""
    return Future() if request.text == "never" else give_back(request, context)


@pytest.fixture
def server() -> Iterator[RpcServer]:
    with serving(ScriptedEcho(some_unanswered)) as server:
        yield server


class ForCallers(InProcessTransport):
    """A transport for which a caller may wait; only `wake_caller` ends its wait."""

    def __init__(self, server: RpcServer) -> None:
        super().__init__(server)
        self._caller_woken = threading.Event()

    def caller_can_wait(self) -> bool:
        return True

    def wake_caller(self) -> None:
        self._caller_woken.set()

    def wait_in_caller(self, timeout_s: float) -> bool:
        self._caller_woken.wait(timeout_s)
        self._caller_woken.clear()
        return False


def test_closing_a_channel_of_a_group_ends_the_wait_of_a_caller(server: RpcServer) -> None:
    with closing(ChannelGroup(transport=ForCallers(server))) as group, ThreadPoolExecutor(1) as pool:
        channel = Channel(INPROC, client_id="x", group=group)
        echo = Stub(channel, ECHO).echo
        echo(text("connected"), timeout_s=LONG_S)
        wait_until(lambda: not group._thread_receives, what="the end of the thread's receiving")
        waiting = pool.submit(echo, text("never"), timeout_s=600.0)
        wait_until(lambda: group._caller_receives, what="the waiting caller")
        channel.close()
        with pytest.raises(Unavailable, match="closed"):
            waiting.result(LONG_S)


class Slow(Transport):
    """A transport whose waiting caller is held up between the end of its wait and the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.closed = threading.Event()

    def wait_in_caller(self, timeout_s: float) -> bool:
        select.select([self._caller_waker.descriptor], [], [])
        assert self.go_on.wait(LONG_S)
        return super().wait_in_caller(timeout_s)

    def close(self) -> None:
        super().close()
        self.closed.set()


def test_a_transport_is_closed_after_its_waiting_caller_has_left() -> None:
    transport = Slow()
    with serving(ScriptedEcho(some_unanswered), listen="tcp://127.0.0.1:0") as server:
        group = ChannelGroup(transport=transport)
        channel = Channel(server.endpoint, client_id="x", group=group)
        echo = Stub(channel, ECHO).echo
        echo.future(text("connected"), timeout_s=LONG_S).result(LONG_S)
        wait_until(lambda: not group._thread_receives, what="the end of the thread's receiving")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(echo, text("never"), timeout_s=600.0)
            wait_until(lambda: group._caller_receives, what="the waiting caller")
            channel.close()
            group.close()
            assert not transport.closed.is_set()
            transport.go_on.set()
            with pytest.raises(Unavailable, match="closed"):
                waiting.result(LONG_S)
        assert transport.closed.wait(LONG_S)


def test_after_an_error_in_a_waiting_caller_the_thread_receives_the_answers() -> None:
    class Interrupted(Transport):
        def wait_in_caller(self, timeout_s: float) -> bool:
            raise KeyboardInterrupt

    with (
        serving(ScriptedEcho(some_unanswered), listen="tcp://127.0.0.1:0") as server,
        closing(ChannelGroup(transport=Interrupted())) as group,
        Channel(server.endpoint, client_id="x", group=group) as channel,
    ):
        echo = Stub(channel, ECHO).echo
        echo.future(text("connected"), timeout_s=LONG_S).result(LONG_S)
        wait_until(lambda: not group._thread_receives, what="the end of the thread's receiving")
        with pytest.raises(KeyboardInterrupt):
            echo(text("never"), timeout_s=600.0)
        later = echo.future(text("later"), timeout_s=600.0)
        assert later.result(LONG_S).message.text == "later"


def test_a_failed_attempt_of_a_closed_channel_does_not_fail_the_calls_of_others() -> None:
    handled, go_on = threading.Event(), threading.Event()

    def hold_up(_: Future[Reply]) -> None:
        handled.set()
        assert go_on.wait(LONG_S)

    with (
        serving(ScriptedEcho(some_unanswered), listen="tcp://127.0.0.1:0") as server,
        closing(ChannelGroup()) as group,
        Channel(server.endpoint, client_id="x", group=group) as right,
    ):
        echo = Stub(right, ECHO).echo
        echo.future(text("first"), timeout_s=LONG_S).add_done_callback(hold_up)
        assert handled.wait(LONG_S)
        with Channel("tcp://[é]:80", client_id="x", group=group) as wrong:
            Stub(wrong, ECHO).echo.future(text("nowhere"), timeout_s=LONG_S)
        pending = echo.future(text("never"), timeout_s=600.0)
        go_on.set()
        assert echo.future(text("last"), timeout_s=LONG_S).result(LONG_S).message.text == "last"
        assert not pending.done()


def test_answers_that_arrive_together_with_an_error_are_not_lost(server: RpcServer) -> None:
    unknown = Link("tcp://127.0.0.1:1", ChannelSettings(), None)

    class Broken(InProcessTransport):
        def changes(self) -> list[tuple[Link, NearsightError | None]]:
            return [(unknown, None)] if self._arrived else super().changes()

    with (
        closing(ChannelGroup(transport=Broken(server))) as group,
        Channel(INPROC, client_id="x", group=group) as channel,
    ):
        call = Stub(channel, ECHO).echo.future(text("answered"), timeout_s=LONG_S)
        assert call.result(LONG_S).message.text == "answered"
