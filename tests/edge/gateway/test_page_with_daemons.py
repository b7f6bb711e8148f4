"""The visitor's page with a simulated camera, Chromium, gateway, edge and cloud."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]
pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect  # noqa: E402

from nearsight.experiments.museum.art.exhibit import render_reference  # noqa: E402
from nearsight.experiments.museum.camera.handheld import Filming, Stay, film  # noqa: E402
from nearsight.experiments.museum.camera.photograph import Photo, take_photo  # noqa: E402
from nearsight.experiments.museum.generation import generate_museum  # noqa: E402
from nearsight.experiments.museum.settings import MuseumSettings  # noqa: E402
from support.browsers import DESKTOP, PAGE, PHONE, chromium, until  # noqa: E402
from support.daemon_process import DaemonProcess, daemon_process, starting_daemon  # noqa: E402

expect.set_options(timeout=100_000)
EXAMPLE = PAGE.parents[2] / "examples/browser"
SEED = 7
FILMED = 0
"""The filmed exhibit."""
WIDTH, HEIGHT, FRAMES_PER_S = 800, 600, 10
DWELL_S, TURN_S = 1.2, 0.8


@dataclass(frozen=True)
class Museum:
    """Files of a small museum."""

    folder: Path
    clip: Path
    """A video of an exhibit, filmed by a phone, in a loop."""
    truth: NDArray[np.float64]
    """(N, 4, 2): where the exhibit is in each frame of the clip."""

    @property
    def label(self) -> str:
        with (self.folder / "objects.csv").open() as file:
            return list(csv.DictReader(file))[FILMED]["label"]


def photo_of(index: int) -> Photo:
    return take_photo(render_reference(SEED, index), np.random.default_rng(1), 0.3)


def _filmed(path: Path) -> NDArray[np.float64]:
    """Write the clip with 30 frames per second; returns the corners of the exhibit in each frame."""
    stay = Stay("0001", render_reference(SEED, FILMED), DWELL_S)
    frames = film([stay], Filming(0.2, FRAMES_PER_S, (WIDTH, HEIGHT), difficulty=0.3), SEED)
    standing = [frame for frame in frames if TURN_S <= frame.at_s <= TURN_S + DWELL_S]
    images = [cv2.imencode(".jpg", frame.image)[1].tobytes() for frame in standing]
    path.write_bytes(b"".join(image * (30 // FRAMES_PER_S) for image in images))
    return np.array([frame.corners for frame in standing])


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Museum:
    folder = tmp_path_factory.mktemp("museum")
    generate_museum(
        folder / "museum", MuseumSettings(seed=SEED, objects=3, photos_per_object=1, unknown_photos=0)
    )
    museum = Museum(folder / "museum", folder / "clip.mjpeg", _filmed(folder / "clip.mjpeg"))
    command = [
        "cloud",
        "ingest",
        str(museum.folder),
        "--database",
        str(folder / "cloud.db"),
        "--catalogue",
        "museum",
    ]
    subprocess.run([sys.executable, "-m", "nearsight", *command], check=True, capture_output=True)
    return museum


@pytest.fixture(scope="module")
def browser(museum: Museum) -> Iterator[Browser]:
    with chromium(camera=museum.clip) as browser:
        yield browser


class Tiers:
    """Edge and gateway as processes, which may be killed and restarted at the same address."""

    def __init__(self, folder: Path, cloud: DaemonProcess) -> None:
        self._folder, self._cloud = folder, cloud
        self._stack = ExitStack()
        self.addresses = {"edge": "tcp://127.0.0.1:0", "gateway": "127.0.0.1:0"}
        self.daemons: dict[str, DaemonProcess] = {}

    def start(self, tier: str, *flags: str) -> None:
        """Start a daemon at its previous address; returns when it is ready."""
        above = ("--cloud", self._cloud.endpoint) if tier == "edge" else ("--edge", self.addresses["edge"])
        starting = starting_daemon(self._folder, tier, *above, *flags, listen=self.addresses[tier])
        daemon = self.daemons[tier] = self._stack.enter_context(starting)
        daemon.wait_ready()
        self.addresses[tier] = daemon.endpoint.removeprefix("http://")

    @contextmanager
    def gateway_with(self, *flags: str) -> Iterator[str]:
        """Start another gateway of the same edge with these flags; returns its URL."""
        flags = ("--edge", self.addresses["edge"], *flags)
        with starting_daemon(self._folder, "gateway", *flags, name="other", listen="127.0.0.1:0") as gateway:
            gateway.wait_ready()
            yield gateway.endpoint

    @property
    def url(self) -> str:
        return f"http://{self.addresses['gateway']}"

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def cloud(museum: Museum) -> Iterator[DaemonProcess]:
    folder = museum.folder.parent
    with daemon_process(folder, "cloud", "--database", str(folder / "cloud.db")) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def tiers(museum: Museum, cloud: DaemonProcess) -> Iterator[Tiers]:
    tiers = Tiers(museum.folder.parent, cloud)
    try:
        tiers.start("edge")
        tiers.start("gateway")
        yield tiers
    finally:
        tiers.close()


@pytest.fixture
def open_page(browser: Browser, stack: ExitStack) -> Iterator[Callable[..., Page]]:
    """Opens a page in a new window; errors in the browser fail the test."""
    complaints: list[str] = []

    def open_page(address: str, **options: Any) -> Page:
        context = browser.new_context(**{"permissions": ["camera"], "viewport": PHONE, **options})
        stack.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(100_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.goto(address)
        return page

    yield open_page
    # Servers that are away, refuse or have an unknown certificate (there is no service
    # worker then) belong to some tests; errors of scripts and policies do not.
    of_network = ("Failed to load resource", "WebSocket connection", "An SSL certificate error")
    assert [text for text in complaints if not any(part in text for part in of_network)] == []


def start_camera(page: Page) -> None:
    page.get_by_role("button", name="Start camera").click()


def reads(page: Page, headline: str) -> None:
    expect(page.get_by_role("heading", level=2)).to_have_text(headline)


def drawn_corners(page: Page) -> NDArray[np.float64] | None:
    """(4, 2): the outline in pixels of the window, None if there is none."""
    corners = page.evaluate(
        """() => {
            const overlay = document.querySelector("#overlay");
            const line = overlay.lastElementChild;
            if (overlay.hasAttribute("hidden")) return null;
            const placed = [...line.points].map((point) => point.matrixTransform(line.getScreenCTM()));
            return placed.map(({x, y}) => [x, y]);
        }"""
    )
    return None if corners is None else np.array(corners)


def placed(
    page: Page, selector: str, corners: NDArray[np.float64], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Convert pixels of a picture to pixels of the window; the picture is centred in its box."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    scale = min(box["width"] / size[0], box["height"] / size[1])
    middle = np.array([box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
    return (corners - np.array(size) / 2) * scale + middle


def lies_on(drawn: NDArray[np.float64] | None, true: NDArray[np.float64]) -> bool:
    """Whether each corner is correct within a twentieth of the exhibit's width."""
    return drawn is not None and float(np.abs(drawn - true).max()) < 0.05 * float(np.ptp(true[:, 0]))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_shows_the_label_and_the_outline_of_the_exhibit(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page], size: dict[str, int]
) -> None:
    page = open_page(tiers.url, viewport=size)
    start_camera(page)
    reads(page, museum.label)
    expect(page.get_by_role("term")).to_have_text(["artist", "technique", "year"])
    true = placed(page, "video", museum.truth, (WIDTH, HEIGHT))

    until(page, lambda: any(lies_on(drawn_corners(page), one) for one in true), "an outline on the exhibit")


def test_a_photo_from_the_visitors_files_is_recognised(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page]
) -> None:
    photo = photo_of(FILMED)
    page = open_page(tiers.url)
    page.locator("#file").set_input_files({"name": "a.jpg", "mimeType": "image/jpeg", "buffer": photo.jpeg})
    reads(page, museum.label)
    height, width = photo.image.shape[:2]
    true = placed(page, "#photo", photo.corners, (width, height))
    until(page, lambda: lies_on(drawn_corners(page), true), "an outline on the exhibit")


@pytest.mark.parametrize("tier", ["edge", "gateway"])
def test_the_page_continues_after_a_daemon_was_killed_and_restarted(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page], tier: str
) -> None:
    page = open_page(tiers.url)
    start_camera(page)
    reads(page, museum.label)
    tiers.daemons[tier].kill()
    reads(page, "The museum's server is unavailable")
    assert drawn_corners(page) is None
    tiers.start(tier)
    reads(page, museum.label)


def test_an_installed_page_opens_without_its_gateway_and_keeps_no_answers(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page]
) -> None:
    page = open_page(tiers.url)
    start_camera(page)
    reads(page, museum.label)
    page.evaluate("navigator.serviceWorker.ready")
    problems = page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [problem["errorId"] for problem in problems] == ["in-incognito"]  # as all windows of tests
    kept = (
        "caches.open('nearsight-shell').then((shell) => shell.keys()).then((all) => all.map(({url}) => url))"
    )
    files = {path.name for path in PAGE.iterdir()} - {"index.html", "sw.js"}
    assert {url.removeprefix(f"{tiers.url}/") for url in page.evaluate(kept)} == {"", *files}
    tiers.daemons["gateway"].kill()
    page.reload()
    start_camera(page)
    reads(page, "The museum's server is unavailable")
    tiers.start("gateway")
    reads(page, museum.label)
    assert "/v1/" not in str(page.evaluate(kept))


def test_the_camera_works_over_https_with_a_self_signed_certificate(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    with tiers.gateway_with("--self-signed", "--set", f"tls.folder={tmp_path}") as url:
        assert url.startswith("https://")
        page = open_page(url, ignore_https_errors=True)
        start_camera(page)
        reads(page, museum.label)


class SilentHandler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and writes no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_the_example_recognises_in_a_page_of_another_site(
    tiers: Tiers, museum: Museum, open_page: Callable[..., Page]
) -> None:
    handler = partial(SilentHandler, directory=EXAMPLE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site, ThreadPoolExecutor(1) as pool:
        pool.submit(site.serve_forever)
        origin = f"http://127.0.0.1:{site.server_port}"
        try:
            with tiers.gateway_with("--set", f'cors_origins=["{origin}"]') as url:
                page = open_page(f"{origin}/?gateway={url}")
                expect(page.locator("output")).to_have_text(museum.label)
        finally:
            site.shutdown()
