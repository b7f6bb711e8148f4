"""Recognizers and the real servers of their tiers, closed at the end of a test."""

import threading
from contextlib import ExitStack

from nearsight import NearsightError, Recognition, Recognizer, RecognizerSettings
from nearsight.common.request.next_tiers import BreakerSettings
from support.pictures import jpeg, picture
from support.recognition_server import Answer, ScriptedRecognition, serve
from support.waiting import LONG_S

PHOTO = jpeg(picture(1))
PATIENT = RecognizerSettings(timeout_s=LONG_S)
QUICK = RecognizerSettings(
    timeout_s=LONG_S,
    max_pending=600,
    breaker=BreakerSettings(cooldown_s=0.05, longest_cooldown_s=0.1, probe_timeout_s=LONG_S),
)
"""A failed tier is asked again soon."""
NOBODY = "tcp://127.0.0.1:9"


class Callbacks:
    """Receives and counts outcomes."""

    def __init__(self) -> None:
        self.seen: list[Recognition | NearsightError] = []
        self._arrived = threading.Semaphore(0)

    def __call__(self, outcome: Recognition | NearsightError) -> None:
        self.seen.append(outcome)
        self._arrived.release()

    def wait(self, count: int = 1) -> list[Recognition | NearsightError]:
        for _ in range(count):
            assert self._arrived.acquire(timeout=LONG_S), f"{len(self.seen)} callbacks came"
        return self.seen


class Scene:
    """Real servers and recognizers of one test, closed at its end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.callbacks = Callbacks()

    def tier(self, name: str, answer: Answer, listen: str = "") -> tuple[ScriptedRecognition, str]:
        service = ScriptedRecognition(answer)
        server = serve(service, name, listen)
        self._stack.callback(server.stop, 0.0)
        return service, server.endpoint

    def recognizer(
        self, edge: str | None, cloud: str | None = None, settings: RecognizerSettings = QUICK
    ) -> Recognizer:
        return self._stack.enter_context(Recognizer(edge, cloud, "museum", settings=settings))
