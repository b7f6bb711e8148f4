"""Errors of requests, handlers and responses, and the error that the caller gets."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsight.common.errors import (
    CorruptStore,
    InternalError,
    InvalidArgument,
    NotFound,
    Overloaded,
    StatusCode,
    Unavailable,
)
from nearsight.common.rpc.service import CallContext
from nearsight.protos import echo_pb2
from support.rpc import Answers, ScriptedEcho, echo_stub, give_back, request_frames, serving, text


@pytest.mark.parametrize(
    ("header", "names"),
    [({"service": "nearsight.v1.Nothing"}, "nearsight.v1.Echo"), ({"method": "Shout"}, "Echo, EchoOnce")],
)
def test_the_error_for_an_unknown_service_or_method_lists_the_existing_ones(
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
def test_an_unreadable_request_is_answered_with_its_request_id(
    frames: list[Any], request_id: int, reason: str
) -> None:
    answers = Answers()
    with serving(ScriptedEcho()) as server:
        server.submit(frames, answers, peer=1)
        answer = answers.next()
    assert (answer.status, answer.request_id) == (StatusCode.INVALID_ARGUMENT, request_id)
    assert reason in answer.error


@settings(max_examples=60)
@given(st.lists(st.lists(st.binary(max_size=120), max_size=4), min_size=1, max_size=8))
def test_arbitrary_frames_get_one_answer_each_and_do_not_stop_the_server(
    messages: list[list[bytes]],
) -> None:
    with serving(ScriptedEcho()) as server, echo_stub(server) as stub:
        answers = Answers()
        for frames in messages:
            server.submit(frames, answers, peer=1)
        for _ in messages:
            answers.next()
        assert stub.echo(text("alive"), timeout_s=60).message.text == "alive"
        assert len(answers.all) == len(messages)
        assert all(answer.status != StatusCode.INTERNAL for answer in answers.all)


@settings(max_examples=60)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_request_is_never_answered_as_an_internal_error(
    message: bytes, position: int, value: int
) -> None:
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
def test_an_error_of_the_handler_reaches_the_caller_complete(error: Exception) -> None:
    def fail(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        raise copy.copy(error)  # the traceback of the parameter itself would keep the server

    with serving(ScriptedEcho(fail)) as server, echo_stub(server) as stub:
        with pytest.raises(type(error)) as caught:
            stub.echo(text(), timeout_s=60)
        assert str(caught.value) == str(error)


@pytest.mark.parametrize("bug", [ValueError("secret path"), CorruptStore("secret path")])
def test_a_bug_stays_in_the_log_and_the_server_goes_on(
    bug: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        if request.text == "bug":
            raise copy.copy(bug)
        return give_back(request, context)

    with serving(ScriptedEcho(fail)) as server, echo_stub(server) as stub:
        with pytest.raises(InternalError) as caught:
            stub.echo(text("bug"), timeout_s=60, trace_id="trace-7")
        assert "secret" not in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert "trace-7" in str(caught.value)
        assert stub.echo(text("fine"), timeout_s=60).message.text == "fine"
    out = "".join(capsys.readouterr())
    assert "secret path" in out
    assert "trace-7" in out


@pytest.mark.parametrize(
    ("result", "blob"),
    [
        (None, b""),
        (echo_pb2.EchoRequest(text="wrong type"), b""),
        ("text", b""),
        (echo_pb2.EchoResponse(), "no bytes"),
    ],
)
def test_a_handler_that_returns_no_response_or_an_invalid_blob_is_a_bug(result: Any, blob: Any) -> None:
    def answer(request: echo_pb2.EchoRequest, context: CallContext) -> Any:
        context.response_blobs.append(blob)
        return result

    with serving(ScriptedEcho(answer)) as server, echo_stub(server) as stub, pytest.raises(InternalError):
        stub.echo(text(), timeout_s=60)


@pytest.mark.parametrize(
    ("sent", "answered", "says"),
    [
        (2000, 0, "request has 2000 bytes, more than the limit of 1000; transfer less at once$"),
        (0, 2000, "response has 2000 bytes, more than the limit of 1000; transfer less at once$"),
    ],
)
def test_a_message_over_the_limit_is_refused_with_advice(sent: int, answered: int, says: str) -> None:
    def grow(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        context.response_blobs.append(bytes(answered))
        return echo_pb2.EchoResponse()

    with (
        serving(ScriptedEcho(grow), max_message_bytes=1000) as server,
        echo_stub(server) as stub,
        pytest.raises(InvalidArgument, match=says),
    ):
        stub.echo(text(), timeout_s=60, blobs=[bytes(sent)])
