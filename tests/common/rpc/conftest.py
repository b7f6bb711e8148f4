"""Keys of a server and its clients, and patience with servers on busy machines."""

from pathlib import Path

import pytest

from support.rpc import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture(autouse=True)
def _patient_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may take long to send its greeting, from which a client reads why it was refused."""
    monkeypatch.setattr("nearsight.common.rpc.links._GREETING_TIMEOUT_S", 60.0)
