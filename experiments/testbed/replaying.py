"""One replay on a testbed that is up: warms up edges, starts devices, collects rows and link counters."""

from __future__ import annotations

import json
import math
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from nearsight.common.errors import InternalError, NearsightError, SetupError, Unavailable
from nearsight.common.logging import get_logger
from nearsight.experiments.framework.environment import describe_environment
from nearsight.experiments.rig.peer_group import free_udp_port
from nearsight.experiments.rig.processes import Process
from nearsight.experiments.rig.replay import ReplayOptions, make_plan
from nearsight.experiments.rig.rows import RequestRow, read_request_rows
from nearsight.experiments.rig.sequence import DevicePlan, SessionSteps, Tally
from nearsight.experiments.rig.tiers import NO_CONFIG
from nearsight.experiments.testbed.building import CLOUD, DEVICE_KEYS, OnStage, bring_files
from nearsight.experiments.testbed.campaign import Cell, Visitor, replay_of
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory
from nearsight.experiments.testbed.nodes import Node, Nodes
from nearsight.experiments.testbed.shells import ORDER_TIMEOUT_S
from nearsight.experiments.testbed.state import Daemon, TestbedState
from nearsight.experiments.testbed.testbed import bring_up, take_down
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.traces.requests import PhotoRequest, write_requests_csv
from nearsight.experiments.traces.visits import Visit, write_visits_csv

READY_TIMEOUT_S = 60.0
WARM_UP_TIMEOUT_S = 300.0
GRACE_S = 60.0
"""Time in addition to the last deadline in which a device must write its rows [s]."""
_WARM_UP = "nearsight.experiments.rig.warming"
_WAYS = ("up", "down")
_OUT = "replayed"
"""Prefix of a device's files on its node: rows, and counts of fetched models."""
_NOT_KEPT = "nothing of this part is kept, and the same command repeats it; logs are in the testbed's folder"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """The parts of a cell: its testbed, the replayed visitors, and the earlier visits that warm up edges."""

    inventory: Inventory
    visitors: tuple[Visitor, ...]
    earlier: tuple[Visit, ...]


class Replay(SessionSteps[dict[str, object]]):
    """A session on a testbed that is brought up for this session only.

    Parameters
    ----------
    cell : Cell
        Gives the facts and the seed of the photos.
    part : Part
        Its testbed and visitors.
    folder : Path
        Folder of the testbed.
    on_stage : callable
        Called with a description of the next step.
    """

    check_period_s = math.inf
    """No check before the end, because requests to the nodes would disturb the measurement."""
    state: TestbedState
    nodes: Nodes
    """State and nodes of the testbed; only while it is up."""

    def __init__(self, cell: Cell, part: Part, folder: Path, on_stage: OnStage) -> None:
        self.spec = replay_of(part.inventory)
        self._cell = cell
        self._part = part
        self._folder = folder
        self._on_stage = on_stage
        self.tally = Tally()
        # A port for the devices' beacons: without keys, they would receive beacons of other testbeds here.
        self._beacon_port = free_udp_port()

    @contextmanager
    def up(self) -> Iterator[None]:
        """Bring the testbed up, and take it down.

        If the replay succeeded but a node cannot be reached afterwards, this is only logged: the rows are
        complete. What could not be removed stays in the state, for the next run or ``down``.
        """
        self.state = bring_up(self._part.inventory, self._folder, on_stage=self._on_stage, of_run=True)
        try:
            with Nodes(self.state, self._folder) as self.nodes, TemporaryDirectory() as scratch:
                self._scratch = Path(scratch)
                yield
        except BaseException:  # Ctrl-C as well
            # What cannot be removed now stays in the state for the next run; the first error is raised.
            with suppress(NearsightError):
                take_down(self._folder)
            raise
        try:
            take_down(self._folder)
        except Unavailable as error:
            get_logger("experiments.testbed").warning("not taken down", reason=str(error))

    def warm_up(self) -> None:
        """Wait until servers are ready, then warm up each edge on its own node with the earlier visits."""
        self._wait_until_servers_are_ready()
        if not self._part.earlier:
            return
        self._on_stage(f"warming up edges with {self.spec.warm_up} earlier visitors")
        earlier = self._scratch / "earlier.csv"
        write_visits_csv(earlier, self._part.earlier)
        for daemon in self.state.daemons:
            if not daemon.name.startswith("edge-"):
                continue
            visits = self.nodes[daemon.host].put(earlier, "earlier.csv")
            command = [_WARM_UP, "--edge", daemon.endpoint, "--visits", visits]
            try:
                self._run_beside(
                    daemon, [*command, "--catalogue", self.spec.catalogue], timeout_s=WARM_UP_TIMEOUT_S
                )
            except SetupError as error:
                raise SetupError(
                    f"{daemon.name} on {daemon.host} was not warmed up: {error.message}",
                    advice=_NOT_KEPT,
                ) from error

    def start_devices(self) -> Sequence[Process]:
        """Start a device for each visitor, with its photos."""
        self._on_stage(f"preparing photos for {len(self._part.visitors)} devices")
        plans = {visitor.name: self._plan(visitor) for visitor in self._part.visitors}
        photos = [photo for plan in plans.values() for photo in plan]
        self.requests = len(photos)
        self._longest_s = max(photo.at_s for photo in photos)
        self.silence_s = self._longest_s + self.spec.timeout_s + GRACE_S
        return self._on_devices(lambda visitor: self._start(visitor, plans[visitor.name]))

    def begin(self) -> None:
        """Read CPU times and the links' counters."""
        self._on_stage(f"replaying {self._longest_s:.0f} s")
        self._passed_before, self._used_before = self._passed(), self._used()
        self._started_s = time.monotonic()

    def end(self) -> None:
        """Read CPU times."""
        self._used_after, self._seconds = self._used(), time.monotonic() - self._started_s

    def collect(self) -> tuple[Sequence[RequestRow], dict[str, object]]:
        """The rows of all devices, and the facts of the cell."""
        rows = [row for collected in self._on_devices(self._collect) for row in collected]
        before, after = self._used_before, self._used_after
        return rows, {
            "cell": asdict(self._cell),
            "environment": describe_environment(),
            "machines": self.state.machines,
            "inventory": self.state.inventory.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            "seconds": round(self._seconds, 3),
            "cpu_s": {name: round(after[name] - before[name], 3) for name in before.keys() & after.keys()},
            "models": dict(self._on_devices(self._models)),
            "links": self._links(),
            "daemons": [asdict(daemon) for daemon in self.state.daemons],
        }

    def _node(self, visitor: Visitor) -> Node:
        return self.nodes[visitor.host.name]

    def _on_devices(self, work: Callable[[Visitor], T]) -> list[T]:
        by_host = {visitor.host.name: visitor for visitor in self._part.visitors}
        chosen = [self.nodes[name] for name in by_host]
        return self.nodes.each(lambda node: work(by_host[node.host.name]), chosen)

    def _wait_until_servers_are_ready(self) -> None:
        """Wait until servers are ready: an edge that has announced itself still needs the catalogue."""
        for daemon in self.state.daemons:
            if daemon.leads_to:
                continue
            deadline_s = time.monotonic() + READY_TIMEOUT_S
            while True:
                try:
                    self._run_beside(daemon, ["nearsight", "status", daemon.endpoint, "--config", NO_CONFIG])
                    break
                except (SetupError, Unavailable) as error:
                    if time.monotonic() > deadline_s:
                        raise Unavailable(
                            f"{daemon.name} on {daemon.host} was not ready in {READY_TIMEOUT_S:.0f} s",
                            advice=f"`nearsight status` said: {error.message}",
                        ) from error
                    time.sleep(0.5)

    def _run_beside(self, daemon: Daemon, module: list[str], timeout_s: float = ORDER_TIMEOUT_S) -> None:
        """Run a module on a daemon's node, where the daemon can be reached, with the daemon's own key."""
        node = self.nodes[daemon.host]
        command = [*node.prefix, node.python, "-m", *module]
        if self.state.keys:
            command += ["--key", node.path(f"keys/{daemon.name}.key_secret")]
            command += ["--server-key", self.state.keys[daemon.name]]
        node.shell.run(command, timeout_s=timeout_s)

    def _plan(self, visitor: Visitor) -> tuple[PlannedPhoto, ...]:
        spec = self.spec
        number = self._part.visitors.index(visitor)
        if spec.trace is None:
            raise InternalError("the visits of the replay are not written")
        options = ReplayOptions(
            spec.trace,
            spec.photos,
            visitor.name,
            spec.seconds,
            spec.timeout_s,
            spec.unknown_share,
            seed=spec.seed + 1000 * self._cell.run + number,
        )
        return make_plan(options)

    def _start(self, visitor: Visitor, plan: Sequence[PlannedPhoto]) -> Process:
        node, spec = self._node(visitor), self.spec
        folder = self._bring_photos(visitor, plan)
        trace = self._scratch / f"{visitor.host.name}.csv"
        names = _names(plan) if folder else {photo.path: str(photo.path.resolve()) for photo in plan}
        write_requests_csv(
            trace,
            (PhotoRequest(one.object_id, names[one.path], round(one.at_s * 1000)) for one in plan),
        )
        plan_of_device = DevicePlan(
            folder or "/", self._cell.configuration, spec.timeout_s, self._settings(visitor), spec.catalogue
        )
        sent = node.put(trace, "trace.csv")
        arguments = plan_of_device.arguments(visitor.name, sent, visitor.phase_s, node.path(_OUT))
        return node.start(_process(visitor), arguments, waits_for_input=True)

    def _settings(self, visitor: Visitor) -> dict[str, object]:
        node, host = self._node(visitor), visitor.host.name
        tiers = {"cloud": CLOUD, **({"edge": f"edge-{visitor.edge}"} if visitor.edge else {})}
        settings: dict[str, object] = {}
        for tier, server in tiers.items():
            settings[f"{tier}.endpoint"] = self.state.endpoint(host, server)
            if self.state.keys:
                settings[f"{tier}.public_key"] = self.state.keys[server]
        secret = node.path(f"keys/device-{host}.key_secret")
        if self.state.keys:
            settings["security.secret_key_file"] = secret
        spec = self._device(visitor)
        settings |= bring_files(node, _process(visitor), spec)
        if spec.shares and not self.state.keys:
            settings["recognizer.peers.beacon_port"] = self._beacon_port
        elif spec.shares:
            listens = visitor.host.address if visitor.host.spec.kind == "namespace" else "0.0.0.0"
            settings["recognizer.peers.listen"] = f"tcp://{listens}:0"
            settings["recognizer.peers.allowed"] = node.path(DEVICE_KEYS)
            settings["recognizer.peers.secret_key_file"] = secret
        return {**settings, **spec.settings}

    def _device(self, visitor: Visitor) -> DeviceSpec:
        return next(d for d in self.state.inventory.devices.values() if d.node == visitor.host.node)

    def _bring_photos(self, visitor: Visitor, plan: Sequence[PlannedPhoto]) -> str:
        """Copy a device's photos to its node if that is another machine; the folder there, or empty."""
        node = self._node(visitor)
        if node.host.spec.kind != "ssh":
            return ""
        packed = self._scratch / f"{visitor.host.name}.tar"
        with tarfile.open(packed, "w") as archive:
            for path, name in _names(plan).items():
                archive.add(path, name)
        there, folder = node.put(packed, "photos.tar"), node.path("photos")
        node.shell.run(["sh", "-c", 'mkdir -p "$2" && tar -xf "$1" -C "$2" && rm "$1"', "sh", there, folder])
        return folder

    def _collect(self, visitor: Visitor) -> tuple[RequestRow, ...]:
        node = self._node(visitor)
        path = self._scratch / visitor.host.name / "rows.csv"
        try:
            node.shell.get(node.path(f"{_OUT}.csv"), path)
        except (SetupError, OSError) as error:
            log = node.states()[_process(visitor)].log
            raise SetupError(
                f"the device on {visitor.host.name} left no rows: {log}", advice=_NOT_KEPT
            ) from error
        return read_request_rows(path)

    def _models(self, visitor: Visitor) -> tuple[str, dict[str, int]]:
        """A device's name and its counts of fetched models."""
        return visitor.name, json.loads(self._node(visitor).read(f"{_OUT}-models.json"))

    def _used(self) -> dict[str, float]:
        """CPU seconds of servers and links so far."""
        hosts = dict.fromkeys(daemon.host for daemon in self.state.daemons)
        return {
            f"{host}/{name}": state.cpu_s
            for host in hosts
            for name, state in self.nodes[host].states().items()
            if not name.startswith("device-")
        }

    def check_tiers(self) -> None:
        """Query the nodes; see `SessionSteps`."""
        for daemon in self.state.daemons:
            state = self.nodes[daemon.host].states().get(daemon.name)
            if state is None or not state.running:
                log = state.log if state else "no log"
                raise Unavailable(
                    f"{daemon.name} on {daemon.host} ended before the replay was over: {log}",
                    advice=_NOT_KEPT,
                )

    def _passed(self) -> list[dict[str, Any]]:
        """Counters of each link so far; they are up to one second old."""
        return [
            json.loads(self.nodes[link.host].read(f"counters-to-{link.leads_to}.json"))
            for link in self.state.links
        ]

    def _links(self) -> dict[str, object]:
        """Bytes on each link during the replay; links are stopped first to complete their counters."""
        for link in self.state.links:
            self.nodes[link.host].stop([link.name])
        found: dict[str, object] = {}
        for link, before, after in zip(self.state.links, self._passed_before, self._passed(), strict=True):
            spec = self.state.inventory.link_to(self.nodes[link.host].host.node, link.leads_to)
            found[f"{link.host}/{link.name}"] = {
                **{f"{way}_bytes": after[way]["bytes"] - before[way]["bytes"] for way in _WAYS},
                "via": spec.via if spec is not None else "",
                "since_start": after,
            }
        return found


def _process(visitor: Visitor) -> str:
    return f"device-{visitor.host.name}"


def _names(plan: Sequence[PlannedPhoto]) -> dict[Path, str]:
    """Names of a plan's photos on another machine."""
    paths = dict.fromkeys(photo.path for photo in plan)
    return {path: f"{number:05d}{path.suffix}" for number, path in enumerate(paths)}
