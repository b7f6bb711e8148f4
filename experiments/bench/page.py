"""Load time of the visitor's page in Chromium, with a processor slowed down four times, as in a cheap phone.

The first usable view is complete when the page has painted and its buttons work. A first visit has empty
caches; the second visit uses the caches of the first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from nearsight.common.errors import MissingDependency
from nearsight.common.metrics import DaemonMetrics
from nearsight.edge.gateway.daemon import GatewayDaemon
from nearsight.edge.gateway.page_files import FOLDER
from nearsight.edge.gateway.settings import GatewaySettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles

CPU_SLOWDOWN = 4
MAX_LOAD_MS, MAX_BYTES = 1000.0, 100_000
_PHONE = ViewportSize(width=390, height=844)
_UNREACHABLE = "tcp://127.0.0.1:9"
_USABLE = """async () => {
    await navigator.serviceWorker.ready;
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    const [usable] = performance.getEntriesByName("usable");
    return Math.max(paint.startTime, usable.startTime);
}"""


def bench_page(quick: bool, report_step: ReportStep) -> Benchmark:
    """Time to the first usable view with empty caches and on a second visit; bytes of all files.

    Raises
    ------
    MissingDependency
        If Chromium is not installed.
    """
    loads = 3 if quick else 20
    report_step(f"page: {loads} first and second visits")
    with _page_url() as url, _chromium() as browser:
        times_ms = list(zip(*(_visits(browser, url) for _ in range(loads)), strict=True))
    rows = [_row(visit, times) for visit, times in zip(("first", "second"), times_ms, strict=True)]
    columns = {
        "visit": "{visit}",
        "loads": "{loads}",
        "usable ms": "{usable_ms:.0f}",
        "5 … 95 %": "{least_ms:.0f} … {most_ms:.0f}",
        "page bytes": "{page_bytes}",
        "at most 1 s, 100 kB": "{reached}",
    }
    title = f"First usable view of the visitor's page, processor {CPU_SLOWDOWN} times slower"
    return Benchmark("page", title, columns, rows)


def _row(visit: str, times_ms: tuple[float, ...]) -> dict[str, Any]:
    page_bytes = sum(path.stat().st_size for path in FOLDER.iterdir())
    usable_ms, least_ms, most_ms = percentiles(times_ms, 50, 5, 95)
    return {
        "visit": visit,
        "loads": len(times_ms),
        "usable_ms": usable_ms,
        "least_ms": least_ms,
        "most_ms": most_ms,
        "page_bytes": page_bytes,
        "reached": most_ms <= MAX_LOAD_MS and page_bytes <= MAX_BYTES,
    }


def _visits(browser: Browser, url: str) -> tuple[float, float]:
    """Time from the request to the first usable view [ms] on the first and on the second visit."""
    context = browser.new_context(viewport=_PHONE)
    try:
        page = context.new_page()
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWDOWN})
        return _load(page, url), _load(page, url)
    finally:
        context.close()


def _load(page: Page, url: str) -> float:
    page.goto(url)
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    return float(page.evaluate(_USABLE))


@contextmanager
def _page_url() -> Iterator[str]:
    """Run a gateway that serves the page, without an edge."""
    gateway = GatewayDaemon(
        GatewaySettings(edge=_UNREACHABLE, listen="127.0.0.1:0"), DaemonMetrics("gateway")
    )
    gateway.start()
    try:
        yield gateway.endpoint
    finally:
        gateway.stop(1.0)


@contextmanager
def _chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        raise MissingDependency("this needs Chromium", advice="on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
