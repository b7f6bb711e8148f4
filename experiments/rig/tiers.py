"""Cloud, shaped links, edges and devices as processes: what the demo and the experiments put together.

Ports are picked by the kernel and announced by the daemons. The person's own settings (file, environment) do
not reach these daemons: they get all settings on their command lines.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nearsight.common.errors import InternalError, Unavailable
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.shaper import shaper_arguments, write_json
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup

CATALOGUE = "museum"
START_TIMEOUT_S = 90.0
_COUNT_TIMEOUT_S, _COUNT_POLL_S = 15.0, 0.05
_ANY_PORT = "tcp://127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Trace:
    """What one device sends: a trace in the dissertation's form, and its offset within the second [s]."""

    visitor: str
    path: Path
    photos: int
    phase_s: float


@dataclass(frozen=True, slots=True)
class RunningLink:
    """A shaped link that stands before a server.

    Attributes
    ----------
    process : ManagedProcess
        The shaper.
    endpoint : str
        Where clients reach the server through the link.
    calibration : mapping
        What was asked, what the link measured before it served, and the errors.
    shape_path, stats_path : Path
        Where the shaper reads another shape, and writes its counters.
    """

    process: ManagedProcess
    endpoint: str
    calibration: Mapping[str, Any]
    shape_path: Path
    stats_path: Path

    def reshape(self, shape: LinkShape) -> None:
        """Give the link another shape from now on, without breaking connections."""
        write_json(self.shape_path, asdict(shape))
        self.process.send_signal(signal.SIGHUP)

    def passed_bytes(self) -> tuple[int, int]:
        """Bytes that went up and down so far; waits for the link to count anew, about a second.

        Raises
        ------
        Unavailable
            If it does not.
        """
        asked_ns, deadline_s = time.time_ns(), time.monotonic() + _COUNT_TIMEOUT_S
        while not (self.stats_path.exists() and self.stats_path.stat().st_mtime_ns > asked_ns):
            self.process.check_alive()
            if time.monotonic() > deadline_s:
                raise Unavailable(f"{self.process.name} wrote no counters for {_COUNT_TIMEOUT_S:.0f} s")
            time.sleep(_COUNT_POLL_S)
        counters = json.loads(self.stats_path.read_text())
        return int(counters["up"]["bytes"]), int(counters["down"]["bytes"])

    def stop(self) -> dict[str, object]:
        """Stop the link and return its final counters and calibration."""
        self.process.stop()
        counters: dict[str, object] = json.loads(self.stats_path.read_text())
        return {"calibration": self.calibration, **counters}


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of all daemons: one thread per library call, none of the person's settings."""
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if not name.upper().startswith("NEARSIGHT_")}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def start_daemon(
    group: ProcessGroup, tier: str, settings: Mapping[str, str], *, name: str = ""
) -> ManagedProcess:
    """Start ``nearsight TIER`` on a port that the kernel picks; does not wait until it serves.

    Parameters
    ----------
    group : ProcessGroup
        Ends it.
    tier : str
        "cloud" or "edge".
    settings : mapping of str to str
        As after ``--set``.
    name : str
        Of the process among those of the group; default: the tier.
    """
    return group.start(
        name or tier,
        [
            *("-m", "nearsight", tier, "--config", str(_empty_config(group))),
            *_assignments({"server.listen": _ANY_PORT, "metrics_listen": "", **settings}),
        ],
    )


def start_link(group: ProcessGroup, server: str, shape: LinkShape, *, seed: int) -> RunningLink:
    """Start a shaped link before a server, and wait until it has calibrated itself."""
    stats = group.folder / "link-counters.json"
    control = group.folder / "link-shape.json"
    process = group.start("link", shaper_arguments(server, shape, seed=seed, stats=stats, control=control))
    calibration = process.wait_ready(START_TIMEOUT_S).get("calibration")
    if not isinstance(calibration, dict):
        raise InternalError("the link did not say how it was calibrated")
    return RunningLink(process, endpoint_of(process), calibration, control, stats)


def start_open_link(group: ProcessGroup, server: str, shape: LinkShape, *, seed: int) -> RunningLink:
    """The same, but it holds nothing up before `RunningLink.reshape`, so that tiers start and warm quickly.

    What its own overhead is, it learns with the shape that it will have: nothing can be taken off no delay.
    """
    link = start_link(group, server, shape, seed=seed)
    link.reshape(UNSHAPED)
    return link


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """How devices replay.

    Attributes
    ----------
    edge, cloud : str
        Endpoints; empty if there is no such tier.
    photos : Path
        Folder that the paths of the traces start from.
    label : str
        Goes into the rows as the configuration.
    timeout_s : float
        Deadline of each request [s].
    settings : mapping of str to str
        Of the device, as after ``--set``.
    """

    edge: str
    cloud: str
    photos: Path
    label: str
    timeout_s: float
    settings: Mapping[str, str]


def start_device(group: ProcessGroup, trace: Trace, plan: DevicePlan) -> ManagedProcess:
    """Start one device: a replay of its visitor's trace, which waits for a line on its standard input."""
    tiers = [
        part for name in ("edge", "cloud") if (found := getattr(plan, name)) for part in (f"--{name}", found)
    ]
    return group.start(
        trace.visitor,
        [
            *("-m", "nearsight", "replay", str(trace.path), "--photos", str(plan.photos), *tiers),
            *("--catalogue", CATALOGUE, "--visitor", trace.visitor, "--label", plan.label),
            *("--timeout", str(plan.timeout_s), "--start-after", f"{trace.phase_s:.3f}"),
            *("--config", str(_empty_config(group)), *_assignments(plan.settings)),
            *("--out", str(rows_path(group, trace)), "--events", "--wait-for-input"),
            *("--account", str(account_path(group, trace))),
        ],
        capture=True,
    )


def rows_path(group: ProcessGroup, trace: Trace) -> Path:
    """Where a device leaves its rows."""
    return group.folder / f"{trace.visitor}.csv"


def account_path(group: ProcessGroup, trace: Trace) -> Path:
    """Where a device leaves its account of the models that it fetched."""
    return group.folder / f"{trace.visitor}-models.json"


def endpoint_of(daemon: ManagedProcess) -> str:
    """Wait until a daemon serves; where it does.

    Raises
    ------
    SetupError
        If it does not start; with the last lines of its log.
    """
    endpoint = daemon.wait_ready(START_TIMEOUT_S).get("endpoint")
    if not isinstance(endpoint, str) or not endpoint:
        raise InternalError(f"{daemon.name} announced no endpoint")
    return endpoint


def _empty_config(group: ProcessGroup) -> Path:
    path = group.folder / "nearsight.toml"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# empty: these processes get all settings on their command lines\n")
    return path


def _assignments(settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
