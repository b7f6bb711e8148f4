"""One configuration, played: tiers up, devices ready, start, follow, account."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearsight.common.errors import Unavailable
from nearsight.experiments.demo.deployment import (
    Deployment,
    child_environment,
    deploy,
    rows_path,
    start_device,
)
from nearsight.experiments.demo.material import Material
from nearsight.experiments.demo.report import ConfigurationResult
from nearsight.experiments.demo.scenario import Scenario
from nearsight.experiments.testbed.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.testbed.rows import RequestRow, read_request_rows

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


def play(
    configuration: str,
    scenario: Scenario,
    material: Material,
    folder: Path,
    *,
    on_stage: Callable[[str], None],
    on_tally: OnTally,
) -> ConfigurationResult:
    """Run one configuration from the start of its daemons to their end.

    Parameters
    ----------
    configuration : str
        "only-cloud" or "edge-cache".
    scenario : Scenario
        What is played.
    material : Material
        The cloud's database, photos, and a trace per device.
    folder : Path
        For logs and rows.
    on_stage, on_tally : callable
        Told what happens.

    Raises
    ------
    SetupError, Unavailable
        If a process cannot start or dies.
    """
    with ProcessGroup(folder, child_environment()) as group:
        on_stage("tiers start")
        deployment = deploy(
            group, configuration, scenario, database=material.database, profile=material.profile
        )
        on_stage("devices start")
        devices = [
            start_device(group, configuration, scenario, deployment, material.museum, trace)
            for trace in material.traces
        ]
        for device in devices:
            device.wait_ready()
        on_stage("replay")
        cpu_before_s = _cpu_s(deployment)
        devices_cpu_s = _replay(devices, deployment, scenario.timeout_s + QUIET_S, on_tally)
        cpu_s = {name: spent - cpu_before_s[name] for name, spent in _cpu_s(deployment).items()}
        link = deployment.stop_link()
        rows = tuple(row for trace in material.traces for row in read_request_rows(rows_path(group, trace)))
    return ConfigurationResult(
        configuration, rows, _bytes(link, rows, deployment), {**cpu_s, "devices": devices_cpu_s}, link
    )


def _replay(
    devices: Sequence[ManagedProcess], deployment: Deployment, quiet_s: float, on_tally: OnTally
) -> float:
    """Let all devices run to their end; returns their CPU seconds."""
    events: queue.Queue[dict[str, object] | None] = queue.Queue()
    readers = [
        threading.Thread(target=_read_events, args=(device, events), daemon=True) for device in devices
    ]
    for reader in readers:
        reader.start()
    for device in devices:
        device.tell("go")
    tally, cpu_s, running = Tally(), 0.0, len(devices)
    last_s = checked_s = time.monotonic()
    while running:
        if time.monotonic() - checked_s > CHECK_PERIOD_S:
            _check_daemons(deployment)
            checked_s = time.monotonic()
        try:
            event = events.get(timeout=CHECK_PERIOD_S)
        except queue.Empty:
            if time.monotonic() - last_s > quiet_s:
                raise Unavailable(
                    f"no device reported anything for {quiet_s:.0f} s", advice="see the logs"
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
    _check_daemons(deployment)
    return cpu_s


def _read_events(device: ManagedProcess, events: queue.Queue[dict[str, object] | None]) -> None:
    try:
        for line in device.output:
            events.put(json.loads(line))
    finally:
        events.put(None)


def _check_daemons(deployment: Deployment) -> None:
    for daemon in deployment.daemons.values():
        daemon.check_alive()


def _cpu_s(deployment: Deployment) -> dict[str, float]:
    return {name: daemon.cpu_s() for name, daemon in deployment.daemons.items()}


def _bytes(
    link: dict[str, object], rows: Sequence[RequestRow], deployment: Deployment
) -> dict[str, dict[str, int]]:
    """Bytes per link: the shaped one's as it counted them, those within the building as devices saw them."""
    found = {"to-cloud": {way: _counted(link, way) for way in ("up", "down")}}
    if deployment.edge:
        near = [row for row in rows if row.edge_compute_ms > 0 or row.answered_by == "edge"]
        found["devices-edge"] = {
            "up": sum(row.sent_bytes for row in near),
            "down": sum(row.received_bytes for row in near),
        }
    return found


def _counted(link: dict[str, object], way: str) -> int:
    counters = link[way]
    return int(counters["bytes"]) if isinstance(counters, dict) else 0
