"""Clients of benchmarks end with their parent."""

import threading
from contextlib import nullcontext
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearsight.common.errors import InternalError, Unavailable
from nearsight.experiments.bench import clients
from support.waiting import wait_until


@pytest.mark.parametrize("error", [EOFError, KeyboardInterrupt])
def test_honest_clients_end_when_their_parent_is_killed_or_interrupted(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise Unavailable("no daemon")

    def receive() -> None:
        raise error

    monkeypatch.setattr(clients, "Stub", lambda *_: None)
    monkeypatch.setattr(clients.attacks, "ask", refuse)
    (tmp_path / "photo").touch()
    victim: Any = SimpleNamespace(photos=[str(tmp_path / "photo")], channel=lambda _name: nullcontext())
    parent: Any = SimpleNamespace(send=lambda _result: None, recv=receive)
    before = threading.active_count()
    with nullcontext() if error is EOFError else pytest.raises(error):
        clients.run_honest_clients(parent, victim)
    wait_until(lambda: threading.active_count() == before, what="the end of the clients")


def test_a_client_that_ends_without_reading_its_order_is_named() -> None:
    ours, theirs = Pipe()
    with ours:
        ours.send("go")
        theirs.close()
        with pytest.raises(InternalError, match="ended with an error"):
            clients.answer_of(ours, 60.0)
