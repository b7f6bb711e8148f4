"""Visitors with devices before cloud, link and edge: the same photos for one configuration after the other.

All processes are started anew for each configuration. Edges are warmed over a link without limits until their
caches have settled; then devices start, and time counts from the moment when all of them are ready.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.devices import replay_devices
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup, termination_as_interrupt
from nearsight.experiments.rig.rows import RequestRow, read_request_rows
from nearsight.experiments.rig.served_bytes import served_bytes, since
from nearsight.experiments.rig.tiers import (
    CATALOGUE,
    DevicePlan,
    RunningLink,
    Trace,
    account_path,
    child_environment,
    endpoint_of,
    rows_path,
    start_daemon,
    start_device,
    start_open_link,
)
from nearsight.experiments.rig.warming import (
    GuestCount,
    admit,
    guest_count,
    report_requests,
    wait_all_settled,
)

_TIMEOUT_S = 5.0
_CLOUD = ""
"""Beside names of configurations: what all of them share."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """One configuration.

    Attributes
    ----------
    edge : mapping of str to str, optional
        Settings of the edge, as after ``--set``; None: devices ask the cloud themselves.
    device : mapping of str to str
        Settings of the devices.
    taught : bool
        Whether the edge has heard of earlier visitors.
    """

    edge: Mapping[str, str] | None
    device: Mapping[str, str] = field(default_factory=dict)
    taught: bool = True


@dataclass(frozen=True, slots=True)
class Played:
    """What one configuration gave.

    Attributes
    ----------
    rows : tuple of RequestRow
        Of all devices.
    guests : GuestCount or None
        The edge's account of its guests; None without an edge.
    edge_sent : mapping of str to int
        Bytes of the edge's responses, by ``Service.Method``; empty unless its settings serve metrics.
    models : mapping of str to int
        Models that all devices fetched together, and from where; see `CooperationAccount`.
    cpu_s : mapping of str to float
        CPU seconds of "cloud" and "edge" during the replay; the cloud's are for all configurations that were
        run side by side.
    up_bytes, down_bytes : int
        That the link passed during the replay, for all of them; 0 unless the session counts them.
    link : mapping
        Calibration of the link to the cloud: what was asked, what was measured, and the errors.
    """

    rows: tuple[RequestRow, ...]
    guests: GuestCount | None
    edge_sent: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    up_bytes: int = 0
    down_bytes: int = 0
    link: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Running:
    """The daemons of a session; groups of processes by configuration, and edges of those that have one."""

    cloud: ManagedProcess
    link: RunningLink
    groups: Mapping[str, ProcessGroup]
    edges: Mapping[str, ManagedProcess]

    @property
    def daemons(self) -> Sequence[ManagedProcess]:
        """All, the link included."""
        return (self.cloud, self.link.process, *self.edges.values())

    def edge(self, name: str) -> str:
        """Where a configuration's edge serves; empty if it has none."""
        return endpoint_of(self.edges[name]) if name in self.edges else ""

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, of the cloud and of the edges by configuration."""
        return {name: one.cpu_s() for name, one in [(_CLOUD, self.cloud), *self.edges.items()]}


@dataclass(frozen=True, slots=True)
class _Counted:
    """Bytes so far: of each edge's responses by ``Service.Method``, and those that the link passed."""

    served: Mapping[str, Mapping[str, int]]
    up_bytes: int
    down_bytes: int

    def since(self, before: _Counted) -> _Counted:
        """What was added."""
        return _Counted(
            {name: since(before.served[name], now) for name, now in self.served.items()},
            self.up_bytes - before.up_bytes,
            self.down_bytes - before.down_bytes,
        )


@dataclass(frozen=True, slots=True)
class Session:
    """What is the same for all configurations.

    Attributes
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    traces : tuple of Trace
        One per device.
    transitions : tuple of (visitor, object)
        What an edge that is taught has heard of before.
    network : LinkShape
        To the cloud.
    seed : int
        Of the link.
    counts_bytes : bool
        Whether what passes the link is counted, which takes two seconds.
    """

    folder: Path
    database: Path
    traces: tuple[Trace, ...]
    transitions: tuple[tuple[str, str], ...]
    network: LinkShape
    seed: int
    counts_bytes: bool = False

    def play(self, configurations: Mapping[str, Tiers]) -> dict[str, Played]:
        """Run configurations, from the start of their daemons to their end.

        Several are run side by side: sooner done, but they disturb each other.
        """
        with termination_as_interrupt(), ExitStack() as stack:
            running = self._start(stack, configurations)
            self._teach([running.edge(name) for name in running.edges if configurations[name].taught])
            # Only now: while processes start, an edge builds several times as long, and devices would find it
            # without some of the objects that it has chosen.
            devices = self._start_devices(running, configurations)
            for device in devices:
                device.wait_ready()
            running.link.reshape(self.network)
            # Computing times are read right before and after, as counting bytes takes its time.
            before, worked = self._counted(running), running.cpu_s()
            replay_devices(devices, running.daemons, timeout_s=_TIMEOUT_S)
            cpu_s = {name: now_s - worked[name] for name, now_s in running.cpu_s().items()}
            counted = self._counted(running).since(before)
            return {name: self._played(name, running, counted, cpu_s) for name in configurations}

    def _start(self, stack: ExitStack, configurations: Mapping[str, Tiers]) -> _Running:
        """The daemons of all configurations, until the stack is closed."""
        below = stack.enter_context(ProcessGroup(self.folder / "cloud", child_environment()))
        cloud = start_daemon(below, "cloud", {"database": str(self.database)})
        link = start_open_link(below, endpoint_of(cloud), self.network, seed=self.seed)
        groups = {
            name: stack.enter_context(ProcessGroup(self.folder / name, child_environment()))
            for name in configurations
        }
        edges = {
            name: start_daemon(groups[name], "edge", {"cloud": link.endpoint, **tiers.edge})
            for name, tiers in configurations.items()
            if tiers.edge is not None
        }
        return _Running(cloud, link, groups, edges)

    def _start_devices(
        self, running: _Running, configurations: Mapping[str, Tiers]
    ) -> Sequence[ManagedProcess]:
        plans = {
            name: DevicePlan(
                running.edge(name), running.link.endpoint, Path(), name, _TIMEOUT_S, tiers.device
            )
            for name, tiers in configurations.items()
        }
        return [
            start_device(running.groups[name], trace, plan)
            for name, plan in plans.items()
            for trace in self.traces
        ]

    def _counted(self, running: _Running) -> _Counted:
        served = {name: _served(edge) for name, edge in running.edges.items()}
        return _Counted(served, *(running.link.passed_bytes() if self.counts_bytes else (0, 0)))

    def _played(self, name: str, running: _Running, counted: _Counted, cpu_s: Mapping[str, float]) -> Played:
        """What one configuration gave; ``counted`` and ``cpu_s`` since the replay began."""
        group = running.groups[name]
        return Played(
            rows=tuple(row for trace in self.traces for row in read_request_rows(rows_path(group, trace))),
            guests=guest_count(running.edge(name)) if name in running.edges else None,
            edge_sent=counted.served.get(name, {}),
            models=self._models(group),
            cpu_s={"cloud": cpu_s[_CLOUD], **({"edge": cpu_s[name]} if name in running.edges else {})},
            up_bytes=counted.up_bytes,
            down_bytes=counted.down_bytes,
            link=running.link.calibration,
        )

    def _models(self, group: ProcessGroup) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for trace in self.traces:
            total.update(json.loads(account_path(group, trace).read_text()))
        return total

    def _teach(self, edges: Sequence[str]) -> None:
        for edge in edges:
            admit(edge, catalogue=CATALOGUE)
            report_requests(edge, self.transitions, catalogue=CATALOGUE)
        wait_all_settled(dict.fromkeys(edges))


def _served(daemon: ManagedProcess) -> Mapping[str, int]:
    metrics = daemon.wait_ready().get("metrics")
    return served_bytes(str(metrics)) if metrics else {}
