"""Shared fixtures: a gateway before a scripted edge; Chromium before a scripted gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from support.gateway import Browser, ScriptedEdge, running_gateway
from support.recognition_server import always

if TYPE_CHECKING:  # playwright is not installed everywhere
    from playwright import sync_api as playwright

    from support.browsers import ScriptedGateway, Visit


@pytest.fixture(scope="module")
def edge_of_module() -> Iterator[ScriptedEdge]:
    edge = ScriptedEdge()
    yield edge
    edge.stop()


@pytest.fixture(scope="module")
def browser_of_module(edge_of_module: ScriptedEdge) -> Iterator[Browser]:
    with running_gateway(edge_of_module.endpoint) as browser:
        yield browser


@pytest.fixture
def edge(edge_of_module: ScriptedEdge) -> ScriptedEdge:
    """The edge of the module, reset to answer with an exhibit."""
    recognition = edge_of_module.recognition
    recognition.answer = always("edge")
    recognition.asked = threading.Semaphore(0)
    recognition.contexts.clear()
    recognition.requests.clear()
    return edge_of_module


@pytest.fixture
def browser(browser_of_module: Browser, edge: ScriptedEdge) -> Browser:
    """A client of a gateway with default settings."""
    return browser_of_module


@pytest.fixture(scope="module")
def chromium_of_module() -> Iterator[playwright.Browser]:
    """Chromium with a camera that shows a test picture."""
    from support.browsers import chromium

    with chromium("--use-fake-device-for-media-stream") as browser:
        yield browser


@pytest.fixture
def page(chromium_of_module: playwright.Browser) -> Iterator[playwright.Page]:
    page = chromium_of_module.new_page()
    page.set_default_timeout(100_000)
    yield page
    page.close()


@pytest.fixture
def gateway(page: playwright.Page) -> ScriptedGateway:
    """A scripted gateway, and a page that has imported `nearsight.js`."""
    from support.browsers import ScriptedGateway

    gateway = ScriptedGateway(page)
    gateway.import_module()
    return gateway


@pytest.fixture
def visit(chromium_of_module: playwright.Browser, stack: ExitStack) -> Visit:
    """A visitor's page."""
    from support.browsers import Visit

    return Visit(chromium_of_module, stack)
