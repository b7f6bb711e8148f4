"""Faults around a gateway: failed and restarted edges, a stopping gateway, idle clients."""

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from websockets.sync.client import connect

from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.daemon_process import starting_daemon
from support.gateway import (
    STREAM,
    Browser,
    LiveStream,
    ScriptedEdge,
    all_of,
    head,
    opens,
    raw,
    running_gateway,
    upgrade,
)
from support.recognition_server import EXHIBIT, never, response
from support.waiting import LONG_S, wait_until

IMAGE = b"an image"
IDLE = 1000
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def mortal_edge() -> Iterator[ScriptedEdge]:
    """An edge that the test may stop."""
    edge = ScriptedEdge()
    yield edge
    edge.stop()


def test_a_stream_stays_open_while_the_edge_is_unreachable_and_continues_afterwards(
    mortal_edge: ScriptedEdge,
) -> None:
    with running_gateway(mortal_edge.endpoint) as browser, browser.stream() as stream:
        stream.read()
        stream.send(1, IMAGE)
        assert stream.read()["type"] == "answer"
        mortal_edge.stop()
        stream.send(2, IMAGE)
        error = stream.read()
        assert (error["frame"], error["error"]["code"]) == (2, "UNAVAILABLE")
        refused = browser.recognize(IMAGE)
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "UNAVAILABLE", "1")
        ready = browser.get("/readyz")
        assert ready.status == 503
        assert "the edge is unavailable" in ready.json["error"]["message"]
        assert browser.get("/healthz").status == 200
        mortal_edge.start()
        numbers = iter(range(3, 10_000))

        def answered() -> bool:
            number = next(numbers)
            stream.send(number, IMAGE)
            text = stream.read()
            assert text["frame"] == number
            return bool(text["type"] == "answer")

        wait_until(answered, what="an answer of the edge that came back")
        assert browser.get("/readyz").status == 200


def test_a_gateway_is_not_ready_before_its_edge_is(mortal_edge: ScriptedEdge) -> None:
    mortal_edge.ready = False
    with running_gateway(mortal_edge.endpoint) as browser:
        refused = browser.get("/readyz")
        assert (refused.status, refused.error) == (503, "UNAVAILABLE")
        assert refused.json["error"]["message"].startswith("the edge is not ready: its cloud does not answer")
        mortal_edge.ready = True
        assert browser.get("/readyz").status == 200


def test_frames_at_a_failing_edge_are_reported_as_lost(mortal_edge: ScriptedEdge) -> None:
    mortal_edge.recognition.answer = never()
    with running_gateway(mortal_edge.endpoint) as browser, browser.stream() as stream:
        stream.read()
        stream.send(1, IMAGE)
        assert mortal_edge.recognition.asked.acquire(timeout=LONG_S)
        mortal_edge.stop()
        error = stream.read()
        assert (error["frame"], error["error"]["code"]) == (1, "UNAVAILABLE")


def test_a_stopping_gateway_answers_pending_frames_and_closes_with_1001(edge: ScriptedEdge) -> None:
    answer: Future[RecognizeResponse] = Future()
    edge.recognition.answer = lambda: answer
    with ExitStack() as stack:
        browser = stack.enter_context(running_gateway(edge.endpoint))
        stream = stack.enter_context(browser.stream())
        stream.read()
        stream.send(1, IMAGE)
        assert edge.recognition.asked.acquire(timeout=LONG_S)
        stopping = threading.Thread(target=browser.gateway.stop, args=(LONG_S,))
        stopping.start()
        wait_until(lambda: refused_as_it_stops(stream), what="the end of taking frames")
        answer.set_result(response("edge"))
        assert stream.close_code() == 1001
        stopping.join()


def test_a_stopping_gateway_opens_no_more_streams(edge: ScriptedEdge) -> None:
    answer: Future[RecognizeResponse] = Future()
    edge.recognition.answer = lambda: answer
    with running_gateway(edge.endpoint) as browser, browser.stream() as stream:
        stream.read()
        stream.send(1, IMAGE)
        assert edge.recognition.asked.acquire(timeout=LONG_S)
        stopping = threading.Thread(target=browser.gateway.stop, args=(LONG_S,))
        stopping.start()
        wait_until(lambda: refused_as_it_stops(stream), what="the end of taking frames")
        with browser.stream() as late:
            assert late.close_code() == 1001
        answer.set_result(response("edge"))
        stopping.join()


def refused_as_it_stops(stream: LiveStream) -> bool:
    """Whether a further frame is refused because the gateway stops."""
    stream.send(2, IMAGE)
    try:
        refused = stream.connection.recv(timeout=0.05)
    except TimeoutError:  # it was taken
        return False
    return bool(json.loads(refused)["error"]["code"] == "UNAVAILABLE")


@pytest.mark.parametrize("grace_s", [0.0, 0.6])
def test_a_gateway_stops_without_an_error_behind_clients_that_are_idle_or_do_not_read(
    edge: ScriptedEdge, grace_s: float
) -> None:
    long = replace(EXHIBIT, metadata={"text": "x" * 10**7})  # more than sockets keep
    edge.recognition.answer = lambda: response("edge", long)
    with capture_logs() as logs, ExitStack() as stack:
        browser = stack.enter_context(running_gateway(edge.endpoint))
        idle, kept, unread, blocked, waiting = (stack.enter_context(raw(browser)) for _ in range(5))
        kept.sendall(HEALTHZ)
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
        for connection in (unread, blocked):
            connection.sendall(head(len(IMAGE)) + IMAGE)
            assert edge.recognition.asked.acquire(timeout=LONG_S)
            assert connection.recv(9) == b"HTTP/1.1 "
        blocked.sendall(HEALTHZ)
        edge.recognition.answer = never()
        waiting.sendall(head(len(IMAGE)) + IMAGE)
        assert edge.recognition.asked.acquire(timeout=LONG_S)
        browser.gateway.stop(grace_s)
        assert all_of(idle) == b""
        all_of(kept)
        assert all_of(waiting).startswith(b"HTTP/1.1 503 ")
    assert [line for line in logs if line["log_level"] not in ("debug", "info")] == []


@pytest.mark.parametrize(("requests", "answers"), [(100, range(100, 101)), (5000, range(102))])
def test_a_client_may_send_100_requests_ahead_and_loses_its_connection_with_more(
    browser: Browser, requests: int, answers: range
) -> None:
    with raw(browser) as connection:
        connection.sendall(HEALTHZ * (requests - 1) + HEALTHZ.replace(b"x", b"x\r\nConnection: close"))
        assert all_of(connection).count(b"HTTP/1.1 200 ") in answers


def test_1000_idle_streams_do_not_disturb_others(browser: Browser) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(raw(browser)) for _ in range(IDLE)]
        for connection in idle:
            connection.sendall(upgrade())
        for connection in idle:
            received = b""
            while b'"ready"' not in received:
                received += connection.recv(4096)
        assert browser.recognize(IMAGE).status == 200
        with browser.stream() as stream:
            stream.read()
            stream.send(1, IMAGE)
            assert stream.read()["type"] == "answer"


def test_warnings_of_asyncio_are_lines_of_the_log_and_repeated_ones_are_counted(browser: Browser) -> None:
    with capture_logs() as logs:
        for _ in range(1000):
            logging.getLogger("asyncio").warning("socket.send() raised exception.")
    assert [(line["component"], line["event"]) for line in logs] == [
        ("gateway.http", "socket.send() raised exception.")
    ]


def test_the_command_serves_and_ends_with_sigterm(tmp_path: Path, edge: ScriptedEdge) -> None:
    with starting_daemon(tmp_path, "gateway", "--edge", edge.endpoint, listen="127.0.0.1:0") as daemon:
        daemon.wait_ready()
        url = daemon.endpoint.replace("http://", "ws://")
        with connect(f"{url}{STREAM}") as connection:
            assert json.loads(connection.recv(timeout=LONG_S))["type"] == "ready"
            daemon.process.terminate()
            assert LiveStream(connection).close_code() == 1001
        assert daemon.process.wait(LONG_S) == 0
        assert "stopped" in daemon.log
        assert "Traceback" not in daemon.log


def test_a_client_that_floods_without_reading_is_not_read_any_further_and_leaves_room(
    edge: ScriptedEdge,
) -> None:
    """Unread errors fill the sockets; then the client blocks, and is finally disconnected."""
    limits = {"ping_s": 0.3, "streams_max": 1}
    with running_gateway(edge.endpoint, limits=limits) as browser, raw(browser) as connection:
        connection.sendall(upgrade())
        connection.recv(65536)
        text = b"\x81\x80" + bytes(4)  # an empty text, masked: refused
        stuck = threading.Event()

        def flood() -> None:
            try:
                while True:
                    connection.sendall(text * 10_000)
            except OSError:
                stuck.set()

        flooding = threading.Thread(target=flood)
        flooding.start()
        assert stuck.wait(LONG_S)
        flooding.join()
        wait_until(lambda: opens(browser), what="room for a stream")


def fragment(first: int, size: int, *, sent: int) -> bytes:
    """The first ``sent`` bytes of the content of a WebSocket frame, masked with zeros, and its header."""
    return bytes((first, 0xFF)) + size.to_bytes(8) + bytes(4) + bytes(sent)


def test_the_largest_unfinished_frames_lose_their_streams_beyond_the_memory_limit(edge: ScriptedEdge) -> None:
    with (
        running_gateway(edge.endpoint, limits={"memory_bytes": 2**20}) as browser,
        raw(browser) as large,
        raw(browser) as small,
    ):
        for connection, sent in ((large, 800_000), (small, 300_000)):
            connection.sendall(upgrade())
            connection.recv(65536)
            connection.sendall(fragment(0x82, 900_000, sent=sent))
        all_of(large)
        small.sendall(bytes(600_000))
        received = b""
        while b'"answer"' not in received:
            received += small.recv(65536)


def test_a_message_of_very_many_fragments_ends_its_stream(browser: Browser) -> None:
    with raw(browser) as connection:
        connection.sendall(upgrade())
        connection.recv(65536)
        with suppress(ConnectionError):
            connection.sendall(fragment(0x02, 1, sent=1) + 10_000 * fragment(0x00, 0, sent=0))
        assert (1009).to_bytes(2) + b"more than 1024 fragments" in all_of(connection)
