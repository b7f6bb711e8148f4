"""`nearsight.js` in Chromium: single photos, and late, wrong or missing answers."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]
pytest.importorskip("playwright")
from playwright.sync_api import Page  # noqa: E402

from support.browsers import ORIGIN, ScriptedGateway, answer, failure, until  # noqa: E402

GIF = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="


def sent_image(gateway: ScriptedGateway) -> np.ndarray:
    data = gateway.requests[-1].request.post_data_buffer
    return cv2.imdecode(np.frombuffer(data or b"", np.uint8), cv2.IMREAD_COLOR)


def test_a_large_photo_is_scaled_and_its_corners_are_in_its_pixels(
    page: Page, gateway: ScriptedGateway
) -> None:
    gateway.replies = [(200, answer(corners=[[0, 0], [640, 0], [640, 480], [0, 480]]))]
    found = page.evaluate("photo(1600, 1200).then((one) => recognizer().recognize(one))")
    assert gateway.requests[0].request.url == f"{ORIGIN}/v1/catalogues/museum/recognize"
    assert sent_image(gateway).shape == (480, 640, 3)
    assert found == answer(corners=[[0, 0], [1600, 0], [1600, 1200], [0, 1200]])


def test_a_small_photo_travels_as_it_is(page: Page, gateway: ScriptedGateway) -> None:
    gateway.replies = [(200, answer())]
    found = page.evaluate("photo(320, 240).then((one) => recognizer().recognize(one))")
    assert (gateway.requests[0].request.post_data_buffer or b"")[:4] == b"\x89PNG"
    assert found == answer()


def test_a_small_photo_of_a_format_that_only_browsers_read_is_encoded_again(
    page: Page, gateway: ScriptedGateway
) -> None:
    gateway.replies = [(200, answer())]
    page.evaluate(
        f"recognizer().recognize(new Blob([Uint8Array.from(atob('{GIF}'), (c) => c.charCodeAt(0))]))"
    )
    assert sent_image(gateway).shape == (1, 1, 3)


def test_a_small_photo_of_many_bytes_is_encoded_again_without_metadata(
    page: Page, gateway: ScriptedGateway
) -> None:
    gateway.replies = [(200, answer())]
    found = page.evaluate(
        "photo(320, 240).then((one) => recognizer().recognize(new Blob([one, 'a place'.repeat(40_000)])))"
    )
    data = gateway.requests[0].request.post_data_buffer or b""
    assert data[:2] == b"\xff\xd8" and b"a place" not in data
    assert sent_image(gateway).shape == (240, 320, 3)
    assert found == answer()


def test_files_the_browser_cannot_decode_are_sent_unchanged(page: Page, gateway: ScriptedGateway) -> None:
    gateway.replies = [(400, failure("INVALID_ARGUMENT", "the bytes are no image", "send a photo"))]
    found = page.evaluate("outcome(recognizer().recognize(new Blob(['text'])))")
    assert gateway.requests[0].request.post_data_buffer == b"text"
    assert found == {
        "name": "NearsightError",
        "code": "INVALID_ARGUMENT",
        "message": "the bytes are no image",
        "advice": "send a photo",
    }


@pytest.mark.parametrize(("status", "code"), [(502, "UNAVAILABLE"), (404, "INTERNAL"), (200, "INTERNAL")])
def test_an_address_without_a_gateway_is_reported(
    page: Page, gateway: ScriptedGateway, status: int, code: str
) -> None:
    page.route(f"{ORIGIN}/v1/**", lambda route: route.fulfill(status=status, body="<html>a proxy</html>"))
    found = page.evaluate("outcome(recognizer().recognize(new Blob(['text'])))")
    assert (found["code"], found["advice"]) == (code, "check the address of the gateway")
    assert str(status) in found["message"]


def test_a_gateway_that_cannot_be_reached_is_unavailable(page: Page, gateway: ScriptedGateway) -> None:
    page.route(f"{ORIGIN}/v1/**", lambda route: route.abort())
    found = page.evaluate("outcome(recognizer().recognize(new Blob(['text'])))")
    assert (found["name"], found["code"]) == ("NearsightError", "UNAVAILABLE")


def test_a_gateway_whose_answer_breaks_off_is_unavailable(page: Page, gateway: ScriptedGateway) -> None:
    page.evaluate(
        """() => {
            const broken = () => new ReadableStream({start: (body) => body.error(new TypeError("reset"))});
            globalThis.fetch = async () => new Response(broken());
        }"""
    )
    found = page.evaluate("outcome(recognizer().catalogues())")
    assert (found["name"], found["code"]) == ("NearsightError", "UNAVAILABLE")


def test_a_question_ends_at_its_deadline(page: Page, gateway: ScriptedGateway) -> None:
    gateway.replies = [None]
    found = page.evaluate("outcome(recognizer().recognize(new Blob(['text']), {timeoutMs: 50}))")
    assert (found["code"], found["message"]) == ("DEADLINE_EXCEEDED", "no answer within 50 ms")


def test_a_signal_aborts_a_question_before_and_while_it_is_asked(
    page: Page, gateway: ScriptedGateway
) -> None:
    gateway.replies = [None]
    page.evaluate(
        """() => {
            globalThis.abort = new AbortController();
            globalThis.asked = outcome(recognizer().recognize(new Blob(['text']), {signal: abort.signal}));
        }"""
    )
    until(page, lambda: len(gateway.requests) == 1, "the question")
    page.evaluate("abort.abort()")
    assert page.evaluate("asked")["name"] == "AbortError"
    again = "outcome(recognizer().recognize(new Blob(['text']), {signal: abort.signal}))"
    assert page.evaluate(again)["name"] == "AbortError"
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("recognizer().recognize('photo.jpg')", "TypeError"),
        ("recognizer().recognize(new Blob([]), {timeoutMs: -1})", "RangeError"),
        ("(async () => recognizer({timeoutMs: Infinity}))()", "RangeError"),
        ("(async () => recognizer().stream(document.createElement('video')))()", "TypeError"),
        ("(async () => recognizer().stream(null, () => {}))()", "TypeError"),
        ("(async () => recognizer().stream(document.createElement('img'), () => {}))()", "TypeError"),
        *(
            (
                f"(async () => recognizer().stream(document.createElement('video'), () => {{}}, {option}))()",
                "RangeError",
            )
            for option in ("{framesPerSecond: 0}", "{unchangedEveryMs: NaN}", "{unchangedEveryMs: -1}")
        ),
        ("(async () => new Recognizer())()", "TypeError"),
        ("(async () => new Recognizer('ftp://x/'))()", "TypeError"),
        ("(async () => recognizer({catalogue: 5}))()", "TypeError"),
        ("(async () => recognizer({token: null}))()", "TypeError"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    page: Page, gateway: ScriptedGateway, call: str, name: str
) -> None:
    assert page.evaluate(f"outcome({call})")["name"] == name
    assert gateway.requests == gateway.connections == []


def test_without_a_name_the_only_catalogue_is_used(page: Page, gateway: ScriptedGateway) -> None:
    gateway.replies = [(200, {"catalogues": [{"name": "a/b"}]}), (200, answer())]
    page.evaluate("new Recognizer('/').recognize(new Blob(['text']))")
    assert gateway.requests[-1].request.url == f"{ORIGIN}/v1/catalogues/a%2Fb/recognize"


@pytest.mark.parametrize(
    ("names", "code", "advice"),
    [
        (["east", "west"], "INVALID_ARGUMENT", "choose one of east, west"),
        ([], "NOT_FOUND", "add one at the cloud"),
    ],
)
def test_without_a_name_several_catalogues_or_none_are_an_error(
    page: Page, gateway: ScriptedGateway, names: list[str], code: str, advice: str
) -> None:
    gateway.replies = [(200, {"catalogues": [{"name": name} for name in names]})]
    found = page.evaluate("outcome(new Recognizer('/').recognize(new Blob(['text'])))")
    assert (found["code"], found["advice"]) == (code, advice)


def test_the_token_travels_in_the_header(page: Page, gateway: ScriptedGateway) -> None:
    assert page.evaluate("recognizer({token: 'se-cret'}).catalogues()") == ["museum"]
    assert gateway.requests[0].request.headers["authorization"] == "Bearer se-cret"


def test_an_invalid_token_is_not_sent(page: Page, gateway: ScriptedGateway) -> None:
    found = page.evaluate("outcome(recognizer({token: 'a b'}).catalogues())")
    assert (found["code"], gateway.requests) == ("UNAUTHENTICATED", [])
