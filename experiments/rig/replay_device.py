"""One replaying device as a process: plan, photos in memory, SDK, start signal, rows."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from nearsight.common.errors import InternalError, Unavailable
from nearsight.common.operation.daemon import write_announcement
from nearsight.device.recognizer import Recognizer
from nearsight.device.settings import DeviceSettings
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.rig.replay import Ledger, replay
from nearsight.experiments.rig.rows import RequestRow, accounting_errors, write_rows
from nearsight.experiments.traces.plan import (
    PlannedPhoto,
    delayed,
    is_request_trace,
    load_photos,
    plan_from_requests,
    plan_from_visits,
)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What one device replays, and how.

    Attributes
    ----------
    trace : Path
        Visits or photo requests, as CSV.
    photos : Path
        The data set of the photos; the folder that image paths start from.
    visitor : str, optional
        Whose visits.
    seconds : float, optional
        Stop after this time.
    timeout_s : float
        Deadline of each request [s].
    unknown_share : float
        Share of photos of objects outside of the catalogue; for visits only.
    seed : int
        Draws the photos of visits.
    label : str
        Goes into the rows as the configuration.
    start_after_s : float
        Wait before the first photo [s].
    account : Path, optional
        Where to write, as JSON, which models the device fetched, and from where.
    """

    trace: Path
    photos: Path
    visitor: str | None = None
    seconds: float | None = None
    timeout_s: float = 5.0
    unknown_share: float = 0.0
    seed: int = 1
    label: str = "replay"
    start_after_s: float = 0.0
    account: Path | None = None


def make_plan(options: ReplayOptions) -> tuple[PlannedPhoto, ...]:
    """The photos of a device, whichever form its trace has."""
    if is_request_trace(options.trace):
        plan = plan_from_requests(options.trace, options.photos, options.seconds)
    else:
        plan = plan_from_visits(
            options.trace,
            load_dataset(options.photos),
            np.random.default_rng(options.seed),
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
    wait_for_start: Callable[[], None],
) -> tuple[RequestRow, ...]:
    """Replay a plan through the SDK.

    ``wait_for_start`` is called when all photos are in memory and the SDK is set up.
    """
    photos = load_photos(plan)
    device_id = options.visitor or settings.device_id or None
    with Recognizer(
        settings.edge.endpoint or None,
        settings.cloud.endpoint or None,
        settings.catalogue,
        device_id=device_id,
        settings=settings.recognizer,
        security=settings.client_security(),
    ) as recognizer:
        wait_for_start()
        ledger = Ledger(options.label, recognizer.device_id, on_row)
        rows = replay(plan, photos, recognizer, ledger, timeout_s=options.timeout_s)
        if options.account is not None:
            options.account.write_text(json.dumps(_account(recognizer)) + "\n", encoding="utf-8")
        return rows


def _account(recognizer: Recognizer) -> dict[str, int]:
    """Models that were fetched; those from peers and from tiers apart if the device shares."""
    prefetched, cooperation = recognizer.prefetch_state, recognizer.cooperation_state
    return {
        **(asdict(prefetched.account) if prefetched is not None else {}),
        **(asdict(cooperation.account) if cooperation is not None else {}),
    }


def start_signal(announce: Path | None, wait_for_input: bool) -> Callable[[], None]:
    """What a device does when it is ready: say so, and wait for a line on standard input, if asked to."""

    def wait_for_start() -> None:
        if announce is not None:
            write_announcement(announce, "replay", "", "")
        if wait_for_input and not sys.stdin.readline():
            raise SystemExit(1)  # whoever started this process is gone

    return wait_for_start


class EventWriter:
    """JSON lines for the process that started this device: one per completed request, CPU time at the end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._cpu_before_s = 0.0

    def begin(self) -> None:
        """Count CPU time from now on: what it took to start is not part of the replay."""
        self._cpu_before_s = time.process_time()

    def on_row(self, row: RequestRow) -> None:
        """Write the event of a completed request."""
        self._write({"answered_by": row.answered_by, "latency_ms": row.latency_ms, "outcome": row.outcome})

    def end(self) -> None:
        """Write the CPU seconds since `begin`."""
        self._write({"cpu_s": time.process_time() - self._cpu_before_s})

    def _write(self, event: dict[str, object]) -> None:
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()


def keep_rows(rows: tuple[RequestRow, ...], out: Path | None) -> None:
    """Write the rows, and complain if a request did not get exactly one outcome.

    Raises
    ------
    InternalError
        If the account does not add up.
    """
    if out is not None:
        write_rows(out, rows)
    errors = accounting_errors(rows)
    if errors:
        raise InternalError(f"{len(errors)} requests without exactly one outcome: {'; '.join(errors[:3])}")


def require_an_answer(rows: tuple[RequestRow, ...]) -> None:
    """Complain if no tier answered anything: most likely none runs there.

    Raises
    ------
    Unavailable
        If every request failed.
    """
    if rows and not any(row.is_answered for row in rows):
        kinds = ", ".join(f"{count} {name}" for name, count in Counter(row.outcome for row in rows).items())
        raise Unavailable(
            f"none of the {len(rows)} requests was answered: {kinds}",
            advice="are the daemons running? `nearsight status ENDPOINT` asks them",
        )
