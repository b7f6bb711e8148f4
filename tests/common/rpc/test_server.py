"""How a server handles calls, including deferred answers, and how it stops."""

import copy
import json
import threading
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import InternalError, NotFound, Overloaded, StatusCode, Unavailable
from nearsight.common.logging import configure_logging
from nearsight.common.rpc.allow_list import LOCAL
from nearsight.common.rpc.envelope import Hop
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext, Service
from nearsight.common.rpc.settings import ServerSettings
from nearsight.protos import echo_pb2
from support.rpc import ECHO, Answers, Gate, ScriptedEcho, echo_stub, give_back, request_frames, serving, text
from support.waiting import wait_until


def test_a_call_gets_its_own_answer_with_blobs_and_sizes() -> None:
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        reply = stub.echo(text("hello"), timeout_s=60, blobs=[b"one", b"", bytearray(b"three")])
        assert reply.message.text == "hello"
        assert [bytes(blob) for blob in reply.blobs] == [b"one", b"", b"three"]
        (hop,) = reply.hops
        assert hop.tier == "test"
        assert hop.received_bytes == reply.sent_bytes > 8
        assert hop.sent_bytes == len(reply.message.SerializeToString()) + 8


def test_the_handler_receives_client_catalogue_trace_id_and_deadline() -> None:
    seen: list[CallContext] = []

    def look(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        seen.append(context)
        return give_back(request, context)

    with serving(ScriptedEcho(look)) as server, echo_stub(server) as stub:
        stub.echo(text(), timeout_s=1000, catalogue="museum", trace_id="t-1")
        stub.echo(text(), timeout_s=1000, client_id="visitor")
    assert (seen[0].client_id, seen[0].catalogue, seen[0].trace_id) == ("test", "museum", "t-1")
    assert 500.0 < seen[0].deadline.remaining_s() <= 1000.0
    assert seen[0].caller is LOCAL
    assert seen[1].client_id == "visitor"
    assert seen[1].trace_id


def test_hops_of_lower_tiers_come_first_and_waiting_for_them_is_no_compute_time() -> None:
    with serving(ScriptedEcho()) as cloud, echo_stub(cloud) as cloud_stub:
        left: list[float] = []

        def forward(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
            left.append(context.deadline.remaining_s())
            reply = cloud_stub.echo(
                request, timeout_s=context.deadline.remaining_s(), trace_id=context.trace_id
            )
            context.hops.extend(reply.hops)
            context.next_tier_ms += 1e6
            return echo_pb2.EchoResponse(text=reply.message.text)

        with serving(ScriptedEcho(forward)) as edge, echo_stub(edge) as stub:
            reply = stub.echo(text("up"), timeout_s=60)
        first, last = reply.hops
        assert isinstance(first, Hop)
        assert last.next_tier_ms == 1e6
        assert last.compute_ms == 0.0  # never negative, however the clocks disagree
        assert 0.0 < left[0] < 60.0


class Observer:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_call(self, *args: Any) -> None:
        self.calls.append(args)


def test_the_observer_receives_every_call_including_failed_ones() -> None:
    observer = Observer()
    with serving(ScriptedEcho(), metrics=observer) as server, echo_stub(server) as stub:
        stub.echo(text("hello"), timeout_s=60)
        server.submit([b"?"], Answers(), peer=1)
        server.submit(request_frames(message=b"\x0a\xff"), Answers(), peer=1)
        wait_until(lambda: len(observer.calls) == 3)
    services_and_codes = {(c[0], c[1], c[2]) for c in observer.calls}
    assert services_and_codes == {
        (ECHO.full_name, "Echo", StatusCode.OK),
        ("", "", StatusCode.INVALID_ARGUMENT),
        (ECHO.full_name, "Echo", StatusCode.INVALID_ARGUMENT),
    }
    ok = next(c for c in observer.calls if c[2] is StatusCode.OK)
    assert all(value >= 0 for value in ok[3:])


def test_calls_that_are_refused_have_no_time_of_work() -> None:
    gate, observer = Gate(), Observer()
    with serving(ScriptedEcho(gate), metrics=observer, workers=1) as server:
        server.submit(request_frames("running"), Answers(), peer=1)
        assert gate.entered.acquire(timeout=60)
        server.submit([b"?"], Answers(), peer=1)
        server.submit(request_frames("waiting", time_left_s=0.05), Answers(), peer=1)
        wait_until(lambda: len(observer.calls) == 2)
        gate.open.set()
        wait_until(lambda: len(observer.calls) == 3)
    assert [(code, compute_ms is None) for _, _, code, _, compute_ms, *_ in observer.calls] == [
        (StatusCode.INVALID_ARGUMENT, True),
        (StatusCode.DEADLINE_EXCEEDED, True),
        (StatusCode.OK, False),
    ]


def test_an_observer_that_raises_does_not_end_a_worker() -> None:
    class Broken:
        def on_call(self, *args: Any) -> None:
            raise RuntimeError("metrics are broken")

    with serving(ScriptedEcho(), workers=1, metrics=Broken()) as server, echo_stub(server) as stub:
        for _ in range(5):
            stub.echo(text(), timeout_s=60)


def test_stopping_waits_for_the_answer_in_progress_and_refuses_new_requests() -> None:
    gate, answers = Gate(), Answers()
    with serving(ScriptedEcho(gate)) as server:
        server.submit(request_frames("running"), answers, peer=1)
        assert gate.entered.acquire(timeout=60)
        stopping = threading.Thread(target=server.stop, args=(60.0,))
        stopping.start()
        wait_until(lambda: not server.serving)
        refused = Answers()
        server.submit(request_frames(), refused, peer=1)
        assert refused.next().status == StatusCode.UNAVAILABLE
        gate.open.set()
        stopping.join(60)
        assert not stopping.is_alive()
        assert answers.next().status == StatusCode.OK


def test_requests_still_unanswered_after_the_grace_period_get_unavailable() -> None:
    answers = Answers()
    promised: Future[Any] = Future()
    with serving(ScriptedEcho(lambda *_: promised)) as server:
        server.submit(request_frames(), answers, peer=1)
        wait_until(lambda: len(server._answers.deferred) == 1)
        server.stop(grace_s=0.01)
        assert answers.next().status == StatusCode.UNAVAILABLE
        server.stop()  # twice is fine


def test_a_service_without_a_handler_or_a_duplicate_one_is_refused_at_construction() -> None:
    class Half(Service):
        descriptor: ClassVar[ServiceDescriptor] = ECHO

        def echo(self, request: Any, context: CallContext) -> Any:
            return None

    with pytest.raises(TypeError, match="echo_once"):
        RpcServer([Half()], tier="t", settings=ServerSettings())
    with pytest.raises(TypeError, match="two services"):
        RpcServer([ScriptedEcho(), ScriptedEcho()], tier="t", settings=ServerSettings())


def test_a_deferred_answer_frees_its_worker() -> None:
    promised: Future[echo_pb2.EchoResponse] = Future()

    def defer(request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        return promised if request.text == "later" else give_back(request, context)

    with serving(ScriptedEcho(defer), workers=1) as server, echo_stub(server) as stub:
        later = stub.echo.future(text("later"), timeout_s=60)
        assert stub.echo(text("now"), timeout_s=60).message.text == "now"
        assert not later.done()
        promised.set_result(echo_pb2.EchoResponse(text="done"))
        assert later.result(60).message.text == "done"


def test_a_deferred_answer_that_never_comes_ends_at_the_deadline() -> None:
    answers = Answers()
    late: Future[echo_pb2.EchoResponse] = Future()
    with serving(ScriptedEcho(lambda *_: late)) as server:
        server.submit(request_frames(time_left_s=0.05), answers, peer=1)
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
        late.set_result(echo_pb2.EchoResponse())  # too late: each request gets one answer
        assert len(answers.all) == 1


def test_deferred_answers_end_in_the_order_of_their_deadlines() -> None:
    answers = Answers()
    with serving(ScriptedEcho(lambda *_: Future())) as server:
        for request_id, time_left_s in ((1, 600.0), (2, 0.3), (3, 0.05)):
            server.submit(request_frames(time_left_s=time_left_s, request_id=request_id), answers, peer=1)
        answers.next()
        answers.next()
        assert [one.request_id for one in answers.all] == [3, 2]
        assert len(server._answers.deferred) == 1


def test_the_next_check_of_deadlines_is_at_most_a_minute_away() -> None:
    answers = Answers()
    with serving(ScriptedEcho(lambda *_: Future())) as server:
        for request_id, time_left_s in ((1, 6000.0), (2, 0.05)):
            server.submit(request_frames(time_left_s=time_left_s, request_id=request_id), answers, peer=1)
        assert answers.next().request_id == 2
        waiting = server._background._waiting
        wait_until(lambda: any(name == "expire" for name, _ in list(waiting)), what="the next check")
        (due_s,) = [due_s for (name, _), due_s in list(waiting.items()) if name == "expire"]
        assert due_s <= SYSTEM_CLOCK.monotonic() + 60.0


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Unavailable("cloud gone"), Unavailable), (KeyError("x"), InternalError), (None, InternalError)],
)
def test_a_deferred_failure_or_cancellation_reaches_the_caller(
    error: Exception | None, expected: type[Exception]
) -> None:
    promised: Future[Any] = Future()
    if error is None:
        promised.cancel()
    else:
        promised.set_exception(copy.copy(error))
    with (
        serving(ScriptedEcho(lambda *_: promised)) as server,
        echo_stub(server) as stub,
        pytest.raises(expected),
    ):
        stub.echo(text(), timeout_s=60)


def test_deferred_answers_are_limited_and_a_new_peer_always_has_room() -> None:
    promises: list[Future[Any]] = []

    def defer(request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        promises.append(Future())
        return promises[-1]

    with (
        serving(ScriptedEcho(defer), deferred_limit=4) as server,
        echo_stub(server) as stub,
        echo_stub(server) as newcomer,
    ):
        owed = [stub.echo.future(text(), timeout_s=60) for _ in range(2)]
        wait_until(lambda: len(server._answers.deferred) == 2)
        with pytest.raises(Overloaded, match="deferred answers"):
            stub.echo(text(), timeout_s=60)
        owed.append(newcomer.echo.future(text(), timeout_s=60))
        wait_until(lambda: len(server._answers.deferred) == 3)
        with pytest.raises(Overloaded, match="deferred answers"):
            newcomer.echo(text(), timeout_s=60)
        for promise in promises:
            promise.set_result(echo_pb2.EchoResponse())
        for future in owed:
            future.result(60)


def logged(capsys: pytest.CaptureFixture[str], count: int) -> list[dict[str, Any]]:
    """The log lines of at least ``count`` requests; a line is written after its answer was sent."""
    text = ""

    def all_there() -> bool:
        nonlocal text
        text += capsys.readouterr().err
        return text.count('"event": "request"') >= count

    wait_until(all_there, what=f"{count} requests in the log")
    return [line for line in map(json.loads, text.splitlines()) if line["event"] == "request"]


def test_each_tier_logs_a_line_for_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json")

    def unknown(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        raise NotFound("no such thing")

    with (
        serving(ScriptedEcho(unknown), log_requests="info") as cloud,
        echo_stub(cloud) as cloud_stub,
    ):

        def forward(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
            answer: echo_pb2.EchoResponse
            answer = cloud_stub.echo(request, timeout_s=60, trace_id=context.trace_id).message
            return answer

        with serving(ScriptedEcho(forward), log_requests="info") as edge, echo_stub(edge) as stub:
            with pytest.raises(NotFound):
                stub.echo(text("hello"), timeout_s=60, trace_id="t-\x1b[2J", catalogue="museum")
            lines = logged(capsys, 2)
    assert [line["trace_id"] for line in lines] == ["t-\\x1b[2J"] * 2
    assert {line["code"] for line in lines} == {"NOT_FOUND"}
    assert {line["level"] for line in lines} == {"info"}
    assert lines[1].keys() >= {"method", "client", "catalogue", "queue_ms", "compute_ms", "received_bytes"}


def test_all_tiers_choose_the_same_requests_for_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json")
    chosen: list[set[str]] = []
    for _ in range(2):
        with (
            serving(ScriptedEcho(), workers=1, log_requests="info", log_share=0.5) as server,
            echo_stub(server) as stub,
        ):
            for number in range(40):
                stub.echo(text(), timeout_s=60, trace_id=f"trace-{number}")
            stub.echo(text(), timeout_s=60, trace_id="last")  # the one worker has written all other lines
        chosen.append({line["trace_id"] for line in logged(capsys, 10)} - {"last"})
    assert chosen[0] == chosen[1]
    assert 10 <= len(chosen[0]) <= 30


def test_requests_are_not_logged_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="DEBUG", log_format="json")
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        stub.echo(text(), timeout_s=60)
    assert "request" not in [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
