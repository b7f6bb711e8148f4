"""Put ``tests/`` on the import path, so that tests share ``support``; keep their logs apart.

Hypothesis judges laws, not speed: on a busy machine an example may take its time.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nearsight.common.logging import configure_logging

sys.path.insert(0, str(Path(__file__).resolve().parent))

settings.register_profile("nearsight", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nearsight")


@pytest.fixture(autouse=True)
def _logs_of_one_test() -> Iterator[None]:
    """What a daemon or command started by one test sets up must not reach the next."""
    configure_logging()
    yield
    configure_logging()
