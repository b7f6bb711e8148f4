"""A steady stream of photos to one tier, open loop: each is sent when due, whatever the answers do."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from nearsight.common.errors import NearsightError
from nearsight.common.recognition.models import Features
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer

_GRACE_S = 2.0


@dataclass(slots=True)
class Sent:
    """One photo and what became of it.

    Attributes
    ----------
    at_s : float
        When it was due, from the start of the stream [s].
    late_ms : float
        How much later it was really sent [ms].
    latency_ms : float
        From sending to the outcome [ms]; NaN while there is none.
    outcome : Recognition or NearsightError, optional
        What came.
    """

    at_s: float
    late_ms: float
    latency_ms: float = math.nan
    outcome: Recognition | NearsightError | None = None

    @property
    def answered_by(self) -> str:
        """The tier; empty if none answered."""
        return self.outcome.answered_by if isinstance(self.outcome, Recognition) else ""


def stream(
    recognizer: Recognizer, photos: Sequence[Features], per_second: float, timeout_s: float
) -> tuple[Sent, ...]:
    """Send the photos, evenly spaced, and wait for all outcomes.

    Parameters
    ----------
    recognizer : Recognizer
        Who asks the tier.
    photos : sequence of Features
        Extracted before: the sender shares the machine with what is measured.
    per_second : float
        How many.
    timeout_s : float
        Deadline of each.
    """
    done = threading.Semaphore(0)
    sent: list[Sent] = []
    start_s = perf_counter()
    pause = threading.Event()
    for number, photo in enumerate(photos):
        due_s = start_s + number / per_second
        while (wait_s := due_s - perf_counter()) > 0:
            pause.wait(wait_s)
        now_s = perf_counter()
        one = Sent(due_s - start_s, (now_s - due_s) * 1e3)
        sent.append(one)

        def note(outcome: Recognition | NearsightError, one: Sent = one, sent_s: float = now_s) -> None:
            one.outcome, one.latency_ms = outcome, (perf_counter() - sent_s) * 1e3
            done.release()

        recognizer.recognize(photo, note, timeout_s=timeout_s)
    deadline_s = perf_counter() + timeout_s + _GRACE_S
    for _ in sent:
        done.acquire(timeout=max(0.0, deadline_s - perf_counter()))
    return tuple(sent)
