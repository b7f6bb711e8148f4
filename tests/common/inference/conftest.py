"""Networks in memory, and loads that a test delays."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearsight.common.inference.runtime import Network, Runtime
from support.network_memory import Place
from support.waiting import LONG_S


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for memory in place.open:
        memory.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Loads wait until it is set."""
    gate, load = threading.Event(), Runtime.load

    def gated(runtime: Runtime, path: Path, name: str, **how: Any) -> Network:
        assert gate.wait(LONG_S)
        return load(runtime, path, name, **how)

    monkeypatch.setattr(Runtime, "load", gated)
    gate.set()
    yield gate
    gate.set()
