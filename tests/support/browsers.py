"""Chromium as a visitor has it, driven by playwright, and a gateway that does what a test says."""

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

PAGE = Path(__file__).resolve().parents[2] / "edge/gateway/page"
ORIGIN = "http://localhost:1"
"""Of scripted gateways; nothing listens there. Browsers give cameras to pages of localhost."""
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
    """A browser whose camera, if there is one, plays this clip again and again."""
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
    """Wait for what routes of the page do; they run while the page is asked something."""

    def holds() -> bool:
        page.evaluate("null")
        return condition()

    wait_until(holds, what=what)


def answer(label: str = "Night", **changed: Any) -> dict[str, Any]:
    """What a gateway answers about a known object."""
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
    """The body of an error."""
    return {"error": {"code": code, "message": message, "advice": advice}}


@dataclass
class Connection:
    """One WebSocket of a page."""

    route: WebSocketRoute
    frames: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """Number and picture (H, W, 3) of each frame that came."""
    closed: bool = False

    def ready(self, max_bytes: int = 2**20) -> None:
        """Give two credits."""
        self._send({"type": "ready", "credits": 2, "max_bytes": max_bytes})

    def answers(self, frame: int, body: dict[str, Any]) -> None:
        self._send({"type": "error" if "error" in body else "answer", "frame": frame, **body})

    def _send(self, message: dict[str, Any]) -> None:
        self.route.send(json.dumps(message))


class ScriptedGateway:
    """Serves the page's files, and notes what the page asks; the test answers.

    Parameters
    ----------
    page : Page
        That gets these routes.
    origin : str
        Under which it finds the gateway.
    """

    def __init__(self, page: Page, origin: str = ORIGIN) -> None:
        self._page, self._origin = page, origin
        self.connections: list[Connection] = []
        self.requests: list[Route] = []
        """Requests below ``/v1/``, in their order."""
        self.replies: list[tuple[int, dict[str, Any]] | None] = []
        """Status and body of the next requests; None: no answer ever. Without one: the only catalogue."""
        self.always: dict[str, Any] | None = None
        """What every frame is answered with, on all connections, which are ready at once then."""
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
        That shows it.
    stack : ExitStack
        Closes it.
    address : str
        Of the page, behind the origin.
    origin : str
        Of the gateway.
    camera : bool
        Whether the visitor allows the camera.
    options : dict
        Of the browser's context, such as its size.
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
        self.page.set_default_timeout(30_000)
        self.gateway = ScriptedGateway(self.page, origin)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        # From now on choosers are playwright's; begun at the click, that may come too late.
        self.page.on("filechooser", lambda _: None)
        self.page.goto(origin + address)
        expect(self.button("Start camera")).to_be_enabled()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def start(self, always: dict[str, Any] | None = None) -> None:
        """Start the camera; every frame is answered so."""
        self.gateway.always = always
        self.button("Start camera").click()

    def choose(self, file: dict[str, Any]) -> None:
        """Choose a photo."""
        with self.page.expect_file_chooser() as chooser:
            self.button("Choose photo").click()
        chooser.value.set_files([file])

    def reads(self, headline: str, text: str = "") -> None:
        """Wait until the panel says this."""
        expect(self.page.get_by_role("heading", level=2)).to_have_text(headline)
        expect(self.page.locator("#answer")).to_contain_text(text)

    def hears(self, text: str) -> None:
        """Wait until a screen reader says this."""
        expect(self.page.get_by_role("status")).to_have_text(text)

    def listen(self) -> None:
        """From now on write down what a screen reader says."""
        self.page.evaluate(
            """() => {
                globalThis.heard = [];
                const element = document.querySelector("[role=status]");
                const hear = () => heard.push(element.textContent);
                new MutationObserver(hear).observe(element, {childList: true});
            }"""
        )

    def heard(self) -> list[str]:
        """The headlines and labels among it."""
        return [text.partition(".")[0] for text in self.page.evaluate("heard")]

    @property
    def outline(self) -> Any:
        return self.page.locator("#overlay")
