"""Replays one visitor's photos through the SDK, open loop: each photo is sent when due, whatever the answers.

A device in the dissertation's evaluation (6.2.7) works the same way: it sends one request per second
asynchronously, then waits for the answers that are still open. `Ledger` records requests and outcomes: every
request must get exactly one outcome. `run_device` runs one device as a process: plan, photos in memory, SDK,
start signal, rows.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InternalError, InvalidArgument, NearsightError, Unavailable
from nearsight.common.operation.daemon import write_announcement
from nearsight.common.recognition.models import Features
from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.settings import DeviceSettings
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.rig.rows import (
    LOST,
    RECOGNIZED,
    UNKNOWN,
    RequestRow,
    accounting_errors,
)
from nearsight.experiments.traces.plan import (
    PlannedPhoto,
    delayed,
    is_request_trace,
    load_photos,
    plan_from_requests,
    plan_from_visits,
)

Outcome = Recognition | NearsightError
GRACE_S = 2.0
"""Time after its deadline at which a request without outcome counts as lost [s]."""


class Ledger:
    """Records the requests of one visitor and their outcomes. Thread-safe.

    Parameters
    ----------
    configuration, visitor : str
        Copied into every row.
    on_row : callable
        Called with each row when its request completes.
    """

    def __init__(
        self, configuration: str, visitor: str, on_row: Callable[[RequestRow], None] = lambda _row: None
    ) -> None:
        self._configuration = configuration
        self._visitor = visitor
        self._on_row = on_row
        self._rows: list[RequestRow] = []
        self._sent_s: list[float] = []
        self._open = 0
        self._changed = threading.Condition()

    def sent(self, photo: PlannedPhoto, now_s: float, late_ms: float) -> int:
        """Record a request that is sent now; returns its number."""
        with self._changed:
            row = RequestRow(
                configuration=self._configuration,
                visitor=self._visitor,
                number=len(self._rows),
                time_s=photo.at_s,
                late_ms=late_ms,
                expected=photo.object_id,
                answered="",
                outcome=LOST,
                outcomes=0,
                answered_by="",
                latency_ms=math.nan,
            )
            self._rows.append(row)
            self._sent_s.append(now_s)
            self._open += 1
            return row.number

    def completed(self, number: int, outcome: Outcome, now_s: float) -> None:
        """Record an outcome. A second outcome for the same request is counted; the row shows the count."""
        with self._changed:
            row = self._rows[number]
            if row.outcomes:
                row = replace(row, outcomes=row.outcomes + 1)
            else:
                row = _completed(row, outcome, (now_s - self._sent_s[number]) * 1000)
                self._open -= 1
                self._changed.notify_all()
            self._rows[number] = row
        self._on_row(row)

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until every request has an outcome; False if the timeout passes before."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    def rows(self) -> tuple[RequestRow, ...]:
        """One row per request, in the order of sending."""
        with self._changed:
            return tuple(self._rows)


def _completed(row: RequestRow, outcome: Outcome, latency_ms: float) -> RequestRow:
    """The row of a request after its outcome."""
    row = replace(row, outcomes=1, latency_ms=latency_ms)
    if isinstance(outcome, NearsightError):
        return replace(row, outcome=type(outcome).__name__)
    edge, cloud = hop_of(outcome, "edge"), hop_of(outcome, "cloud")
    return replace(
        row,
        answered=outcome.object_id or "",
        outcome=RECOGNIZED if outcome.known else UNKNOWN,
        answered_by=outcome.answered_by,
        sent_bytes=outcome.sent_bytes,
        received_bytes=outcome.received_bytes,
        edge_queue_ms=edge.queue_ms,
        edge_compute_ms=edge.compute_ms,
        edge_next_tier_ms=edge.next_tier_ms,
        cloud_queue_ms=cloud.queue_ms,
        cloud_compute_ms=cloud.compute_ms,
        grain=outcome.grain,
    )


def hop_of(recognition: Recognition, tier: str) -> Hop:
    """Times of a tier for a photo; all zero if the tier was not involved."""
    return next((hop for hop in reversed(recognition.hops) if hop.tier == tier), Hop(tier))


def replay(
    plan: Sequence[PlannedPhoto],
    photos: Mapping[Path, bytes | Features],
    recognizer: Recognizer,
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
    photos : mapping of Path to bytes or Features
        The image files in memory, or the features extracted from them.
    recognizer : Recognizer
        The SDK.
    ledger : Ledger
        Records requests and outcomes.
    timeout_s : float
        Deadline of each request [s].
    clock, sleep
        Clock and sleep function; tests replace both.

    Returns
    -------
    tuple of RequestRow
        One per photo of the plan, with or without an answer.
    """
    sleep = sleep or threading.Event().wait
    start_s = clock.monotonic()

    def send(photo: PlannedPhoto, due_s: float) -> None:
        now_s = clock.monotonic()
        number = ledger.sent(photo, now_s, (now_s - due_s) * 1000)

        def ended(outcome: Outcome) -> None:
            ledger.completed(number, outcome, clock.monotonic())

        recognizer.recognize(photos[photo.path], ended, timeout_s=timeout_s)

    for photo in plan:
        due_s = start_s + photo.at_s
        while (wait_s := due_s - clock.monotonic()) > 0:
            sleep(wait_s)
        send(photo, due_s)
    ledger.wait_closed(timeout_s + GRACE_S)
    return ledger.rows()


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options for the replay of one device."""

    trace: Path
    """Visits or photo requests, as CSV."""
    photos: Path
    """The data set of the photos; image paths are relative to this folder."""
    visitor: str | None = None
    """Visitor whose visits are replayed."""
    seconds: float | None = None
    """Duration after which the replay stops [s]; None: at the end of the trace."""
    timeout_s: float = 5.0
    """Deadline of each request [s]."""
    unknown_share: float = 0.0
    """Share of photos that show objects outside the catalogue; for visits only."""
    seed: int | None = None
    """Seed for choosing the photos of visits; None: 1."""
    label: str = "replay"
    """Name of the configuration in the rows."""
    start_after_s: float = 0.0
    """Delay before the first photo [s]."""
    account: Path | None = None
    """JSON file for the counts of fetched models; None: not written."""
    announce: Path | None = None
    """File for the announcement that the device is ready; None: not written."""
    wait_for_input: bool = False
    """Whether to wait for a line on standard input before the start."""


def make_plan(options: ReplayOptions) -> tuple[PlannedPhoto, ...]:
    """The photos of a device, from either form of trace.

    Raises
    ------
    InvalidArgument
        If the trace is wrong, or does not allow an option.
    """
    if is_request_trace(options.trace):
        choosing = {"--unknown-share": options.unknown_share, "--seed": options.seed is not None}
        if given := [name for name, value in choosing.items() if value]:
            raise InvalidArgument(
                f"{' and '.join(given)}: nothing is chosen, because {options.trace} names the photos",
                advice="leave it out, or give a trace of visits",
            )
        plan = plan_from_requests(options.trace, options.photos, options.seconds)
    else:
        plan = plan_from_visits(
            options.trace,
            load_dataset(options.photos),
            np.random.default_rng(1 if options.seed is None else options.seed),
            visitor=options.visitor,
            seconds=options.seconds,
            unknown_share=options.unknown_share,
        )
    return delayed(plan, options.start_after_s)


def run_device(
    options: ReplayOptions,
    settings: DeviceSettings,
    plan: tuple[PlannedPhoto, ...],
    on_row: Callable[[RequestRow], None],
) -> tuple[tuple[RequestRow, ...], float]:
    """Replay a plan through the SDK, when all photos are in memory and the SDK is set up.

    Returns
    -------
    rows : tuple of RequestRow
        One per photo.
    cpu_s : float
        CPU time of this process during the replay [s].
    """
    photos = load_photos(plan)
    with settings.new_recognizer(device_id=options.visitor) as recognizer:
        if options.announce is not None:
            write_announcement(options.announce, "replay")
        if options.wait_for_input and not sys.stdin.readline():
            raise SystemExit(1)  # the parent process has ended
        begun_s = time.process_time()
        ledger = Ledger(options.label, recognizer.device_id, on_row)
        rows = replay(plan, photos, recognizer, ledger, timeout_s=options.timeout_s)
        if options.account is not None:
            options.account.write_text(json.dumps(_account(recognizer)) + "\n", encoding="utf-8")
    return rows, time.process_time() - begun_s


def _account(recognizer: Recognizer) -> dict[str, int]:
    """Counts of fetched models; counts for peers and tiers are separate if the device cooperates."""
    prefetched, cooperation = recognizer.prefetch_state, recognizer.cooperation_state
    return {
        **(asdict(prefetched.account) if prefetched is not None else {}),
        **(asdict(cooperation.account) if cooperation is not None else {}),
    }


def write_event(event: dict[str, object]) -> None:
    """Write a JSON line for the parent process."""
    sys.stdout.write(json.dumps(event) + "\n")  # in one piece: outcomes come from another thread
    sys.stdout.flush()


def require_outcomes(rows: tuple[RequestRow, ...]) -> None:
    """Check that every request has one outcome, and at least one an answer; else most likely no tier runs.

    Raises
    ------
    InternalError
        If a request has no outcome, or more than one.
    Unavailable
        If every request failed.
    """
    errors = accounting_errors(rows)
    if errors:
        raise InternalError(f"{len(errors)} requests without exactly one outcome: {'; '.join(errors[:3])}")
    if rows and not any(row.is_answered for row in rows):
        kinds = ", ".join(f"{count} {name}" for name, count in Counter(row.outcome for row in rows).items())
        raise Unavailable(
            f"none of the {len(rows)} requests was answered: {kinds}",
            advice="check that the daemons are running: `nearsight status ENDPOINT`",
        )
