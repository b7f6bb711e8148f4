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

from nearsight.experiments.testbed.devices import replay_devices
from nearsight.experiments.testbed.link import LinkShape
from nearsight.experiments.testbed.processes import ManagedProcess, ProcessGroup, termination_as_interrupt
from nearsight.experiments.testbed.rows import RequestRow, read_request_rows
from nearsight.experiments.testbed.served_bytes import served_bytes, since
from nearsight.experiments.testbed.tiers import (
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
from nearsight.experiments.testbed.warming import (
    GuestCount,
    admit,
    guest_count,
    report_requests,
    wait_all_settled,
)

_TIMEOUT_S = 5.0


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
            endpoints = {name: endpoint_of(edge) for name, edge in edges.items()}
            self._teach([endpoints[name] for name in edges if configurations[name].taught])
            # Only now: while processes start, an edge builds several times as long, and devices would find it
            # without some of the objects that it has chosen.
            devices = [
                device
                for name, tiers in configurations.items()
                for device in self._start_devices(
                    groups[name], name, endpoints.get(name, ""), link.endpoint, tiers.device
                )
            ]
            for device in devices:
                device.wait_ready()
            link.reshape(self.network)
            before = {name: _served(edge) for name, edge in edges.items()}
            passed = self._passed(link)
            worked = {name: one.cpu_s() for name, one in [("", cloud), *edges.items()]}
            replay_devices(devices, [cloud, link.process, *edges.values()], timeout_s=_TIMEOUT_S)
            cpu_s = {name: one.cpu_s() - worked[name] for name, one in [("", cloud), *edges.items()]}
            up_bytes, down_bytes = (now - then for now, then in zip(self._passed(link), passed, strict=True))
            return {
                name: Played(
                    tuple(row for trace in self.traces for row in read_request_rows(rows_path(group, trace))),
                    guest_count(endpoints[name]) if name in endpoints else None,
                    since(before[name], _served(edges[name])) if name in edges else {},
                    self._models(group),
                    {"cloud": cpu_s[""], **({"edge": cpu_s[name]} if name in edges else {})},
                    up_bytes,
                    down_bytes,
                    link.calibration,
                )
                for name, group in groups.items()
            }

    def _passed(self, link: RunningLink) -> tuple[int, int]:
        return link.passed_bytes() if self.counts_bytes else (0, 0)

    def _models(self, group: ProcessGroup) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for trace in self.traces:
            total.update(json.loads(account_path(group, trace).read_text()))
        return total

    def _start_devices(
        self, group: ProcessGroup, name: str, edge: str, cloud: str, settings: Mapping[str, str]
    ) -> Sequence[ManagedProcess]:
        plan = DevicePlan(edge, cloud, Path(), name, _TIMEOUT_S, settings)
        return [start_device(group, trace, plan) for trace in self.traces]

    def _teach(self, edges: Sequence[str]) -> None:
        for edge in edges:
            admit(edge, catalogue=CATALOGUE)
            report_requests(edge, self.transitions, catalogue=CATALOGUE)
        wait_all_settled(dict.fromkeys(edges))


def _served(daemon: ManagedProcess) -> Mapping[str, int]:
    metrics = daemon.wait_ready().get("metrics")
    return served_bytes(str(metrics)) if metrics else {}
