"""Handlers that promise their answer."""

import copy
from concurrent.futures import Future
from typing import Any

import pytest

from nearsight.common.errors import (
    InternalError,
    Overloaded,
    StatusCode,
    Unavailable,
)
from nearsight.common.rpc.service import CallContext
from nearsight.protos import echo_pb2
from support.rpc import (
    Answers,
    ScriptedEcho,
    echo_stub,
    give_back,
    request_frames,
    serving,
    text,
)
from support.waiting import wait_until


def test_a_deferred_answer_frees_its_worker() -> None:
    promised: Future[echo_pb2.EchoResponse] = Future()

    def defer(request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        return promised if request.text == "later" else give_back(request, context)

    with serving(ScriptedEcho(defer), workers=1) as server, echo_stub(server) as stub:
        later = stub.echo.future(text("later"), timeout_s=20)
        assert stub.echo(text("now"), timeout_s=10).message.text == "now"
        assert not later.done()
        promised.set_result(echo_pb2.EchoResponse(text="done"))
        assert later.result(10).message.text == "done"


def test_a_deferred_answer_that_never_comes_ends_at_the_deadline() -> None:
    answers = Answers()
    late: Future[echo_pb2.EchoResponse] = Future()
    with serving(ScriptedEcho(lambda *_: late)) as server:
        server.submit(request_frames(time_left_s=0.05), answers, peer=1)
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
        late.set_result(echo_pb2.EchoResponse())  # too late: nobody is answered twice
        assert len(answers.all) == 1


@pytest.mark.parametrize(
    ("error", "expected"), [(Unavailable("cloud gone"), Unavailable), (KeyError("x"), InternalError)]
)
def test_a_deferred_failure_reaches_the_caller(error: Exception, expected: type[Exception]) -> None:
    promised: Future[Any] = Future()
    promised.set_exception(copy.copy(error))
    with (
        serving(ScriptedEcho(lambda *_: promised)) as server,
        echo_stub(server) as stub,
        pytest.raises(expected),
    ):
        stub.echo(text(), timeout_s=5)


def test_a_cancelled_deferred_answer_is_a_bug_and_not_a_hang() -> None:
    promised: Future[Any] = Future()
    promised.cancel()
    with (
        serving(ScriptedEcho(lambda *_: promised)) as server,
        echo_stub(server) as stub,
        pytest.raises(InternalError),
    ):
        stub.echo(text(), timeout_s=5)


def test_owed_answers_are_bounded() -> None:
    promises: list[Future[Any]] = []

    def defer(request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        promises.append(Future())
        return promises[-1]

    with serving(ScriptedEcho(defer), deferred_limit=2) as server, echo_stub(server) as stub:
        owed = [stub.echo.future(text(), timeout_s=20) for _ in range(2)]
        wait_until(lambda: len(promises) == 2)
        wait_until(lambda: len(server._deferred) == 2)
        with pytest.raises(Overloaded, match="owed"):
            stub.echo(text(), timeout_s=20)
        for promise in promises:
            promise.set_result(echo_pb2.EchoResponse())
        for future in owed:
            future.result(10)
