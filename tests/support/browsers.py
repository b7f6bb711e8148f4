"""Chromium, driven by playwright, and a gateway whose answers a test decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, expect, sync_playwright

from support.needs import program
from support.waiting import wait_until

expect.set_options(timeout=60_000)  # a busy machine may be slow

PAGE = Path(__file__).resolve().parents[2] / "edge/gateway/page"
ORIGIN = "http://localhost:1"
"""Origin of scripted gateways; nothing listens there. Browsers permit cameras to pages of localhost."""
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


_IMPORT = """async () => {
    Object.assign(globalThis, await import("/nearsight.js"));
    Math.random = () => 1; // a wait is as long as it may be
    globalThis.photo = (width, height, type = "image/png") => new Promise((done) =>
        Object.assign(document.createElement("canvas"), {width, height}).toBlob(done, type));
    globalThis.told = (error) => error &&
        {name: error.name, code: error.code, message: error.message, advice: error.advice};
    globalThis.outcome = (promise) => promise.then((answer) => ({answer}), told);
    globalThis.recognizer = (more) => new Recognizer("/", {catalogue: "museum", ...more});
}"""


@contextmanager
def chromium(*flags: str, camera: Path | None = None) -> Iterator[Browser]:
    """Start a browser; its camera, if given, repeats a clip."""
    flags = ("--no-sandbox", *flags)
    if camera is not None:
        flags = (*flags, "--use-fake-device-for-media-stream", f"--use-file-for-fake-video-capture={camera}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=list(flags))
        try:
            yield browser
        finally:
            browser.close()


def until(page: Page, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition on the routes of the page; they run while playwright executes a call."""

    def holds() -> bool:
        page.evaluate("null")
        return condition()

    wait_until(holds, what=what)


def answer(label: str = "Night", **changed: Any) -> dict[str, Any]:
    """A gateway's answer about a known object."""
    return {
        "known": True,
        "object_id": "0042",
        "label": label,
        "metadata": {"artist": "Ada Brandvik", "year": "1947"},
        "confidence": 0.9,
        "corners": [[10, 20], [90, 20], [90, 80], [10, 80]],
        "answered_by": "edge",
        "grain": "object",
        "latency_ms": 12.3,
        "hops": [],
        "trace_id": "00",
        **changed,
    }


UNKNOWN = answer(known=False, object_id=None, label=None, metadata={}, confidence=None, corners=None)


def failure(code: str, message: str = "it failed", advice: str = "wait") -> dict[str, Any]:
    """The body of an error response."""
    return {"error": {"code": code, "message": message, "advice": advice}}


@dataclass
class Connection:
    """One WebSocket of a page."""

    route: WebSocketRoute
    frames: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """Number and picture (H, W, 3) of each received frame."""
    closed: bool = False

    def ready(self, max_bytes: int = 2**20) -> None:
        """Send the ready message with two credits."""
        self._send({"type": "ready", "credits": 2, "max_bytes": max_bytes})

    def answers(self, frame: int, body: dict[str, Any]) -> None:
        self._send({"type": "error" if "error" in body else "answer", "frame": frame, **body})

    def _send(self, message: dict[str, Any]) -> None:
        self.route.send(json.dumps(message))


class ScriptedGateway:
    """Serves the page's files and records the page's requests; the test answers them.

    Parameters
    ----------
    page : Page
        The page to which the routes are added.
    origin : str
        Origin of the gateway for this page.
    """

    def __init__(self, page: Page, origin: str = ORIGIN) -> None:
        self._page, self._origin = page, origin
        self.connections: list[Connection] = []
        self.requests: list[Route] = []
        """Requests below ``/v1/``, in order of arrival."""
        self.replies: list[tuple[int, dict[str, Any]] | None] = []
        """Status and body for the next requests; None: never answered.

        If the list is empty, requests receive a list of one catalogue.
        """
        self.always: dict[str, Any] | None = None
        """Answer to every frame on all connections; if set, connections are ready at once."""
        page.route(f"{origin}/**", self._serve)
        page.route_web_socket(f"ws://{origin.removeprefix('http://')}/**", self._connect)

    def import_module(self) -> None:
        """Open a page that has imported the module, with `recognizer`, `photo` and `outcome`."""
        self._page.goto(f"{self._origin}/blank")
        self._page.evaluate(_IMPORT)

    def _serve(self, route: Route) -> None:
        path = route.request.url.removeprefix(f"{self._origin}/").partition("?")[0].partition("#")[0]
        if path.startswith("v1/"):
            self.requests.append(route)
            reply = self.replies.pop(0) if self.replies else (200, {"catalogues": [{"name": "museum"}]})
            if reply is not None:
                route.fulfill(status=reply[0], json=reply[1])
        elif path == "blank":
            route.fulfill(content_type="text/html", body="<!doctype html><title>blank</title>")
        else:
            file = PAGE / (path or "index.html")
            route.fulfill(content_type=guess_type(file)[0], body=file.read_bytes())

    def _connect(self, route: WebSocketRoute) -> None:
        connection = Connection(route)

        def received(message: str | bytes) -> None:
            assert isinstance(message, bytes)
            image = cv2.imdecode(np.frombuffer(message[4:], np.uint8), cv2.IMREAD_COLOR)
            assert image is not None
            connection.frames.append((int.from_bytes(message[:4], "big"), image))
            if self.always is not None:
                connection.answers(connection.frames[-1][0], self.always)

        def closed(code: int | None, reason: str | None) -> None:
            connection.closed = True

        route.on_message(received)
        route.on_close(closed)
        self.connections.append(connection)
        if self.always is not None:
            connection.ready()


def photo(width: int, height: int) -> dict[str, Any]:
    """A photo as a file that a visitor chooses."""
    noise = np.random.default_rng(1).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return {"name": "photo.png", "mimeType": "image/png", "buffer": cv2.imencode(".png", noise)[1].tobytes()}


class Visit:
    """One visitor's page.

    Parameters
    ----------
    browser : Browser
        Shows the page.
    stack : ExitStack
        Closes the page.
    address : str
        Path of the page.
    origin : str
        Origin of the gateway.
    camera : bool
        Whether the visitor permits the camera.
    options : dict
        Options of the browser's context, such as its size.
    """

    def __init__(
        self,
        browser: Browser,
        stack: ExitStack,
        *,
        address: str = "/",
        origin: str = ORIGIN,
        camera: bool = True,
        **options: Any,
    ) -> None:
        granted = ["camera"] if camera else []
        self.context = browser.new_context(
            **{"viewport": PHONE, "service_workers": "block", "permissions": granted, **options}
        )
        stack.callback(self.context.close)
        self.page = self.context.new_page()
        self.page.set_default_timeout(100_000)
        self.gateway = ScriptedGateway(self.page, origin)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        # Playwright handles file choosers from now on; if it started at the click, that could be too late.
        self.page.on("filechooser", lambda _: None)
        self.page.goto(origin + address)
        expect(self.button("Start camera")).to_be_enabled()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def start(self, always: dict[str, Any] | None = None) -> None:
        """Start the camera; every frame receives the answer ``always``."""
        self.gateway.always = always
        self.button("Start camera").click()

    def choose(self, file: dict[str, Any]) -> None:
        """Choose a photo."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Choose photo").click()
        chooser.value.set_files([file])

    def reads(self, headline: str, text: str = "") -> None:
        """Wait until the panel shows this headline and text."""
        expect(self.page.get_by_role("heading", level=2)).to_have_text(headline)
        expect(self.page.locator("#answer")).to_contain_text(text)

    def hears(self, text: str) -> None:
        """Wait until the text for screen readers is this."""
        expect(self.page.get_by_role("status")).to_have_text(text)

    def listen(self) -> None:
        """Record the texts for screen readers from now on."""
        self.page.evaluate(
            """() => {
                globalThis.heard = [];
                const element = document.querySelector("[role=status]");
                const hear = () => heard.push(element.textContent);
                new MutationObserver(hear).observe(element, {childList: true});
            }"""
        )

    def heard(self) -> list[str]:
        """The headlines and labels of the recorded texts."""
        return [text.partition(".")[0] for text in self.page.evaluate("heard")]

    @property
    def outline(self) -> Any:
        return self.page.locator("#overlay")
