"""Requests of third-party clients and proxies that browsers do not send."""

import json
from concurrent.futures import Future
from socket import SHUT_WR

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.gateway import RECOGNIZE, STREAM, Browser, ScriptedEdge, all_of, head, raw, upgrade
from support.recognition_server import response
from support.waiting import LONG_S

IMAGE = b"an image"
H2C = ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
"""As `curl --http2` and the HTTP client of Java offer it."""


@pytest.mark.parametrize("connection", ["Upgrade, HTTP2-Settings", "close, Upgrade"])
def test_photos_with_an_offer_of_http2_are_answered_in_http1(
    browser: Browser, edge: ScriptedEdge, connection: str
) -> None:
    photo = head(len(IMAGE), *H2C, f"Connection: {connection}") + IMAGE
    last = head(len(IMAGE), "Connection: close") + IMAGE
    with raw(browser) as socket:
        socket.sendall(photo if "close" in connection else photo + photo + last)
        answers = all_of(socket)
    photos = 1 if "close" in connection else 3
    assert answers.count(b"HTTP/1.1 200 ") == answers.count(b"HTTP/1.1 ") == photos
    assert [bytes(context.blobs[0]) for context in edge.recognition.contexts] == [IMAGE] * photos


def test_an_http2_upgrade_may_arrive_byte_by_byte_before_a_chunked_body(
    browser: Browser, edge: ScriptedEdge
) -> None:
    fields = ("Host: x", "Transfer-Encoding: chunked", "Connection: Upgrade, close", *H2C)
    beginning = "\r\n".join((f"POST {RECOGNIZE} HTTP/1.1", *fields, "", "")).encode()
    with raw(browser) as socket:
        for byte in beginning + b"8\r\n" + IMAGE + b"\r\n0\r\n\r\n":
            socket.sendall(bytes([byte]))
        assert all_of(socket).startswith(b"HTTP/1.1 200 ")
    assert bytes(edge.recognition.contexts[0].blobs[0]) == IMAGE


@pytest.mark.parametrize("photos", [1, 3])
def test_a_half_closed_client_receives_its_answers(browser: Browser, edge: ScriptedEdge, photos: int) -> None:
    with raw(browser) as socket:
        socket.sendall((head(len(IMAGE)) + IMAGE) * photos)
        socket.shutdown(SHUT_WR)
        assert all_of(socket).count(b"HTTP/1.1 200 ") == photos


def test_a_client_that_half_closes_during_its_last_pipelined_request_receives_the_answer(
    browser: Browser, edge: ScriptedEdge
) -> None:
    last: Future[RecognizeResponse] = Future()
    answers = iter([response("edge"), last])
    edge.recognition.answer = lambda: next(answers)
    with raw(browser) as socket:
        socket.sendall((head(len(IMAGE)) + IMAGE) * 2)
        assert all(edge.recognition.asked.acquire(timeout=LONG_S) for _ in range(2))
        socket.shutdown(SHUT_WR)
        browser.get("/v1/health")  # the gateway notices the end of the requests before this request
        last.set_result(response("edge"))
        assert all_of(socket).count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    ("path", "origin", "status", "code"),
    [
        ("/v1/stream", None, 404, "NOT_FOUND"),
        (f"{STREAM}/", None, 404, "NOT_FOUND"),
        (RECOGNIZE, None, 404, "NOT_FOUND"),
        (STREAM, "https://evil.example", 403, "PERMISSION_DENIED"),
    ],
)
def test_a_websocket_that_is_refused_gets_the_reason(
    browser: Browser, path: str, origin: str | None, status: int, code: str
) -> None:
    headers = {} if origin is None else {"origin": origin}
    with (
        capture_logs() as logs,
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{browser.host}{path}", additional_headers=headers),
    ):
        pass
    response = refused.value.response
    assert response.status_code == status
    assert json.loads(response.body or b"")["error"]["code"] == code
    assert logs == []


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (b"Sec-WebSocket-Key: ", b"X: ", 400),
        (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 12", 400),
        (b"Host: x", b"Host: x\r\nSec-WebSocket-Protocol: ,,\xff a", 400),
        (b"GET ", b"POST ", 405),
    ],
)
def test_a_failed_handshake_is_answered_in_the_same_format(
    browser: Browser, before: bytes, after: bytes, status: int
) -> None:
    with capture_logs() as logs, raw(browser) as socket:
        socket.sendall(upgrade().replace(before, after))
        beginning, _, body = all_of(socket).partition(b"\r\n\r\n")
    assert beginning.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"application/json" in beginning and b"text/plain" not in beginning
    error = json.loads(body)["error"]
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["message"].startswith("Failed to open a WebSocket connection: ")
    assert logs == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/catalogues/m\xc3\xbcsee HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        head(5, "Transfer-Encoding: chunked"),
        upgrade().replace(b"Host: x", b"Host: x\r\nContent-Length: 3") + b"abc",
    ],
)
def test_invalid_requests_are_answered_in_the_same_format(browser: Browser, request_bytes: bytes) -> None:
    with raw(browser) as socket:
        socket.sendall(request_bytes)
        beginning, _, body = all_of(socket).partition(b"\r\n\r\n")
    assert beginning.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "INVALID_ARGUMENT"


def test_an_unreadable_form_is_one_log_line(browser: Browser) -> None:
    form = b'--line\r\nContent"Disposition: form-data\r\n\r\n'
    with capture_logs() as logs:
        assert browser.recognize(form, content_type="multipart/form-data; boundary=line").status == 400
    assert [(line["log_level"], line["component"]) for line in logs] == [("warning", "gateway.http")]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost:8080", 200),
        ("museum.localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]", 200),
        ("[::1]:8080", 200),
    ],
)
def test_without_tokens_foreign_host_names_are_refused(browser: Browser, host: str, status: int) -> None:
    photo = head(len(IMAGE), "Connection: close").replace(b"Host: x", f"Host: {host}".encode()) + IMAGE
    with raw(browser) as socket:
        socket.sendall(photo)
        assert all_of(socket).startswith(f"HTTP/1.1 {status} ".encode())
