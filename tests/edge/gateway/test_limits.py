"""Limits of a gateway: size, rate, memory, time and connections. Over real sockets."""

import asyncio
import gzip
import json
import re
import resource
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearsight.common.errors import InvalidImage, Overloaded, Unauthenticated, Unavailable
from nearsight.edge.gateway.settings import GatewaySettings, TlsSettings
from nearsight.protos.recognition_pb2 import RecognizeResponse
from support.gateway import (
    RECOGNIZE,
    STREAM,
    Browser,
    ScriptedEdge,
    all_of,
    head,
    opens,
    raw,
    running_gateway,
    upgrade,
)
from support.recognition_server import EXHIBIT, always, failing, never, response
from support.waiting import LONG_S, wait_until

IMAGE = b"an image"
MEGABYTE = 10**6
MUSEUM = "https://museum.example"
CHUNKED = f"POST {RECOGNIZE} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
"""A head."""


def test_20_mb_are_refused_before_they_are_read(browser: Browser, edge: ScriptedEdge) -> None:
    with raw(browser) as connection:
        connection.sendall(head(20 * MEGABYTE, "Expect: 100-continue"))
        answer = connection.recv(65536)  # no `100 Continue`: nothing of the body is asked for
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert edge.recognition.requests == []


def test_a_client_that_sends_20_mb_receives_the_refusal(browser: Browser) -> None:
    reply = browser.recognize(bytes(20 * MEGABYTE))
    assert (reply.status, reply.error) == (413, "INVALID_ARGUMENT")


def test_a_body_that_grows_beyond_the_limit_without_a_length_is_refused(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"max_bytes": 10_000}) as browser, raw(browser) as connection:
        connection.sendall(CHUNKED.encode() + b"2710\r\n" + bytes(10_000) + b"\r\n1\r\nx\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert edge.recognition.requests == []


@pytest.mark.parametrize("beginning", ["GET /{} HTTP/1.1", "GET / HTTP/1.1\r\nX: {}", CHUNKED + "0\r\nX: {}"])
def test_an_endless_head_or_trailer_closes_the_connection(browser: Browser, beginning: str) -> None:
    with raw(browser) as connection, suppress(ConnectionError):
        connection.sendall(beginning.format("x" * MEGABYTE).encode())
        assert all_of(connection) == b""


def test_a_request_may_have_a_long_head(browser: Browser) -> None:
    assert browser.get("/healthz", x="x" * 60_000).status == 200


@pytest.mark.parametrize("kind", ["text/html", "application/json", "video/mp4"])
def test_a_body_of_another_type_is_refused_with_the_allowed_types(browser: Browser, kind: str) -> None:
    reply = browser.recognize(IMAGE, content_type=kind)
    assert (reply.status, reply.error) == (400, "INVALID_ARGUMENT")
    assert "image/jpeg" in reply.json["error"]["advice"]


@pytest.mark.parametrize("form", [b"", b"--line--\r\n", b"no form at all", b"--line\r\nbroken"])
def test_an_invalid_form_is_refused(browser: Browser, form: bytes) -> None:
    reply = browser.recognize(form, content_type="multipart/form-data; boundary=line")
    assert (reply.status, reply.error) == (400, "INVALID_ARGUMENT")
    assert browser.recognize(form, content_type="multipart/form-data").status == 400


def test_a_compressed_body_is_refused_with_the_reason(browser: Browser, edge: ScriptedEdge) -> None:
    reply = browser.recognize(gzip.compress(IMAGE), content_encoding="gzip")
    assert (reply.status, reply.error) == (400, "INVALID_ARGUMENT")
    assert "Content-Encoding 'gzip'" in reply.json["error"]["message"]
    assert edge.recognition.requests == []


def test_invalid_images_are_reported_as_by_the_edge(browser: Browser, edge: ScriptedEdge) -> None:
    edge.recognition.answer = failing(InvalidImage("these bytes are no image", advice="send a JPEG"))
    reply = browser.recognize(b"GIF89a")
    assert reply.status == 400
    assert reply.json["error"] == {
        "code": "INVALID_ARGUMENT",
        "message": "these bytes are no image",
        "advice": "send a JPEG",
    }
    assert browser.recognize(b"").error == "INVALID_ARGUMENT"


def test_an_invalid_frame_is_an_error_and_the_stream_continues(browser: Browser, edge: ScriptedEdge) -> None:
    with browser.stream() as stream:
        stream.read()
        edge.recognition.answer = failing(InvalidImage("these bytes are no image"))
        stream.send(1, b"GIF89a")
        assert stream.read() == {
            "type": "error",
            "frame": 1,
            "error": {"code": "INVALID_ARGUMENT", "message": "these bytes are no image", "advice": ""},
        }
        for strange in (b"", b"\x00\x00", "text"):
            stream.connection.send(strange)
            error = stream.read()
            assert (error["frame"], error["error"]["code"]) == (None, "INVALID_ARGUMENT")
        edge.recognition.answer = always("edge")
        stream.send(2, IMAGE)
        assert stream.read()["type"] == "answer"


def hold_answers(edge: ScriptedEdge) -> list[Future[RecognizeResponse]]:
    """Let the test answer; returns the list of unanswered requests, which grows with each request."""
    held: list[Future[RecognizeResponse]] = []

    def hold() -> Future[RecognizeResponse]:
        held.append(Future())
        return held[-1]

    edge.recognition.answer = hold
    return held


def test_a_frame_beyond_the_credits_is_refused_and_the_others_are_answered(
    browser: Browser, edge: ScriptedEdge
) -> None:
    held = hold_answers(edge)
    with browser.stream() as stream:
        stream.read()
        for number in (1, 2, 3, 4):
            stream.send(number, IMAGE)
        refused = stream.read()
        assert (refused["frame"], refused["error"]["code"]) == (4, "OVERLOADED")
        for _ in range(3):
            assert edge.recognition.asked.acquire(timeout=LONG_S)
        for answer in held:
            answer.set_result(response("edge"))
        assert sorted(stream.read()["frame"] for _ in range(3)) == [1, 2, 3]


def test_the_newest_frame_of_a_stream_takes_the_place_of_one_that_waits(
    edge: ScriptedEdge,
) -> None:
    held = hold_answers(edge)
    with (
        running_gateway(
            edge.endpoint
        ) as browser,  # of its own: a gateway learns how many places the edge has
        browser.stream() as busy,
        browser.stream() as late,
    ):
        busy.read()
        late.read()
        for number in (1, 2, 3):
            busy.send(number, IMAGE)
        late.send(1, IMAGE)
        for _ in range(4):  # all places at the edge
            assert edge.recognition.asked.acquire(timeout=LONG_S)
        late.send(2, IMAGE)
        late.send(3, IMAGE)
        assert late.read() == {"type": "superseded", "frame": 2}
        edge.recognition.answer = always("edge")
        for answer in held:
            answer.set_result(response("edge"))
        assert sorted(late.read()["frame"] for _ in range(2)) == [1, 3]


def test_an_unavailable_answer_to_one_stream_fails_no_waiting_frame_of_another(edge: ScriptedEdge) -> None:
    """As of an edge that does not reach its cloud: it still recognises the objects in its cache."""
    held = hold_answers(edge)
    with running_gateway(edge.endpoint) as browser, browser.stream() as busy, browser.stream() as other:
        busy.read()
        other.read()
        for number in (1, 2, 3):
            busy.send(number, IMAGE)
        wait_until(lambda: len(held) == 3, what="the frames of the first stream at the edge")
        other.send(1, IMAGE)
        wait_until(lambda: len(held) == 4, what="no free place at the edge")
        other.send(2, IMAGE)
        other.send(3, IMAGE)
        assert other.read() == {"type": "superseded", "frame": 2}
        edge.recognition.answer = always("edge")
        held[0].set_exception(Unavailable("the edge cannot reach the cloud"))
        answer = other.read()
        assert (answer["type"], answer["frame"]) == ("answer", 3)
        assert busy.read()["error"]["code"] == "UNAVAILABLE"


def test_a_frame_that_is_too_long_ends_the_stream_with_1009(edge: ScriptedEdge) -> None:
    with (
        running_gateway(edge.endpoint, limits={"max_frame_bytes": 2000}) as browser,
        browser.stream() as stream,
    ):
        assert stream.read()["max_bytes"] == 2000
        stream.send(1, bytes(1996))
        assert stream.read()["frame"] == 1
        stream.send(2, bytes(3000))
        assert stream.close_code() == 1009


def test_a_rate_limited_client_receives_a_retry_time(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"rate_per_s": 0.001}) as browser:
        assert browser.recognize(IMAGE).status == 200
        reply = browser.recognize(IMAGE)
        assert (reply.status, reply.error) == (429, "OVERLOADED")
        assert 900 < int(reply.headers["retry-after"]) <= 1000
        with browser.stream() as stream:
            stream.read()
            stream.send(1, IMAGE)
            refused = stream.read()
        assert refused["error"]["code"] == "OVERLOADED"
        assert 900 < refused["retry_after_s"] <= 1000


def test_invalid_frames_count_for_the_rate(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"rate_per_s": 0.001}) as browser, browser.stream() as stream:
        stream.read()
        stream.connection.send("text")
        assert stream.read()["error"]["code"] == "INVALID_ARGUMENT"
        stream.send(7, IMAGE)
        refused = stream.read()
        assert (refused["frame"], refused["error"]["code"]) == (7, "OVERLOADED")


def test_memory_for_images_of_all_requests_is_bounded(edge: ScriptedEdge) -> None:
    edge.recognition.answer = never()
    with running_gateway(edge.endpoint, limits={"memory_bytes": 2**20}) as browser, raw(browser) as first:
        first.sendall(head(700_000) + bytes(700_000))
        assert edge.recognition.asked.acquire(timeout=LONG_S)
        reply = browser.recognize(bytes(700_000))
        assert (reply.status, reply.error) == (503, "OVERLOADED")
        assert reply.headers["retry-after"] == "1"


def test_a_late_answer_is_a_deadline_error(edge: ScriptedEdge) -> None:
    edge.recognition.answer = never()
    with running_gateway(edge.endpoint, limits={"timeout_s": 0.1}) as browser:
        reply = browser.recognize(IMAGE)
        assert (reply.status, reply.error) == (504, "DEADLINE_EXCEEDED")


def test_refusals_of_the_gateway_by_the_edge_are_no_client_errors(
    browser: Browser, edge: ScriptedEdge
) -> None:
    edge.recognition.answer = failing(Unauthenticated("this key is not allowed"))
    reply = browser.recognize(IMAGE)
    assert (reply.status, reply.error) == (503, "UNAVAILABLE")
    assert "the edge refuses this gateway" in reply.json["error"]["message"]
    edge.recognition.answer = failing(Overloaded("busy"))
    assert (browser.recognize(IMAGE).status, browser.recognize(IMAGE).headers["retry-after"]) == (503, "1")


@pytest.fixture(scope="module")
def impatient(edge_of_module: ScriptedEdge) -> Iterator[Browser]:
    """A gateway with short timeouts."""
    limits = {"body_timeout_s": 0.2, "timeout_s": 0.2}
    with running_gateway(edge_of_module.endpoint, limits=limits) as browser:
        yield browser


def test_a_slow_body_is_refused_with_408(impatient: Browser) -> None:
    with raw(impatient) as connection:
        connection.sendall(head(1000) + b"the beginning")
        assert all_of(connection).startswith(b"HTTP/1.1 408 ")  # nor does it wait for the rest for ever


@pytest.mark.parametrize("beginning", [b"", b"POST /v1/catal", head(9)[:-2]])
def test_a_client_that_sends_no_complete_request_is_disconnected(
    impatient: Browser, beginning: bytes
) -> None:
    with raw(impatient) as connection:
        connection.sendall(beginning)
        assert all_of(connection) == b""


@pytest.mark.parametrize("sent", [head(1000) + b"half", head(8) + IMAGE])
def test_a_half_closed_connection_ends(impatient: Browser, edge: ScriptedEdge, sent: bytes) -> None:
    edge.recognition.answer = never()
    with raw(impatient) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        all_of(connection)


def test_a_stream_whose_client_answers_no_ping_is_closed(edge: ScriptedEdge) -> None:
    """Like a machine that lost its network, it answers no ping."""
    with running_gateway(edge.endpoint, limits={"ping_s": 0.2}) as browser, raw(browser) as connection:
        connection.sendall(upgrade())
        received = all_of(connection)
    assert b" 101 " in received
    assert b"keepalive ping timeout" in received


def test_a_half_closed_stream_ends(browser: Browser) -> None:
    with raw(browser) as connection:
        connection.sendall(upgrade())
        connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        all_of(connection)


@pytest.mark.parametrize("lines", [b"\r\nX: " + b"x" * 10_000, b"\r\nX: x" * 200])
def test_a_stream_with_a_too_long_head_is_refused(browser: Browser, lines: bytes) -> None:
    with raw(browser) as connection:
        connection.sendall(upgrade().replace(b"\r\n", lines + b"\r\n", 1))
        assert all_of(connection).startswith(b"HTTP/1.1 400 ")


def test_a_stream_without_frames_is_closed_after_the_idle_time(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"idle_s": 0.1}) as browser, browser.stream() as stream:
        assert stream.close_code() == 1000


def test_a_stream_over_the_limit_is_closed_with_1013(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"streams_max": 1}) as browser:
        with browser.stream() as first:
            first.read()
            with browser.stream() as second:
                assert second.close_code() == 1013
        wait_until(lambda: opens(browser), what="room for a stream")


def test_idle_connections_are_closed_for_new_ones(edge: ScriptedEdge) -> None:
    with running_gateway(edge.endpoint, limits={"connections_max": 8}) as browser, ExitStack() as stack:
        waiting = [stack.enter_context(raw(browser)) for _ in range(9)]
        assert all_of(waiting[0]) == b""
        assert browser.recognize(IMAGE).status == 200


def test_descriptors_remain_for_other_purposes(edge: ScriptedEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(resource, "getrlimit", lambda _: (12, 12))
            browser = stack.enter_context(running_gateway(edge.endpoint))
        waiting = [stack.enter_context(raw(browser)) for _ in range(10)]
        assert all_of(waiting[0]) == b""
        assert browser.recognize(IMAGE).status == 200


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsSettings:
    monkeypatch.setattr(asyncio.constants, "SSL_HANDSHAKE_TIMEOUT", 600.0)
    return TlsSettings(self_signed=True, folder=tmp_path)


def test_silent_tls_clients_are_disconnected(tls: TlsSettings, edge: ScriptedEdge) -> None:
    limits = {"body_timeout_s": 0.2}
    with running_gateway(edge.endpoint, tls=tls, limits=limits) as browser, raw(browser) as connection:
        assert all_of(connection) == b""


def test_silent_tls_clients_make_room_for_others(tls: TlsSettings, edge: ScriptedEdge) -> None:
    limits = {"connections_max": 8}
    with running_gateway(edge.endpoint, tls=tls, limits=limits) as browser, ExitStack() as stack:
        waiting = [stack.enter_context(raw(browser)) for _ in range(20)]
        assert [all_of(connection) for connection in waiting[:12]] == [b""] * 12
        trust = ssl.create_default_context(cafile=str(tls.folder / "cert.pem"))
        with trust.wrap_socket(stack.enter_context(raw(browser)), server_hostname="127.0.0.1") as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"


def test_streams_that_are_not_closed_after_a_refusal_make_room(tmp_path: Path, edge: ScriptedEdge) -> None:
    limits = {"connections_max": 8}
    tokens = tmp_path / "tokens.json"
    with running_gateway(edge.endpoint, tokens=tokens, limits=limits) as browser, ExitStack() as stack:
        for _ in range(8):
            refused = stack.enter_context(raw(browser))
            refused.sendall(upgrade())
            received = b""
            while b"a token is needed" not in received:
                received += refused.recv(65536)
        assert browser.get("/healthz").status == 200


def test_streams_are_kept_if_there_are_too_many_connections(edge: ScriptedEdge) -> None:
    limits = {"connections_max": 8}
    with running_gateway(edge.endpoint, limits=limits) as browser, ExitStack() as stack:
        streams = [stack.enter_context(browser.stream()) for _ in range(8)]
        with raw(browser) as connection:
            assert all_of(connection) == b""
        assert [stream.read()["type"] for stream in streams] == ["ready"] * 8


@pytest.fixture(scope="module")
def open_to_museum(edge_of_module: ScriptedEdge) -> Iterator[Browser]:
    """A gateway that allows another site."""
    with running_gateway(edge_of_module.endpoint, cors_origins=(MUSEUM,)) as browser:
        yield browser


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://evil.example", 403), ("https://[", 403), ("null", 403), (MUSEUM, 200), ("", 200)],
)
def test_only_listed_sites_may_send_requests(
    open_to_museum: Browser, edge: ScriptedEdge, origin: str, status: int
) -> None:
    headers = {"origin": origin} if origin else {}
    reply = open_to_museum.recognize(IMAGE, **headers)
    assert reply.status == status
    assert reply.headers.get("access-control-allow-origin", "") == (origin if origin == MUSEUM else "")
    try:
        with connect(f"ws://{open_to_museum.host}{STREAM}", additional_headers=headers) as connection:
            connection.recv(timeout=LONG_S)
            code = 200
    except InvalidStatus as error:
        code = error.response.status_code
    assert code == status
    assert len(edge.recognition.requests) == (status == 200)


@pytest.mark.parametrize("listed", [MUSEUM, f"{MUSEUM}/", "HTTPS://Museum.Example", f"{MUSEUM}:443/"])
def test_preflight_requests_of_listed_sites_are_allowed(edge: ScriptedEdge, listed: str) -> None:
    asks = {"origin": MUSEUM, "access_control_request_method": "POST"}
    with running_gateway(edge.endpoint, cors_origins=(listed,)) as browser:
        reply = browser.request("OPTIONS", RECOGNIZE, **asks)
        assert browser.recognize(IMAGE, origin=MUSEUM).headers["access-control-allow-origin"] == MUSEUM
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, MUSEUM)


@pytest.mark.parametrize(
    ("setting", "value", "example"),
    [
        ("cors_origins", "museum.example", "https://museum.example"),
        ("cors_origins", "localhost:3000", "https://localhost:3000"),
        ("cors_origins", "http://10.0.0.7/page", "http://10.0.0.7"),
        ("cors_origins", "https://*.museum.example", "https://museum.example"),
        ("cors_origins", "", "https://museum.example"),
        ("trusted_proxies", "localhost", "127.0.0.1"),
        ("trusted_proxies", "10.0.0.1/8", "10.0.0.0/8"),
        ("trusted_proxies", "10.0.0.0/33", "127.0.0.1"),
    ],
)
def test_origins_and_proxies_that_match_nothing_are_refused(setting: str, value: str, example: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(value)}' is not an? .* such as {re.escape(example)}"):
        GatewaySettings.model_validate({setting: [value]})


def test_origins_and_proxies_may_have_all_forms_of_the_protocols() -> None:
    origins = ("*", "null", "https://a.example:8443", "http://[::1]:8080", "capacitor://localhost")
    proxies = ("10.0.0.0/8", "::1", "192.0.2.7")
    settings = GatewaySettings(cors_origins=origins, trusted_proxies=proxies)
    assert (settings.cors_origins, settings.trusted_proxies) == (origins, proxies)
    assert GatewaySettings(trusted_proxies=("*",)).trusted_proxies == ("*",)


def test_pages_of_the_gateway_may_send_requests(browser: Browser) -> None:
    own = f"http://{browser.host}"
    assert browser.recognize(IMAGE, origin=own).status == 200
    with connect(f"ws://{browser.host}{STREAM}", additional_headers={"origin": own}) as connection:
        assert json.loads(connection.recv(timeout=LONG_S))["type"] == "ready"


@pytest.mark.parametrize("label", ["<script>alert(1)</script>", "\x1b[2J\x9b31m", "\u202edlog", "a\nb"])
def test_labels_and_metadata_are_sent_as_data_only(browser: Browser, edge: ScriptedEdge, label: str) -> None:
    found = replace(EXHIBIT, label=label, metadata={label: label})
    edge.recognition.answer = lambda: response("edge", found)
    reply = browser.recognize(IMAGE)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert (reply.json["label"], reply.json["metadata"]) == (label, {label: label})
    assert reply.body.decode("ascii").isprintable()
    with browser.stream() as stream:
        stream.read()
        stream.send(1, IMAGE)
        text = stream.connection.recv(timeout=LONG_S)
    assert isinstance(text, str)
    assert text.isascii() and text.isprintable()
    assert json.loads(text)["label"] == label
