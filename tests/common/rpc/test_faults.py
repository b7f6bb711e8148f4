"""A server process that is killed: calls end with a typed error or succeed, and never hang."""

import pytest

from nearsight.common.errors import Unavailable
from support.child_server import child_server
from support.rpc import echo_stub_to, text


def test_server_killed_during_handler_fails_the_call_at_once_and_serves_after_its_restart() -> None:
    with child_server("echo") as server, echo_stub_to(server.endpoint, connect_grace_s=30.0) as stub:
        assert stub.echo_once(text("0"), timeout_s=30).message.text == "0"
        pending = [stub.echo_once.future(text("60"), timeout_s=120) for _ in range(3)]
        server.kill()
        for future in pending:
            with pytest.raises(Unavailable, match="closed the connection"):
                future.result(30)
        with child_server("echo", listen=server.endpoint):
            assert stub.echo_once(text("0"), timeout_s=30).message.text == "0"


def test_server_killed_during_handler_and_restarted_answers_an_idempotent_call() -> None:
    with child_server("echo") as server, echo_stub_to(server.endpoint, connect_grace_s=30.0) as stub:
        assert stub.echo(text("0"), timeout_s=30).message.text == "0"
        pending = stub.echo.future(text("0.3"), timeout_s=60)
        server.kill()
        with child_server("echo", listen=server.endpoint):
            assert pending.result(60).message.text == "0.3"


def test_server_killed_while_a_caller_waits_wakes_the_caller() -> None:
    with child_server("echo") as server, echo_stub_to(server.endpoint, connect_grace_s=0.1) as stub:
        assert stub.echo_once(text("0"), timeout_s=30).message.text == "0"
        later = stub.echo_once.future(text("0.2"), timeout_s=30)
        later.add_done_callback(lambda _: server.kill())
        with pytest.raises(Unavailable):
            stub.echo_once(text("60"), timeout_s=120)


def test_server_gone_for_good_fails_idempotent_calls_after_the_grace() -> None:
    with child_server("echo") as server, echo_stub_to(server.endpoint, connect_grace_s=0.1) as stub:
        assert stub.echo(text("0"), timeout_s=30).message.text == "0"
        pending = stub.echo.future(text("60"), timeout_s=120)
        server.kill()
        with pytest.raises(Unavailable):
            pending.result(30)
        with pytest.raises(Unavailable, match="no server answers"):
            stub.echo(text("0"), timeout_s=120)
