"""The steps of a session on any set of machines: start tiers, warm up edges, replay, collect rows.

`run_session` calls the steps. `SessionSteps` is implemented by `session` for this machine, where several
configurations may run side by side, and by the testbed for namespaces and lab machines.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from nearsight.common.errors import InternalError, NearsightError, PeerError, SetupError, Unavailable
from nearsight.experiments.framework.signals import termination_as_interrupt
from nearsight.experiments.rig.processes import Process
from nearsight.experiments.rig.rows import RequestRow, accounting_errors
from nearsight.experiments.rig.tiers import CATALOGUE, NO_CONFIG, START_TIMEOUT_S, assignments

QUIET_S = 15.0
"""Time without any event after which a replay counts as hung, in addition to `SessionSteps.silence_s` [s]."""
POLL_S = 0.5
T_co = TypeVar("T_co", covariant=True)
_Event = Mapping[str, Any] | Exception | None
"""An event of a device, the error that ended it, or None at its end."""


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Configuration of the replaying devices."""

    photos: str
    """Folder that the paths of the traces are relative to."""
    label: str
    """Name of the configuration in the rows."""
    timeout_s: float
    """Deadline of each request [s]."""
    settings: Mapping[str, object]
    """Settings as after ``--set``, including the endpoints of the tiers."""
    catalogue: str = CATALOGUE
    """Catalogue of the objects."""

    def arguments(self, visitor: str, trace: str, phase_s: float, out: str) -> list[str]:
        """Arguments that start one device, which then waits for a line on its standard input.

        Parameters
        ----------
        visitor : str
            Visitor whose trace is replayed.
        trace : str
            File with that trace.
        phase_s : float
            Offset of the device within the second [s].
        out : str
            Prefix of the files with rows (``OUT.csv``) and counts of fetched models (``OUT-models.json``).
        """
        return [
            *("-m", "nearsight", "replay", trace, "--photos", self.photos),
            *("--catalogue", self.catalogue, "--visitor", visitor, "--label", self.label),
            *("--timeout", str(self.timeout_s), "--start-after", f"{phase_s:.3f}", "--config", NO_CONFIG),
            *assignments(self.settings),
            *("--out", f"{out}.csv", "--account", f"{out}-models.json", "--events", "--wait-for-input"),
        ]


@dataclass(slots=True)
class Tally:
    """Live counts of one configuration."""

    done: int = 0
    answered_by: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """CPU time of the devices during the replay [s]; each device reports its own at its end."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Count the event of one completed request."""
        self.done += 1
        if tier := event["answered_by"]:
            self.answered_by[tier] += 1
        else:
            self.failed += 1
        self.latencies_ms.append(event["latency_ms"])


OnTally = Callable[[Tally], None]


class SessionSteps(Protocol[T_co]):
    """The steps of a session in one kind of place; `run_session` calls the methods in this order."""

    requests: int
    """Number of photos that all devices send together; known after `start_devices`."""
    silence_s: float
    """Longest time without an event from any device if there is no fault [s]."""
    check_period_s: float
    """Period of the checks that all tiers run, during the replay [s]."""
    tally: Tally
    """`run_session` adds the events of the devices to it during the replay."""

    def up(self) -> AbstractContextManager[None]:
        """Start the tiers, for a ``with`` block that always stops them at its end."""

    def warm_up(self) -> None:
        """Report earlier requests to the edges, and wait until their caches are settled."""

    def start_devices(self) -> Sequence[Process]:
        """Start the devices; when ready they wait for a line on their standard input."""

    def begin(self) -> None:
        """Read all counters at the start of the replay."""

    def end(self) -> None:
        """Read all counters at the end of the replay."""

    def check_tiers(self) -> None:
        """Raise `Unavailable` if a tier or a link has ended; the message names it."""

    def collect(self) -> tuple[Sequence[RequestRow], T_co]:
        """The rows of all devices, and the facts of the session."""


def run_session(
    steps: SessionSteps[T_co], on_tally: OnTally = lambda _tally: None
) -> tuple[Sequence[RequestRow], T_co]:
    """Run a session, from the start of its tiers to their end.

    Parameters
    ----------
    steps : SessionSteps
        Implements the steps.
    on_tally : callable
        Called with the counts so far after every request, if devices report events.

    Returns
    -------
    sequence of RequestRow, and T
        The result of `SessionSteps.collect`.

    Raises
    ------
    SetupError, Unavailable
        If a process cannot start or ends early, or no device reports an event in time.
    InternalError
        If a request did not get exactly one outcome.
    """
    with termination_as_interrupt(), steps.up():
        try:
            steps.warm_up()
            devices = steps.start_devices()
            for device in devices:
                device.wait_ready(START_TIMEOUT_S)
            steps.begin()
            _replay(steps, devices, on_tally)
            steps.end()
        except (PeerError, SetupError):
            steps.check_tiers()  # the error above may only be a consequence of a tier that ended
            raise
        steps.check_tiers()
        rows, facts = steps.collect()
        errors = accounting_errors(rows)
        if errors or len(rows) != steps.requests:
            whole = f"{len(rows)} of {steps.requests} requests have a row"
            raise InternalError("; ".join([whole, *errors[:3]]))
        return rows, facts


def _replay(steps: SessionSteps[object], devices: Sequence[Process], on_tally: OnTally) -> None:
    """Start the replay on all devices, and wait until all of them have ended."""
    events: queue.Queue[_Event] = queue.Queue()
    for device in devices:
        threading.Thread(target=_follow, args=(device, steps.silence_s, events), daemon=True).start()
    running = len(devices)
    last_s = checked_s = time.monotonic()
    while running:
        if time.monotonic() - checked_s > steps.check_period_s:
            steps.check_tiers()
            checked_s = time.monotonic()
        try:
            event = events.get(timeout=POLL_S)
        except queue.Empty:
            if (quiet_s := time.monotonic() - last_s) > steps.silence_s + QUIET_S:
                raise Unavailable(
                    f"no device reported anything for {quiet_s:.0f} s", advice="see the logs"
                ) from None
            continue
        last_s = time.monotonic()
        if event is None:
            running -= 1
        elif isinstance(event, Exception):
            raise event
        elif "cpu_s" in event:
            steps.tally.cpu_s += event["cpu_s"]
        else:
            steps.tally.add(event)
            on_tally(steps.tally)


def _follow(device: Process, silence_s: float, events: queue.Queue[_Event]) -> None:
    """Start one device and forward its events; then put None, or the error if the device failed."""
    try:
        device.write_line("go")
        for line in device.output:
            events.put(json.loads(line))
        device.wait(silence_s)
    except (NearsightError, ValueError) as error:
        events.put(error)
    else:
        events.put(None)
