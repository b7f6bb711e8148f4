"""The baseline Gabriel: the connection to its server."""

from contextlib import nullcontext

import pytest

from nearsight.common.errors import Unavailable
from nearsight.experiments.bench import gabriel


def test_an_error_of_the_benchmark_is_not_an_error_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gabriel, "connect", lambda *_args, **_more: nullcontext("connected"))
    with pytest.raises(ConnectionResetError, match="of the edge"), gabriel._connected(1) as connection:
        assert connection == "connected"
        raise ConnectionResetError("of the edge")


def test_a_server_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(gabriel, "connect", refuse)
    monkeypatch.setattr(gabriel, "_START_S", 0.0)
    with pytest.raises(Unavailable, match="Gabriel did not start"), gabriel._connected(1):
        pass
