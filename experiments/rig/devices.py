"""Replaying devices, a process each: all start at a word, report every request, and leave an account."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearsight.common.errors import Unavailable
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.rows import RequestRow, read_request_rows
from nearsight.experiments.rig.tiers import CATALOGUE, assignments, empty_config
from nearsight.experiments.rig.walks import Trace

QUIET_S = 15.0
"""Beyond the deadline of a request: if no device reports anything for this long, something hangs."""
CHECK_PERIOD_S = 0.5
"""How often to look whether all daemons are alive."""


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """How devices replay."""

    photos: str
    """Folder that the paths of the traces start from."""
    label: str
    """Name of the configuration in the rows."""
    timeout_s: float
    """Deadline of each request [s]."""
    settings: Mapping[str, object]
    """Settings as after ``--set``, with the endpoints of its tiers."""
    catalogue: str = CATALOGUE
    """Catalogue of the objects."""

    def arguments(self, visitor: str, trace: str, phase_s: float, config: str, out: str) -> list[str]:
        """The command of one device, which waits for a line on its standard input.

        Parameters
        ----------
        visitor : str
            Whose trace it replays.
        trace : str
            File with that trace.
        phase_s : float
            Its offset within the second [s].
        config : str
            An empty configuration file.
        out : str
            Where it leaves its rows (``OUT.csv``) and its account of fetched models (``OUT-models.json``).
        """
        return [
            *("-m", "nearsight", "replay", trace, "--photos", self.photos),
            *("--catalogue", self.catalogue, "--visitor", visitor, "--label", self.label),
            *("--timeout", str(self.timeout_s), "--start-after", f"{phase_s:.3f}", "--config", config),
            *assignments(self.settings),
            *("--out", f"{out}.csv", "--account", f"{out}-models.json", "--events", "--wait-for-input"),
        ]


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices that were started."""

    processes: tuple[ManagedProcess, ...]
    """One per trace."""
    folder: Path
    """Folder of their rows."""
    traces: tuple[Trace, ...]
    """One per device."""

    @classmethod
    def started(cls, group: ProcessGroup, traces: Iterable[Trace], plan: DevicePlan) -> Devices:
        """Start a device for each trace."""
        traces, config = tuple(traces), empty_config(group)
        processes = tuple(
            group.start(
                one.visitor,
                plan.arguments(
                    one.visitor, str(one.path), one.phase_s, config, str(group.folder / one.visitor)
                ),
                capture=True,
            )
            for one in traces
        )
        return cls(processes, group.folder, traces)

    def rows(self) -> tuple[RequestRow, ...]:
        """The rows of all, once they have ended."""
        paths = (self.folder / f"{trace.visitor}.csv" for trace in self.traces)
        return tuple(row for path in paths for row in read_request_rows(path))

    def models(self) -> Mapping[str, int]:
        """Models that all of them fetched together, and from where; see `CooperationAccount`."""
        total: Counter[str] = Counter()
        for trace in self.traces:
            total.update(json.loads((self.folder / f"{trace.visitor}-models.json").read_text()))
        return total


@dataclass(slots=True)
class Tally:
    """Live counts of one configuration."""

    done: int = 0
    answered_by: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def add(self, event: Mapping[str, object]) -> None:
        """Count the event of one completed request."""
        self.done += 1
        tier = str(event.get("answered_by") or "")
        if tier:
            self.answered_by[tier] = self.answered_by.get(tier, 0) + 1
        else:
            self.failed += 1
        latency_ms = event.get("latency_ms")
        if isinstance(latency_ms, float):
            self.latencies_ms.append(latency_ms)


OnTally = Callable[[Tally], None]


def replay_devices(
    devices: Sequence[ManagedProcess],
    daemons: Sequence[ManagedProcess],
    *,
    timeout_s: float,
    on_tally: OnTally = lambda _tally: None,
) -> float:
    """Let all devices run to their end.

    Parameters
    ----------
    devices : sequence of ManagedProcess
        Ready.
    daemons : sequence of ManagedProcess
        Must live as long.
    timeout_s : float
        Deadline of a request [s].
    on_tally : callable
        Told the counts so far after every request.

    Returns
    -------
    float
        CPU seconds of the devices during the replay.

    Raises
    ------
    SetupError, Unavailable
        If a process dies, or nothing happens any more.
    """
    events: queue.Queue[dict[str, object] | None] = queue.Queue()
    for device in devices:
        threading.Thread(target=_read_events, args=(device, events), daemon=True).start()
    for device in devices:
        device.tell("go")
    tally, cpu_s, running = Tally(), 0.0, len(devices)
    last_s = checked_s = time.monotonic()
    while running:
        if time.monotonic() - checked_s > CHECK_PERIOD_S:
            _check_alive(daemons)
            checked_s = time.monotonic()
        try:
            event = events.get(timeout=CHECK_PERIOD_S)
        except queue.Empty:
            if time.monotonic() - last_s > timeout_s + QUIET_S:
                raise Unavailable(
                    f"no device reported anything for {timeout_s + QUIET_S:.0f} s", advice="see the logs"
                ) from None
            continue
        last_s = time.monotonic()
        if event is None:
            running -= 1
        elif "cpu_s" in event:
            cpu_s += float(str(event["cpu_s"]))
        else:
            tally.add(event)
            on_tally(tally)
    for device in devices:
        device.wait(timeout_s=10.0)
    _check_alive(daemons)
    return cpu_s


def _read_events(device: ManagedProcess, events: queue.Queue[dict[str, object] | None]) -> None:
    try:
        for line in device.output:
            events.put(json.loads(line))
    finally:
        events.put(None)


def _check_alive(daemons: Iterable[ManagedProcess]) -> None:
    for daemon in daemons:
        daemon.check_alive()
