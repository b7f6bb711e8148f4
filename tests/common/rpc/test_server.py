import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.clock import ManualClock
from nearsight.common.errors import (
    CorruptStore,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NotFound,
    Overloaded,
    StatusCode,
    Unavailable,
)
from nearsight.common.rpc.hops import Hop
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext, Service
from nearsight.common.rpc.settings import ServerSettings
from nearsight.protos import echo_pb2, recognition_pb2
from support.rpc import (
    ECHO,
    RECOGNITION,
    Answers,
    Gate,
    ScriptedEcho,
    echo_stub,
    give_back,
    request_frames,
    serving,
    text,
)
from support.waiting import wait_until


def test_a_call_gets_its_own_answer_with_blobs_and_sizes() -> None:
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        reply = stub.echo(text("hello"), timeout_s=5, blobs=[b"one", b"", bytearray(b"three")])
        assert reply.message.text == "hello"
        assert [bytes(blob) for blob in reply.blobs] == [b"one", b"", b"three"]
        (hop,) = reply.hops
        assert hop.tier == "test"
        assert hop.received_bytes == reply.sent_bytes > 8
        assert hop.sent_bytes == len(reply.message.SerializeToString()) + 8


def test_many_threads_share_a_server_and_each_gets_its_own_answers() -> None:
    with (
        serving(ScriptedEcho(), workers=3) as server,
        echo_stub(server) as stub,
        ThreadPoolExecutor(8) as pool,
    ):

        def ask(number: int) -> bool:
            reply = stub.echo(text(str(number)), timeout_s=20, blobs=[b"x" * number])
            return bool(reply.message.text == str(number) and len(reply.blobs[0]) == number)

        assert all(pool.map(ask, range(300)))


def test_the_handler_sees_who_asks_for_what_and_how_long() -> None:
    seen: list[CallContext] = []

    def look(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        seen.append(context)
        return give_back(request, context)

    with serving(ScriptedEcho(look)) as server, echo_stub(server) as stub:
        stub.echo(text(), timeout_s=3, catalogue="museum", trace_id="t-1")
        stub.echo(text(), timeout_s=3, client_id="visitor")
    assert (seen[0].client_id, seen[0].catalogue, seen[0].trace_id) == ("test", "museum", "t-1")
    assert 1.0 < seen[0].deadline.remaining_s() <= 3.0
    assert seen[0].peer_key is None
    assert seen[1].client_id == "visitor"
    assert seen[1].trace_id


@pytest.mark.parametrize(
    ("header", "names"),
    [({"service": "nearsight.v1.Nothing"}, "nearsight.v1.Echo"), ({"method": "Shout"}, "Echo, EchoOnce")],
)
def test_an_unknown_service_or_method_is_answered_with_what_there_is(
    header: dict[str, str], names: str
) -> None:
    answers = Answers()
    with serving(ScriptedEcho()) as server:
        server.submit(request_frames(**header), answers, peer=1)
        answer = answers.next()
    assert answer.status == StatusCode.NOT_FOUND
    assert answer.request_id == 7
    assert names in answer.advice


@pytest.mark.parametrize(
    ("frames", "request_id", "reason"),
    [
        (request_frames(protocol=9), 7, "version 9"),
        (request_frames(message=b"\x0a\xff"), 7, "EchoRequest"),
        ([request_frames()[0][:-1]], 7, "header"),
        ([b"\xff\xff"], 0, "header"),
        ([], 0, "header"),
    ],
)
def test_what_cannot_be_read_is_answered_to_the_call_that_sent_it(
    frames: list[Any], request_id: int, reason: str
) -> None:
    answers = Answers()
    with serving(ScriptedEcho()) as server:
        server.submit(frames, answers, peer=1)
        answer = answers.next()
    assert (answer.status, answer.request_id) == (StatusCode.INVALID_ARGUMENT, request_id)
    assert reason in answer.error


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=120), max_size=4), min_size=1, max_size=8))
def test_no_frames_whatever_stop_the_server_and_each_message_gets_one_answer(
    messages: list[list[bytes]],
) -> None:
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        answers = Answers()
        for frames in messages:
            server.submit(frames, answers, peer=1)
        for _ in messages:
            answers.next()
        assert stub.echo(text("alive"), timeout_s=10).message.text == "alive"
        assert len(answers.all) == len(messages)
        assert all(answer.status != StatusCode.INTERNAL for answer in answers.all)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_request_is_answered_and_never_as_a_bug(message: bytes, position: int, value: int) -> None:
    frame = bytearray(request_frames(message=message)[0])
    frame[position % len(frame)] = value
    answers = Answers()
    with serving(ScriptedEcho()) as server:
        server.submit([bytes(frame)], answers, peer=1)
        assert answers.next().status != StatusCode.INTERNAL


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("a", advice="b"),
        NotFound("no catalogue", advice="c"),
        Unavailable("cloud gone"),
        Overloaded("x"),
    ],
)
def test_an_error_of_the_handler_reaches_the_caller_whole(error: Exception) -> None:
    def fail(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        raise error

    with serving(ScriptedEcho(fail)) as server, echo_stub(server) as stub:
        with pytest.raises(type(error)) as caught:
            stub.echo(text(), timeout_s=5)
        assert str(caught.value) == str(error)


@pytest.mark.parametrize("bug", [ValueError("secret path"), CorruptStore("secret path")])
def test_a_bug_stays_in_the_log_and_the_server_goes_on(
    bug: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        if request.text == "bug":
            raise bug
        return give_back(request, context)

    with serving(ScriptedEcho(fail)) as server, echo_stub(server) as stub:
        with pytest.raises(InternalError) as caught:
            stub.echo(text("bug"), timeout_s=5, trace_id="trace-7")
        assert "secret" not in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert "trace-7" in str(caught.value)
        assert stub.echo(text("fine"), timeout_s=5).message.text == "fine"
    out = "".join(capsys.readouterr())
    assert "secret path" in out
    assert "trace-7" in out


@pytest.mark.parametrize("result", [None, echo_pb2.EchoRequest(text="wrong type"), "text"])
def test_a_handler_that_returns_no_response_is_a_bug(result: Any) -> None:
    with (
        serving(ScriptedEcho(lambda *_: result)) as server,
        echo_stub(server) as stub,
        pytest.raises(InternalError),
    ):
        stub.echo(text(), timeout_s=5)


def test_a_handler_that_adds_what_is_no_blob_is_a_bug() -> None:
    def add(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        context.response_blobs.append("text")  # type: ignore[arg-type]
        return echo_pb2.EchoResponse()

    with serving(ScriptedEcho(add)) as server, echo_stub(server) as stub, pytest.raises(InternalError):
        stub.echo(text(), timeout_s=5)


def test_a_response_over_the_limit_is_refused_with_advice() -> None:
    def grow(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        context.response_blobs.append(bytes(2000))
        return echo_pb2.EchoResponse()

    with (
        serving(ScriptedEcho(grow), max_message_bytes=1000) as server,
        echo_stub(server) as stub,
        pytest.raises(InvalidArgument, match="response has 2000 bytes"),
    ):
        stub.echo(text(), timeout_s=5)


def test_a_request_over_the_limit_is_refused_with_advice() -> None:
    with (
        serving(ScriptedEcho(), max_message_bytes=1000) as server,
        echo_stub(server) as stub,
        pytest.raises(InvalidArgument, match="limit of 1000"),
    ):
        stub.echo(text(), timeout_s=5, blobs=[bytes(2000)])


def test_one_request_more_than_the_queue_holds_is_overloaded_at_once() -> None:
    gate = Gate()
    with serving(ScriptedEcho(gate), workers=1, queue_limit=2) as server, echo_stub(server) as stub:
        running = stub.echo.future(text("running"), timeout_s=20)
        assert gate.entered.acquire(timeout=10)
        waiting = [stub.echo.future(text(str(n)), timeout_s=20) for n in range(2)]
        wait_until(lambda: server.queue_length == 2)
        with pytest.raises(Overloaded, match="full"):
            stub.echo(text("one more"), timeout_s=20)
        gate.open.set()
        assert [f.result(10).message.text for f in (running, *waiting)] == ["running", "0", "1"]


def test_a_request_that_waits_longer_than_the_limit_is_overloaded_while_all_workers_are_busy() -> None:
    gate = Gate()
    echo = ScriptedEcho(gate)
    with serving(echo, workers=1, queue_timeout_s=0.1) as server, echo_stub(server) as stub:
        running = stub.echo.future(text("running"), timeout_s=20)
        assert gate.entered.acquire(timeout=10)
        with pytest.raises(Overloaded, match="without a free worker"):
            stub.echo(text("waiting"), timeout_s=20)
        gate.open.set()
        running.result(10)
    assert echo.seen == ["running"]


def test_deadline_during_queue_is_answered_and_the_request_never_started() -> None:
    gate, answers = Gate(), Answers()
    echo = ScriptedEcho(gate)
    with serving(echo, workers=1) as server:
        server.submit(request_frames("running"), Answers(), peer=1)
        assert gate.entered.acquire(timeout=10)
        server.submit(request_frames("waiting", time_left_s=0.05), answers, peer=1)
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
        gate.open.set()
    assert echo.seen == ["running"]


def test_a_request_without_time_left_is_not_started() -> None:
    echo, answers = ScriptedEcho(), Answers()
    with serving(echo) as server:
        server.submit(request_frames(time_left_s=0.0), answers, peer=1)
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
    assert echo.seen == []


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
        assert gate.entered.acquire(timeout=10)
        clock.advance(3.0)
        gate.open.set()
        assert answers.next().status == StatusCode.DEADLINE_EXCEEDED
    assert cancelled == [True]
    assert len(answers.all) == 1


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
    promised.set_exception(error)
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


class Recognizing(Service):
    descriptor: ClassVar[ServiceDescriptor] = RECOGNITION

    def __init__(self) -> None:
        self.gate = Gate()

    def recognize(self, request: Any, context: CallContext) -> Any:
        self.gate(echo_pb2.EchoRequest(), context)
        return recognition_pb2.RecognizeResponse(answered_by=context.client_id)


@pytest.mark.parametrize(("wanted", "superseded"), [(True, [2]), (False, [])])
def test_the_newest_frame_wins_where_a_client_that_wants_it_falls_behind(
    wanted: bool, superseded: list[int]
) -> None:
    service = Recognizing()
    answers = {number: Answers() for number in range(6)}

    def frames(number: int, client: str) -> Any:
        return request_frames(
            request_id=number,
            service=RECOGNITION.full_name,
            method="Recognize",
            message=b"",
            client_id=client,
            newest_wins=wanted,
        )

    with serving(service, workers=1) as server:
        server.submit(frames(0, "phone"), answers[0], peer=1)
        assert service.gate.entered.acquire(timeout=10)
        server.submit(frames(1, "other"), answers[1], peer=2)
        for number in (2, 3, 4):
            server.submit(frames(number, "phone"), answers[number], peer=1)
        for number in superseded:
            answer = answers[number].next()
            assert answer.status == StatusCode.OVERLOADED
            assert "newer frame" in answer.error
        service.gate.open.set()
        for number in {0, 1, 2, 3, 4} - set(superseded):
            assert answers[number].next().status == StatusCode.OK


def test_hops_of_lower_tiers_come_first_and_waiting_for_them_is_no_work() -> None:
    with serving(ScriptedEcho()) as cloud, echo_stub(cloud) as cloud_stub:
        left: list[float] = []

        def forward(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
            left.append(context.deadline.remaining_s())
            reply = cloud_stub.echo(
                request, timeout_s=context.deadline.remaining_s(), trace_id=context.trace_id
            )
            context.hops.extend(reply.hops)
            context.add_next_tier_ms(5000.0)
            return echo_pb2.EchoResponse(text=reply.message.text)

        with serving(ScriptedEcho(forward)) as edge, echo_stub(edge) as stub:
            reply = stub.echo(text("up"), timeout_s=4)
        first, last = reply.hops
        assert isinstance(first, Hop)
        assert last.next_tier_ms == 5000.0
        assert last.compute_ms == 0.0  # never negative, however the clocks disagree
        assert 0.0 < left[0] < 4.0


class Observer:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_call(self, *args: Any) -> None:
        self.calls.append(args)


def test_the_observer_learns_of_every_call_also_of_those_that_failed() -> None:
    observer = Observer()
    server = RpcServer(
        [ScriptedEcho()], tier="t", settings=ServerSettings(listen="inproc://x"), observer=observer
    )
    with server, echo_stub(server) as stub:
        stub.echo(text("hello"), timeout_s=5)
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


def test_an_observer_that_fails_does_not_cost_a_thread() -> None:
    class Broken:
        def on_call(self, *args: Any) -> None:
            raise RuntimeError("metrics are broken")

    server = RpcServer(
        [ScriptedEcho()], tier="t", settings=ServerSettings(listen="inproc://x", workers=1), observer=Broken()
    )
    with server, echo_stub(server) as stub:
        for _ in range(5):
            stub.echo(text(), timeout_s=10)


def test_stopping_waits_for_the_answer_in_progress_and_refuses_new_requests() -> None:
    gate, answers = Gate(), Answers()
    with serving(ScriptedEcho(gate)) as server:
        server.submit(request_frames("running"), answers, peer=1)
        assert gate.entered.acquire(timeout=10)
        stopping = threading.Thread(target=server.stop, args=(20.0,))
        stopping.start()
        wait_until(lambda: not server.serving)
        refused = Answers()
        server.submit(request_frames(), refused, peer=1)
        assert refused.next().status == StatusCode.UNAVAILABLE
        gate.open.set()
        stopping.join(10)
        assert not stopping.is_alive()
        assert answers.next().status == StatusCode.OK


def test_what_is_not_answered_when_the_grace_ends_is_answered_unavailable() -> None:
    answers = Answers()
    promised: Future[Any] = Future()
    with serving(ScriptedEcho(lambda *_: promised)) as server:
        server.submit(request_frames(), answers, peer=1)
        wait_until(lambda: len(server._deferred) == 1)
        server.stop(grace_s=0.01)
        assert answers.next().status == StatusCode.UNAVAILABLE
        server.stop()  # twice is fine


def test_a_service_without_a_handler_is_found_when_the_server_is_built() -> None:
    class Half(Service):
        descriptor: ClassVar[ServiceDescriptor] = ECHO

        def echo(self, request: Any, context: CallContext) -> Any:
            return None

    with pytest.raises(TypeError, match="echo_once"):
        RpcServer([Half()], tier="t", settings=ServerSettings())
    with pytest.raises(TypeError, match="two services"):
        RpcServer([ScriptedEcho(), ScriptedEcho()], tier="t", settings=ServerSettings())


def test_client_side_deadline_holds_although_the_server_says_nothing() -> None:
    with serving(ScriptedEcho(lambda *_: Future())) as server, echo_stub(server) as stub:
        start_s = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            stub.echo(text(), timeout_s=0.1)
        assert time.monotonic() - start_s < 5.0
