"""An application of `nearsight bench soak`: a process with the SDK that counts the outcomes of its photos."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.experiments.bench.clients import answer_of, child
from nearsight.experiments.rig.tiers import CATALOGUE, START_TIMEOUT_S

_TIMEOUT_S, _LATE_S = 5.0, 1.0
"""Deadline of a photo, and maximum delay of its outcome; without times of a stalled process."""
_PAUSE_S = (0.05, 0.25)
"""Pause between two photos."""
Photos = Sequence[tuple[str, str | None]]
"""Paths of photos, and the objects in them."""
_REPORT_PERIOD_S, _LAST_OUTCOMES_S, _TICK_S = 1.0, 10.0, 0.05


@dataclass(slots=True)
class Tally:
    """Results of one application; times are those of `RunClock`."""

    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    twice: int = 0
    late_s: list[float] = field(default_factory=list)
    """Delays after the deadline of the outcomes that were more than `_LATE_S` late."""
    stalled_s: float = 0.0
    """Total time in which the process was stalled."""
    open: dict[int, tuple[str | None, float]] = field(default_factory=dict)
    """Object in the photo and deadline of each request without an outcome, by number."""

    def begin_request(self, shown: str | None, now_s: float) -> int:
        """Count a request and return its number."""
        self.asked += 1
        self.open[self.asked] = shown, now_s + _TIMEOUT_S
        return self.asked

    def end_request(self, number: int, outcome: Recognition | NearsightError, now_s: float) -> None:
        """Count an outcome."""
        if number not in self.open:
            self.twice += 1
            return
        shown, due_s = self.open.pop(number)
        if now_s > due_s + _LATE_S:
            self.late_s.append(round(now_s - due_s, 2))
        if isinstance(outcome, NearsightError):
            self.outcomes[outcome.code.name] += 1
            return
        self.outcomes["known" if outcome.known else "unknown"] += 1
        if outcome.object_id is not None and outcome.object_id != shown:
            self.wrong.append(f"the {outcome.answered_by} answered {outcome.object_id} for {shown}")


class RunClock:
    """Run time of this process: stops while a thread that only sleeps is not scheduled."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.stalled_s = 0.0
        self._clock = clock
        self._due_s = clock.monotonic() + _TICK_S

    def tick(self) -> None:
        """Must be called after each sleep of `_TICK_S`."""
        now_s = self._clock.monotonic()
        self.stalled_s, self._due_s = now_s - self.now_s(), now_s + _TICK_S

    def now_s(self) -> float:
        """The current run time, also while a sleep is overdue."""
        now_s = self._clock.monotonic()
        return now_s - self.stalled_s - max(0.0, now_s - self._due_s)


class Application:
    """Handle of an application, which ends with the stack at the latest; other parameters as in `_run`."""

    def __init__(
        self, stack: ExitStack, tiers: tuple[str, str], photos: Photos, seed: str, log: Path
    ) -> None:
        self._stack = stack.enter_context(ExitStack())
        self._pipe = self._stack.enter_context(child(_run, tiers, photos, seed, log))
        self._tally = Tally()
        self.pid: int = answer_of(self._pipe, START_TIMEOUT_S)

    def send(self, photos: int) -> None:
        """Send this number of photos at once; 0 ends the application."""
        self._pipe.send(photos)

    def receive_results(self) -> None:
        """Receive its latest results."""
        while self._pipe.poll():
            self._tally = answer_of(self._pipe, 0.0)

    def end(self) -> Tally:
        """Let it wait for its last outcomes and end; return all its results."""
        self.send(0)
        while (results := answer_of(self._pipe, 60.0)) is not None:
            self._tally = results
        self._stack.close()
        return self._tally

    def kill(self) -> Tally:
        """Kill it with SIGKILL; return its latest results without the requests that had no outcome."""
        self.receive_results()
        psutil.Process(self.pid).kill()
        self._stack.close()
        self._tally.open.clear()
        return self._tally


def _run(parent: Connection, tiers: tuple[str, str], photos: Photos, seed: str, log: Path) -> None:
    """Run an application: one photo after the other, popular ones more often; in a burst, many at once."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
    rng, tally, lock, running = random.Random(seed), Tally(), threading.Lock(), RunClock()
    weights = [1 / (1 + rank) for rank in range(len(photos))]

    def ended(number: int, outcome: Recognition | NearsightError) -> None:
        with lock:
            tally.end_request(number, outcome, running.now_s())

    def send_results() -> None:
        with lock:
            tally.stalled_s = round(running.stalled_s, 2)
            parent.send(tally)

    def tick() -> None:
        while True:
            time.sleep(_TICK_S)
            with lock:
                running.tick()

    settings = RecognizerSettings(timeout_s=_TIMEOUT_S)
    threading.Thread(target=tick, daemon=True).start()
    with Recognizer(*tiers, CATALOGUE, device_id=seed, settings=settings) as recognizer:
        parent.send("ready")
        parent.send(os.getpid())
        sent_s, more = time.monotonic(), 1
        while more:
            for path, shown in rng.choices(photos, weights, k=more):
                with lock:
                    number = tally.begin_request(shown, running.now_s())
                recognizer.recognize(path, partial(ended, number))
            more = parent.recv() if parent.poll(rng.uniform(*_PAUSE_S)) else 1
            if time.monotonic() > sent_s + _REPORT_PERIOD_S:
                send_results()
                sent_s = time.monotonic()
        until_s = time.monotonic() + _LAST_OUTCOMES_S
        while tally.open and time.monotonic() < until_s:
            time.sleep(0.05)
        send_results()
    send_results()  # includes the outcomes at the close of the recognizer
    parent.send(None)
