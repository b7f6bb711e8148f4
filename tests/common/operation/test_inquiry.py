"""One question to many daemons at once; a failure affects no other answer."""

import threading
from concurrent.futures import Future
from typing import Any

from nearsight.common.errors import NearsightError, NotFound, Unavailable
from nearsight.common.operation.inquiry import ask_all
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.protos import echo_pb2
from nearsight.protos.echo_pb2 import EchoRequest, EchoResponse
from support.rpc import ScriptedEcho, unused_endpoint

ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"].methods_by_name["Echo"]


def ask(*endpoints: str, text: str = "there") -> tuple[str | NearsightError, ...]:
    def read(endpoint: str, response: EchoResponse) -> str | NearsightError:
        assert endpoint in endpoints
        if response.text == "unreadable":
            raise Unavailable("it cannot be read")
        return response.text

    return ask_all(endpoints, ECHO, EchoRequest(text=text), read, lambda _, error: error, timeout_s=60.0)


def serving(handler: Any = None) -> RpcServer:
    service = ScriptedEcho(handler) if handler else ScriptedEcho()
    return RpcServer([service], tier="one", settings=ServerSettings())


def test_answers_are_in_the_order_of_the_endpoints_with_errors_for_absent_daemons() -> None:
    with serving() as server:
        answers = ask(unused_endpoint(), server.endpoint, unused_endpoint())
    assert answers[1] == "there"
    assert all(isinstance(answers[number], NearsightError) for number in (0, 2))


def test_all_daemons_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(3)

    def meet(request: EchoRequest, context: object) -> EchoResponse:
        together.wait(60)
        return EchoResponse(text=request.text)

    with serving(meet) as one, serving(meet) as two, serving(meet) as three:
        assert ask(one.endpoint, two.endpoint, three.endpoint) == ("there",) * 3


def test_unreadable_answers_and_errors_of_the_service_are_errors() -> None:
    def refuse(request: EchoRequest, context: object) -> Future[EchoResponse]:
        raise NotFound("no such thing")

    with serving() as server, serving(refuse) as other:
        (unreadable,) = ask(server.endpoint, text="unreadable")
        (missing,) = ask(other.endpoint)
    assert isinstance(unreadable, Unavailable)
    assert isinstance(missing, NotFound)


def test_no_endpoints_give_no_answers() -> None:
    assert ask() == ()
