"""A server process that is killed: calls end with a typed error or succeed, and never hang."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nearsight.common.errors import Unavailable
from support.child_server import ChildServer, child_server
from support.rpc import echo_stub_to, text


@pytest.fixture
def server() -> Iterator[ChildServer]:
    """A server that answers "quick" and never answers "slow"."""
    with child_server("echo", "slow") as server:
        yield server


def test_server_killed_during_handler_fails_the_call_at_once_and_serves_after_its_restart(
    server: ChildServer,
) -> None:
    with echo_stub_to(server.endpoint) as stub:
        pending = [stub.echo_once.future(text("slow"), timeout_s=120) for _ in range(3)]
        assert [server.line() for _ in pending] == ["slow"] * 3
        server.kill()
        for future in pending:
            with pytest.raises(Unavailable, match="was lost during the request"):
                future.result(60)
        with child_server("echo", listen=server.endpoint):
            assert stub.echo_once(text("quick"), timeout_s=60).message.text == "quick"


def test_server_killed_during_handler_and_restarted_answers_an_idempotent_call(server: ChildServer) -> None:
    with echo_stub_to(server.endpoint) as stub:
        pending = stub.echo.future(text("slow"), timeout_s=120)
        assert server.line() == "slow"
        server.kill()
        with child_server("echo", listen=server.endpoint):
            assert pending.result(60).message.text == "slow"


def test_server_killed_while_a_caller_waits_wakes_the_caller(server: ChildServer) -> None:
    def kill_after_the_request() -> None:
        assert server.line() == "slow"
        server.kill()

    with echo_stub_to(server.endpoint, connect_grace_s=0.1) as stub, ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_after_the_request)
        with pytest.raises(Unavailable):
            stub.echo_once(text("slow"), timeout_s=120)
        killed.result(60)


def test_server_gone_for_good_fails_idempotent_calls_after_the_grace(server: ChildServer) -> None:
    with echo_stub_to(server.endpoint, connect_grace_s=0.1) as stub:
        pending = stub.echo.future(text("slow"), timeout_s=120)
        assert server.line() == "slow"
        server.kill()
        with pytest.raises(Unavailable):
            pending.result(60)
        with pytest.raises(Unavailable, match="no server answers"):
            stub.echo(text("quick"), timeout_s=120)
