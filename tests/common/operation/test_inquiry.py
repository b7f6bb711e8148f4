"""One question to many daemons: all at once, and one that fails spoils no other answer."""

import time

import pytest

from nearsight.common.errors import InvalidMessage, NearsightError, Unavailable
from nearsight.common.operation.inquiry import Inquiry, ask_all
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import EchoService
from nearsight.protos import echo_pb2
from nearsight.protos.echo_pb2 import EchoRequest, EchoResponse
from nearsight.protos.health_pb2 import HealthResponse

ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"].methods_by_name["Echo"]


def text_of(response: EchoResponse) -> str:
    return response.text


def refuse(response: EchoResponse) -> str:
    raise Unavailable(f"{response.text} cannot be read")


@pytest.fixture
def silent() -> str:
    with RpcServer([EchoService()], tier="gone", settings=ServerSettings()) as server:
        return server.endpoint


def test_answers_come_in_the_order_of_the_endpoints_and_the_silent_ones_are_errors(silent: str) -> None:
    inquiry = Inquiry("test", ECHO, EchoRequest(text="there"), EchoResponse, text_of)
    with RpcServer([EchoService()], tier="one", settings=ServerSettings()) as server:
        started_s = time.monotonic()
        answers = ask_all([silent, server.endpoint, silent, silent], inquiry, timeout_s=0.5)
    assert answers[1] == "there"
    assert all(isinstance(answers[number], NearsightError) for number in (0, 2, 3))
    assert time.monotonic() - started_s < 1.4, "three silences of half a second, at the same time"


def test_an_answer_of_another_kind_or_that_cannot_be_read_is_an_error() -> None:
    other = Inquiry("test", ECHO, EchoRequest(), HealthResponse, lambda response: response.daemon)
    unreadable = Inquiry("test", ECHO, EchoRequest(text="this"), EchoResponse, refuse)
    with RpcServer([EchoService()], tier="one", settings=ServerSettings()) as server:
        (wrong,) = ask_all([server.endpoint], other, timeout_s=5.0)
        (failed,) = ask_all([server.endpoint], unreadable, timeout_s=5.0)
    assert isinstance(wrong, InvalidMessage)
    assert "EchoResponse" in str(wrong)
    assert isinstance(failed, Unavailable)


def test_nobody_asked_nobody_answers() -> None:
    assert ask_all([], Inquiry("test", ECHO, EchoRequest(), EchoResponse, text_of), timeout_s=5.0) == ()
