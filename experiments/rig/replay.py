"""Replays one visitor's photos through the SDK, open loop: each is sent when due, whatever the answers do.

A device of the dissertation's evaluation does just this (6.2.7): one request per second, asynchronously, then
wait for the answers that are still open. `Ledger` keeps the account: every request must get one outcome.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError
from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.experiments.rig.rows import LOST, RECOGNIZED, UNKNOWN, RequestRow
from nearsight.experiments.traces.plan import PlannedPhoto

Outcome = Recognition | NearsightError
GRACE_S = 2.0
"""How long after its deadline a request may still be open before it counts as lost."""


class AsksTiers(Protocol):
    """The part of the SDK's `Recognizer` that a replay uses."""

    def recognize(
        self, image: bytes, callback: Callable[[Outcome], None], *, timeout_s: float | None = None
    ) -> object:
        """Start a request; the callback gets its outcome."""


@dataclass(slots=True)
class _Entry:
    photo: PlannedPhoto
    sent_s: float
    late_ms: float
    outcome: Outcome | None = None
    outcomes: int = 0
    latency_ms: float = math.nan


class Ledger:
    """Account of the requests of one visitor. Thread-safe.

    Parameters
    ----------
    configuration, visitor : str
        Copied into every row.
    on_row : callable
        Told each row as its request completes.
    """

    def __init__(
        self, configuration: str, visitor: str, on_row: Callable[[RequestRow], None] = lambda _row: None
    ) -> None:
        self._configuration = configuration
        self._visitor = visitor
        self._on_row = on_row
        self._entries: list[_Entry] = []
        self._open = 0
        self._changed = threading.Condition()

    def sent(self, photo: PlannedPhoto, now_s: float, late_ms: float) -> int:
        """Enter a request as it is sent; returns its number."""
        with self._changed:
            self._entries.append(_Entry(photo, now_s, late_ms))
            self._open += 1
            return len(self._entries) - 1

    def completed(self, number: int, outcome: Outcome, now_s: float) -> None:
        """Enter an outcome. A second one for the same request is counted, and shows in its row."""
        with self._changed:
            entry = self._entries[number]
            entry.outcomes += 1
            if entry.outcomes == 1:
                entry.outcome = outcome
                entry.latency_ms = (now_s - entry.sent_s) * 1000
                self._open -= 1
                self._changed.notify_all()
            row = self._row(number)
        self._on_row(row)

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until every request has an outcome; False if some have none in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    def rows(self) -> tuple[RequestRow, ...]:
        """One row per request, in the order of sending."""
        with self._changed:
            return tuple(self._row(number) for number in range(len(self._entries)))

    def _row(self, number: int) -> RequestRow:
        entry = self._entries[number]
        outcome = entry.outcome
        found = outcome if isinstance(outcome, Recognition) else None
        hops = {hop.tier: hop for hop in found.hops} if found else {}
        edge, cloud = hops.get("edge", NO_HOP), hops.get("cloud", NO_HOP)
        return RequestRow(
            configuration=self._configuration,
            visitor=self._visitor,
            number=number,
            time_s=entry.photo.at_s,
            late_ms=entry.late_ms,
            expected=entry.photo.object_id,
            answered=(found.object_id or "") if found else "",
            outcome=_name(outcome),
            outcomes=entry.outcomes,
            answered_by=found.answered_by if found else "",
            latency_ms=entry.latency_ms,
            sent_bytes=found.sent_bytes if found else 0,
            received_bytes=found.received_bytes if found else 0,
            edge_queue_ms=edge.queue_ms,
            edge_compute_ms=edge.compute_ms,
            edge_next_tier_ms=edge.next_tier_ms,
            cloud_queue_ms=cloud.queue_ms,
            cloud_compute_ms=cloud.compute_ms,
        )


NO_HOP = Hop(tier="", queue_ms=0.0, compute_ms=0.0, next_tier_ms=0.0, received_bytes=0, sent_bytes=0)


def _name(outcome: Outcome | None) -> str:
    if outcome is None:
        return LOST
    if isinstance(outcome, Recognition):
        return RECOGNIZED if outcome.known else UNKNOWN
    return type(outcome).__name__


def replay(
    plan: Sequence[PlannedPhoto],
    photos: Mapping[Path, bytes],
    recognizer: AsksTiers,
    ledger: Ledger,
    *,
    timeout_s: float,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], object] | None = None,
) -> tuple[RequestRow, ...]:
    """Send every photo when it is due and wait for the answers.

    Parameters
    ----------
    plan : sequence of PlannedPhoto
        In the order of time.
    photos : mapping of Path to bytes
        The image files, in memory.
    recognizer : AsksTiers
        The SDK.
    ledger : Ledger
        Where requests and outcomes are entered.
    timeout_s : float
        Deadline of each request.
    clock, sleep
        Time, and how to wait for it; a test brings its own.

    Returns
    -------
    tuple of RequestRow
        One per photo of the plan, whether it got an answer or not.
    """
    sleep = sleep or threading.Event().wait
    start_s = clock.monotonic()
    for photo in plan:
        due_s = start_s + photo.at_s
        while (wait_s := due_s - clock.monotonic()) > 0:
            sleep(wait_s)
        now_s = clock.monotonic()
        number = ledger.sent(photo, now_s, (now_s - due_s) * 1000)
        recognizer.recognize(photos[photo.path], _entry_of(ledger, number, clock), timeout_s=timeout_s)
    ledger.wait_closed(timeout_s + GRACE_S)
    return ledger.rows()


def _entry_of(ledger: Ledger, number: int, clock: Clock) -> Callable[[Outcome], None]:
    return lambda outcome: ledger.completed(number, outcome, clock.monotonic())
