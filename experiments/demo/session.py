"""One configuration, played: tiers up, devices ready, start, follow, account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nearsight.experiments.demo.deployment import Deployment, deploy
from nearsight.experiments.demo.material import Material
from nearsight.experiments.demo.report import ConfigurationResult
from nearsight.experiments.demo.scenario import Scenario
from nearsight.experiments.rig.devices import OnTally, replay_devices
from nearsight.experiments.rig.processes import ProcessGroup
from nearsight.experiments.rig.rows import RequestRow, read_request_rows
from nearsight.experiments.rig.tiers import DevicePlan, child_environment, rows_path, start_device

NO_PREFETCHING = {"recognizer.prefetch.enabled": "false"}
"""The demo shows what the edge does; its devices hold nothing."""


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
        plan = DevicePlan(
            deployment.edge,
            deployment.cloud,
            material.museum,
            configuration,
            scenario.timeout_s,
            NO_PREFETCHING,
        )
        devices = [start_device(group, trace, plan) for trace in material.traces]
        for device in devices:
            device.wait_ready()
        on_stage("replay")
        cpu_before_s = _cpu_s(deployment)
        devices_cpu_s = replay_devices(
            devices, deployment.daemons.values(), timeout_s=scenario.timeout_s, on_tally=on_tally
        )
        cpu_s = {name: spent - cpu_before_s[name] for name, spent in _cpu_s(deployment).items()}
        link = deployment.link.stop()
        rows = tuple(row for trace in material.traces for row in read_request_rows(rows_path(group, trace)))
    return ConfigurationResult(
        configuration, rows, _bytes(link, rows, deployment), {**cpu_s, "devices": devices_cpu_s}, link
    )


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
