"""More requests than a server can serve in time: queues and deadlines."""

from typing import Any

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import Overloaded, StatusCode
from nearsight.common.rpc.service import CallContext
from nearsight.protos import echo_pb2
from support.rpc import Answers, Gate, ScriptedEcho, echo_stub, request_frames, serving, text
from support.waiting import wait_until


def test_a_request_that_waits_longer_than_the_limit_is_overloaded_while_all_workers_are_busy() -> None:
    gate, clock = Gate(), ManualClock()
    echo = ScriptedEcho(gate)
    with serving(echo, workers=1, queue_timeout_s=2.0, clock=clock) as server, echo_stub(server) as stub:
        running = stub.echo.future(text("running"), timeout_s=60)
        assert gate.entered.acquire(timeout=60)
        waiting = stub.echo.future(text("waiting"), timeout_s=60)
        wait_until(lambda: server.queue_length == 1)
        clock.advance(2.0)
        with pytest.raises(Overloaded, match="without a free worker"):
            waiting.result(60)
        gate.open.set()
        running.result(60)
    assert echo.seen == ["running"]


def test_deadline_during_queue_is_answered_and_the_request_never_started() -> None:
    gate, answers = Gate(), Answers()
    echo = ScriptedEcho(gate)
    with serving(echo, workers=1) as server:
        server.submit(request_frames("running"), Answers(), peer=1)
        assert gate.entered.acquire(timeout=60)
        server.submit(request_frames("waiting", time_left_s=0.05), answers, peer=1)
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
        gate.open.set()
    assert echo.seen == ["running"]


def test_deadline_during_handler_is_answered_as_exceeded_and_once() -> None:
    gate, answers = Gate(), Answers()
    cancelled = []

    def slow(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        response = gate(request, context)
        cancelled.append(context.cancelled())
        return response

    clock = ManualClock()
    with serving(ScriptedEcho(slow), clock=clock) as server:
        server.submit(request_frames(time_left_s=3.0), answers, peer=1)
        assert gate.entered.acquire(timeout=60)
        clock.advance(3.0)
        gate.open.set()
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
    assert cancelled == [True]
    assert len(answers.all) == 1


@pytest.mark.parametrize(
    ("greedy", "honest"),
    [
        ([{"peer": 1}] * 300, {"peer": 2}),
        (
            [{"peer": connection, "peer_key": "a"} for connection in range(300)],
            {"peer": 301, "peer_key": "b"},
        ),
    ],
    ids=["connections", "keys"],
)
def test_a_client_with_one_request_does_not_wait_for_all_requests_of_another(
    greedy: list[dict[str, Any]], honest: dict[str, Any]
) -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with serving(echo, workers=1) as server:
        server.submit(request_frames("running"), Answers(), peer=0)
        assert gate.entered.acquire(timeout=60)
        for sender in greedy:
            server.submit(request_frames("greedy"), Answers(), **sender)
        answers = Answers()
        server.submit(request_frames("honest"), answers, **honest)
        gate.open.set()
        assert answers.next().status == StatusCode.OK
    assert echo.seen[:3] == ["running", "greedy", "honest"]


def test_after_a_refusal_the_client_itself_refuses_its_next_requests() -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with (
        serving(echo, workers=1, queue_timeout_s=600) as server,
        echo_stub(server) as stub,
        echo_stub(server) as other,
    ):
        server._pool._queue.served(450.0)
        running = [stub.echo.future(text(), timeout_s=60) for _ in range(4)]
        with pytest.raises(Overloaded, match="requests are queued before this one"):
            running[3].result(60)
        with pytest.raises(Overloaded, match="is too busy; try again in"):
            stub.echo(text(), timeout_s=60)
        gate.open.set()
        assert other.echo_once(text("others"), timeout_s=60).message.text == "others"
        running[0].result(60)
