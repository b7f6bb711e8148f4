"""Servers in separate processes, which a test can kill to simulate a failed machine.

Run as a program, ``python child_server.py KIND LISTEN [ARGUMENTS]`` prints its endpoint and serves until its
standard input ends.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.endpoints import fresh_endpoint


class ChildServer:
    """A server of ``KINDS`` in a separate process.

    Attributes
    ----------
    endpoint : str
        Address of the server.
    """

    def __init__(self, kind: str, listen: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind, listen, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        self.endpoint = self.line()

    def line(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """Kill it with SIGKILL: it closes no connection and sends no message."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def child_server(kind: str, *arguments: str, listen: str = "") -> Iterator[ChildServer]:
    """A `ChildServer` that is killed at the end of the block."""
    server = ChildServer(kind, listen or fresh_endpoint(), *arguments)
    try:
        yield server
    finally:
        server.kill()


def _echo(listen: str, unanswered: str = "") -> str:
    """Answers all texts but one; prints each text."""
    from nearsight.common.rpc.server import RpcServer, ServerSettings
    from support.rpc import ScriptedEcho, give_back

    def report_and_give_back(request: Any, context: Any) -> Any:
        _say(request.text)
        return Future() if unanswered and request.text == unanswered else give_back(request, context)

    server = RpcServer(
        [ScriptedEcho(report_and_give_back)], tier="test", settings=ServerSettings(listen=listen)
    )
    server.start()
    return server.endpoint


def _recognition(listen: str, name: str, mode: str) -> str:
    """Answers, or never answers; prints a line for each request."""
    from support.recognition_server import ScriptedRecognition, always, never, serve

    service = ScriptedRecognition(always(name) if mode == "answer" else never())
    endpoint = serve(service, name, listen).endpoint

    def report() -> None:
        while service.asked.acquire():
            _say("asked")

    threading.Thread(target=report, daemon=True).start()
    return endpoint


def _predicting_edge(listen: str) -> str:
    from support.gallery import exhibit_models
    from support.predicting_edge import PredictingEdge

    return PredictingEdge(exhibit_models(3), listen).endpoint


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


KINDS = {"echo": _echo, "recognition": _recognition, "predicting-edge": _predicting_edge}

if __name__ == "__main__":
    _kind, *_arguments = sys.argv[1:]
    _say(KINDS[_kind](*_arguments))
    sys.stdin.read()  # until the parent ends
