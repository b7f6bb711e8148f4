"""One question to many daemons: all at once, and one that fails spoils no other answer."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from nearsight.common.errors import NearsightError, NotFound, Unavailable
from nearsight.common.operation.inquiry import ask_all
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.protos import echo_pb2
from nearsight.protos.echo_pb2 import EchoRequest, EchoResponse
from support.rpc import ScriptedEcho

ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"].methods_by_name["Echo"]


def ask(*endpoints: str, text: str = "there", timeout_s: float = 5.0) -> tuple[str | NearsightError, ...]:
    def read(endpoint: str, response: EchoResponse) -> str | NearsightError:
        assert endpoint in endpoints
        if response.text == "unreadable":
            raise Unavailable("it cannot be read")
        return response.text

    return ask_all(endpoints, ECHO, EchoRequest(text=text), read, lambda _, error: error, timeout_s=timeout_s)


def serving(handler: Any = None) -> RpcServer:
    service = ScriptedEcho(handler) if handler else ScriptedEcho()
    return RpcServer([service], tier="one", settings=ServerSettings())


@pytest.fixture
def silent() -> str:
    with serving() as server:
        return server.endpoint


def test_answers_come_in_the_order_of_the_endpoints_and_the_silent_ones_are_errors(silent: str) -> None:
    with serving() as server:
        answers = ask(silent, server.endpoint, silent, timeout_s=0.5)
    assert answers[1] == "there"
    assert all(isinstance(answers[number], NearsightError) for number in (0, 2))


def test_all_are_asked_before_the_first_answers() -> None:
    together = threading.Barrier(3)

    def meet(request: EchoRequest, context: object) -> EchoResponse:
        together.wait(20)
        return EchoResponse(text=request.text)

    with serving(meet) as one, serving(meet) as two, serving(meet) as three:
        assert ask(one.endpoint, two.endpoint, three.endpoint, timeout_s=20.0) == ("there",) * 3


def test_an_answer_that_cannot_be_read_and_a_service_that_is_not_there_are_errors() -> None:
    def refuse(request: EchoRequest, context: object) -> Future[EchoResponse]:
        raise NotFound("no such thing")

    with serving() as server, serving(refuse) as other:
        (unreadable,) = ask(server.endpoint, text="unreadable")
        (missing,) = ask(other.endpoint)
    assert isinstance(unreadable, Unavailable)
    assert isinstance(missing, NotFound)


def test_nobody_asked_nobody_answers() -> None:
    assert ask() == ()
