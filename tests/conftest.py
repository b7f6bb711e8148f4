"""Put ``tests/`` on the import path, so that tests share ``support``; keep their logs apart."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True)
def _logs_of_one_test() -> Iterator[None]:
    """A daemon started by a test points the logs at that test's captured stream, which closes with it."""
    yield
    structlog.reset_defaults()
