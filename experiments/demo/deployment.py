"""The tiers of one configuration as processes: cloud, shaped link, edge and devices.

The link to the cloud is the same in every configuration; what changes is who stands before it. Ports are
picked by the kernel and announced by the daemons. The person's own settings (file, environment) do not reach
these daemons.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import InternalError
from nearsight.experiments.demo.scenario import EDGE_CACHE, Scenario
from nearsight.experiments.testbed.processes import ManagedProcess, ProcessGroup

CATALOGUE = "museum"
START_TIMEOUT_S = 90.0
WEAK_PRIOR = 0.02
"""Requests that the edge assumes per object before it has seen any. A museum knows nothing of its visitors at
the start of a demo, which is over after 200 requests: the default of 1 for each of 500 objects would outweigh
them. (The dissertation warms its caches instead: 6.2.7.)"""
_ANY_PORT = "tcp://127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Trace:
    """What one device sends: a trace in the dissertation's form, and its offset within the second [s]."""

    visitor: str
    path: Path
    photos: int
    phase_s: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """Running tiers of one configuration.

    Attributes
    ----------
    edge, cloud : str
        Endpoints for the devices; the cloud's is the shaped link. ``edge`` is empty if there is none.
    daemons : dict of str to ManagedProcess
        By role: "cloud", "edge", "link".
    calibration : object
        The link's own measured error.
    """

    edge: str
    cloud: str
    daemons: Mapping[str, ManagedProcess]
    calibration: object
    link_stats: Path

    def stop_link(self) -> dict[str, object]:
        """Stop the link and return its final counters and calibration."""
        self.daemons["link"].stop()
        counters: dict[str, object] = json.loads(self.link_stats.read_text())
        return {"calibration": self.calibration, **counters}


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of all daemons: one thread per library call, none of the person's settings."""
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if not name.upper().startswith("NEARSIGHT_")}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def deploy(
    group: ProcessGroup, configuration: str, scenario: Scenario, *, database: Path, profile: Path
) -> Deployment:
    """Start the tiers of a configuration and wait until they serve.

    Raises
    ------
    SetupError
        If a daemon does not start; with the last lines of its log.
    """
    config = group.folder / "nearsight.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("# empty: the demo's daemons get all settings on their command lines\n")
    stats = group.folder / "link-counters.json"
    cloud = group.start("cloud", _daemon("cloud", config, database=str(database)))
    daemons = {"cloud": cloud}
    link = group.start(
        "link",
        [
            *("-m", "nearsight.experiments.testbed.shaper", "--upstream", _endpoint(cloud)),
            *("--rtt-ms", str(scenario.link.rtt_ms), "--jitter-ms", str(scenario.link.jitter_ms)),
            *("--up-mbps", str(scenario.link.up_mbps), "--down-mbps", str(scenario.link.down_mbps)),
            *("--seed", str(scenario.seed), "--stats", str(stats)),
        ],
    )
    daemons["link"] = link
    calibration = link.wait_ready(START_TIMEOUT_S).get("calibration")
    far_cloud = _endpoint(link)
    edge_endpoint = ""
    if configuration == EDGE_CACHE:
        edge_settings = {"cache.prior": str(WEAK_PRIOR), "cache.profile": str(profile)}
        daemons["edge"] = group.start("edge", _daemon("edge", config, cloud=far_cloud, **edge_settings))
        edge_endpoint = _endpoint(daemons["edge"])
    return Deployment(edge_endpoint, far_cloud, daemons, calibration, stats)


def start_device(
    group: ProcessGroup,
    configuration: str,
    scenario: Scenario,
    deployment: Deployment,
    photos: Path,
    trace: Trace,
) -> ManagedProcess:
    """Start one device: a replay of its visitor's trace, which waits for a line on its standard input."""
    tiers = ["--cloud", deployment.cloud]
    if deployment.edge:
        tiers += ["--edge", deployment.edge]
    return group.start(
        trace.visitor,
        [
            *("-m", "nearsight", "replay", str(trace.path), "--photos", str(photos), *tiers),
            *("--catalogue", CATALOGUE, "--visitor", trace.visitor, "--label", configuration),
            *("--timeout", str(scenario.timeout_s), "--start-after", f"{trace.phase_s:.3f}"),
            *("--config", str(group.folder / "nearsight.toml")),
            *("--out", str(rows_path(group, trace)), "--events", "--wait-for-input"),
        ],
        capture=True,
    )


def rows_path(group: ProcessGroup, trace: Trace) -> Path:
    """Where a device leaves its rows."""
    return group.folder / f"{trace.visitor}.csv"


def _daemon(name: str, config: Path, **settings: str) -> list[str]:
    settings = {"server.listen": _ANY_PORT, "metrics_listen": "", **settings}
    assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return ["-m", "nearsight", name, "--config", str(config), *assignments]


def _endpoint(daemon: ManagedProcess) -> str:
    endpoint = daemon.wait_ready(START_TIMEOUT_S).get("endpoint")
    if not isinstance(endpoint, str) or not endpoint:
        raise InternalError(f"{daemon.name} announced no endpoint")
    return endpoint
