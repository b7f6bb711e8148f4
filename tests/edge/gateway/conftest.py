"""One scripted edge and one gateway for the tests of a module that change no setting."""

import threading
from collections.abc import Iterator

import pytest

from support.gateway import Browser, ScriptedEdge, running_gateway
from support.recognition_server import always


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
    """Answers with an exhibit, at the beginning of each test."""
    recognition = edge_of_module.recognition
    recognition.answer = always("edge")
    recognition.asked = threading.Semaphore(0)
    recognition.contexts.clear()
    recognition.requests.clear()
    return edge_of_module


@pytest.fixture
def browser(browser_of_module: Browser, edge: ScriptedEdge) -> Browser:
    """At a gateway with default settings."""
    return browser_of_module
