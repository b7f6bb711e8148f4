"""A real `RpcServer` with a Recognition service whose answers a test decides, in this process or in its own.

Run as a program it prints its endpoint and serves until it is killed:
``python recognition_server.py NAME MODE LISTEN`` with mode ``answer`` or ``silent``.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from nearsight.common.recognition.codec import recognized_object_to_proto
from nearsight.common.recognition.results import Corners, RecognizedObject
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos.recognition_pb2 import DESCRIPTOR, RecognizeRequest, RecognizeResponse

Answer = Callable[[], RecognizeResponse | Future[RecognizeResponse]]

CORNERS: Corners = ((1, 2), (30, 2), (30, 40), (1, 40))
EXHIBIT = RecognizedObject("0042", "Night", 1, 0.9, 30, CORNERS, {"artist": "R."})


def response(answered_by: str, found: RecognizedObject | None = EXHIBIT) -> RecognizeResponse:
    """An answer with an object, or unknown."""
    message = RecognizeResponse(answered_by=answered_by)
    if found is not None:
        message.object.CopyFrom(recognized_object_to_proto(found))
    return message


class ScriptedRecognition(Service):
    """Answers with ``answer``, which a test may replace while serving; remembers the questions.

    Attributes
    ----------
    asked : threading.Semaphore
        Released once per question.
    contexts : list of CallContext
        Of all questions.
    requests : list of RecognizeRequest
        The same questions.
    """

    descriptor = DESCRIPTOR.services_by_name["Recognition"]

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = threading.Semaphore(0)
        self.contexts: list[CallContext] = []
        self.requests: list[RecognizeRequest] = []

    def recognize(
        self, request: RecognizeRequest, context: CallContext
    ) -> RecognizeResponse | Future[RecognizeResponse]:
        """Answer as the test says."""
        self.contexts.append(context)
        self.requests.append(request)
        self.asked.release()
        return self.answer()


def always(answered_by: str) -> Answer:
    """Answer with `EXHIBIT`."""
    return lambda: response(answered_by)


def never() -> Answer:
    """Do not answer at all."""
    return Future


def failing(error: Exception) -> Answer:
    """Answer with an error."""

    def answer() -> RecognizeResponse:
        raise copy.copy(error)

    return answer


def serve(service: Service, name: str, listen: str = "tcp://127.0.0.1:0") -> RpcServer:
    """A started server with one service."""
    server = RpcServer([service], tier=name, settings=ServerSettings(listen=listen))
    server.start()
    return server


class ServerProcess:
    """This module as a process of its own, so that it can be killed as a machine dies."""

    def __init__(self, name: str, mode: str, listen: str = "tcp://127.0.0.1:0") -> None:
        command = [sys.executable, __file__, name, mode, listen]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self._line()

    def wait_until_asked(self) -> None:
        """Return when the next question has reached the service."""
        assert self._line() == "asked"

    def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def server_process(name: str, mode: str, listen: str = "tcp://127.0.0.1:0") -> Iterator[ServerProcess]:
    """A `ServerProcess` that is gone at the end of the block."""
    process = ServerProcess(name, mode, listen)
    try:
        yield process
    finally:
        process.kill()


def _main(name: str, mode: str, listen: str) -> None:
    answer = always(name) if mode == "answer" else never()
    service = ScriptedRecognition(answer)
    server = serve(service, name, listen)
    print(server.endpoint, flush=True)  # noqa: T201  the protocol with `ServerProcess`

    def report() -> None:
        while service.asked.acquire():
            print("asked", flush=True)  # noqa: T201

    threading.Thread(target=report, daemon=True).start()
    sys.stdin.read()  # until the parent is gone or kills this process


if __name__ == "__main__":
    _main(*sys.argv[1:])
