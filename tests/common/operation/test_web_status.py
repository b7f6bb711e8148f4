"""`nearsight status` of gateways: with an edge, without one, and stopped."""

import errno
import json
import re
import socket
from contextlib import suppress
from threading import Event, Thread

import pytest

from nearsight.__main__ import main
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.operation import web_status
from support.gateway import ScriptedEdge, running_gateway


def status(*arguments: str) -> int:
    """The exit code of `nearsight status` with a timeout for busy machines."""
    return main(["status", *arguments, "--timeout", "60"])


def test_the_status_of_a_gateway_is_shown_like_that_of_other_daemons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    edge = ScriptedEdge()
    try:
        with running_gateway(edge.endpoint) as browser:
            url = browser.gateway.endpoint
            assert status(f"{url}/") == 0
            capsys.readouterr()
            assert status(url, edge.endpoint, "--json") == 0
            answers = json.loads(capsys.readouterr().out)
            assert [(one["endpoint"], one["daemon"]) for one in answers] == [
                (url, "gateway"),
                (edge.endpoint, "edge"),
            ]
            edge.stop()
            assert status(url) == 4
            shown = capsys.readouterr().out
            assert shown.startswith(f"gateway {url}: not ready\n  edge: ")
            assert re.search("edge: .{10}", shown)
        assert status(url) == 4
        assert f"{url}: no answer: the connection failed" in capsys.readouterr().out
    finally:
        edge.stop()


def test_another_program_is_not_mistaken_for_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    edge, metrics = ScriptedEdge(), DaemonMetrics("edge")
    try:
        for address in (metrics.start_http("127.0.0.1:0"), edge.endpoint.removeprefix("tcp://")):
            assert status(f"http://{address}") == 4
            assert "no answer: the server there is not a gateway" in capsys.readouterr().out
    finally:
        metrics.stop_http()
        edge.stop()


def test_a_server_that_never_completes_its_answer_does_not_delay_the_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send_slowly() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not done.wait(0.01):
                    connection.sendall(b" ")

        sender = Thread(target=send_slowly)
        sender.start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            assert main(["status", url, "--timeout", "1"]) == 4
            assert f"{url}: no answer: " in capsys.readouterr().out
        finally:
            done.set()
            sender.join()


def test_a_connection_that_breaks_within_an_error_is_a_failed_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_answer: object, _name: str) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(web_status, "_field", break_off)
    with running_gateway("tcp://127.0.0.1:1") as browser:
        assert status(url := browser.gateway.endpoint) == 4
        assert f"{url}: no answer: the connection failed: " in capsys.readouterr().out
