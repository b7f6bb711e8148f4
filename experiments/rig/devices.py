"""A crowd of replaying devices: all start at a word, each reports every request, and the account is kept."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nearsight.common.errors import Unavailable
from nearsight.experiments.rig.processes import ManagedProcess

QUIET_S = 15.0
"""Beyond the deadline of a request: if no device reports anything for this long, something hangs."""

CHECK_PERIOD_S = 0.5
"""How often to look whether all daemons are alive."""


@dataclass(slots=True)
class Tally:
    """Live counts of one configuration."""

    done: int = 0
    answered_by: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def add(self, event: dict[str, object]) -> None:
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
    daemons: Iterable[ManagedProcess],
    *,
    timeout_s: float,
    on_tally: OnTally = lambda _tally: None,
) -> float:
    """Let all devices run to their end.

    Parameters
    ----------
    devices : sequence of ManagedProcess
        Ready, from `start_device`.
    daemons : iterable of ManagedProcess
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
    watched = tuple(daemons)
    events: queue.Queue[dict[str, object] | None] = queue.Queue()
    for device in devices:
        threading.Thread(target=_read_events, args=(device, events), daemon=True).start()
    for device in devices:
        device.tell("go")
    tally, cpu_s, running = Tally(), 0.0, len(devices)
    last_s = checked_s = time.monotonic()
    while running:
        if time.monotonic() - checked_s > CHECK_PERIOD_S:
            _check_alive(watched)
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
    _check_alive(watched)
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
