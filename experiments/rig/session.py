"""Visitors with devices before cloud, link and edge: the same photos for one configuration after the other.

The demo and the figures of sessions are its callers. All processes are started anew for each configuration.
Edges are warmed up until their caches are settled. Then devices start, and time counts from the moment when
all of them are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.devices import DevicePlan, Devices, OnTally, replay_devices
from nearsight.experiments.rig.processes import ProcessGroup, termination_as_interrupt
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.tiers import (
    Deployment,
    child_environment,
    deployed,
    endpoint_of,
    served_bytes,
)
from nearsight.experiments.rig.walks import Trace
from nearsight.experiments.rig.warming import GuestCount, WarmUp

_DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class Tiers:
    """One configuration."""

    edge: Mapping[str, object] | None
    """Settings of the edge, as after ``--set``; None: devices ask the cloud themselves."""
    device: Mapping[str, object] = field(default_factory=dict)
    """Settings of the devices."""
    taught: bool = True
    """Whether the edge has heard of earlier visitors."""


@dataclass(frozen=True, slots=True)
class Played:
    """Results of one configuration."""

    rows: tuple[RequestRow, ...]
    """Requests of all devices."""
    guests: GuestCount | None
    """The edge's account of its guests; None without an edge."""
    edge_sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the edge's responses, by ``Service.Method``; empty unless its settings serve metrics."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Models that all devices fetched together, and from where; see `CooperationAccount`."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of "cloud", "link", "edge" and "devices" during the replay; only those of the edge are of
    this configuration alone if several were run side by side."""
    up_bytes: int = 0
    down_bytes: int = 0
    """Bytes on the link during the replay, of all configurations; 0 unless the session counts them."""
    link: Mapping[str, Any] = field(default_factory=dict)
    """Calibration of the link to the cloud: what was asked, what was measured, and the errors."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Counters of that link from its start to its end."""


@dataclass(frozen=True, slots=True)
class _Spent:
    """So far: bytes of edges' responses by ``Service.Method``, bytes that passed the link, CPU seconds."""

    served: Mapping[str, Mapping[str, int]]
    passed: tuple[int, int]
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Session:
    """The part that all configurations share."""

    folder: Path
    """For logs."""
    database: Path
    """The cloud's catalogue."""
    traces: tuple[Trace, ...]
    """One per device."""
    transitions: tuple[tuple[str, str], ...]
    """Earlier requests, for edges that are taught."""
    network: LinkShape
    """To the cloud."""
    seed: int
    """Seed of the link."""
    counts_bytes: bool = False
    """Whether what passes the link is counted, which takes two seconds."""
    photos: Path = Path()
    """Folder that the paths of the traces start from."""
    timeout_s: float = 5.0
    """Deadline of each request [s]."""
    opened: bool = True
    """Whether the link holds nothing up before the replay; see `deployed`."""

    def play(
        self,
        configurations: Mapping[str, Tiers],
        *,
        on_stage: Callable[[str], None] = lambda _stage: None,
        on_tally: OnTally = lambda _tally: None,
    ) -> dict[str, Played]:
        """Run configurations, from the start of their daemons to their end.

        Several are run side by side: sooner done, but they disturb each other.

        Parameters
        ----------
        configurations : mapping of str to Tiers
            By name.
        on_stage, on_tally : callable
            Told the next step, and the counts after every request.

        Raises
        ------
        SetupError, Unavailable
            If a process cannot start or dies.
        """
        edges = {name: tiers.edge for name, tiers in configurations.items() if tiers.edge is not None}
        with termination_as_interrupt(), ExitStack() as stack:
            on_stage("tiers start")
            running = stack.enter_context(
                deployed(
                    self.folder / "tiers",
                    database=self.database,
                    edges=edges,
                    network=self.network,
                    seed=self.seed,
                    opened=self.opened,
                )
            )
            running.warm_up(self.transitions, {name: None for name in edges if configurations[name].taught})
            # Only now: while processes start, an edge builds several times as long, and devices would find it
            # without some of the objects that it has chosen.
            on_stage("devices start")
            devices = {name: self._devices(stack, running, name, one) for name, one in configurations.items()}
            processes = [process for crowd in devices.values() for process in crowd.processes]
            for process in processes:
                process.wait_ready()
            if self.opened:
                running.link.reshape(self.network)
            served, passed = self._bytes(running)
            on_stage("replay")
            # Computing times are read right before and after, as counting bytes takes its time.
            before = _Spent(served, passed, {**running.cpu_s(), _DEVICES: 0.0})
            spent_s = replay_devices(processes, running.daemons, timeout_s=self.timeout_s, on_tally=on_tally)
            cpu_s = {**running.cpu_s(), _DEVICES: spent_s}
            after = _Spent(*self._bytes(running), cpu_s)
            played = {name: _played(name, running, crowd, before, after) for name, crowd in devices.items()}
            counters = running.link.stop()
            return {name: replace(one, counters=counters) for name, one in played.items()}

    def _devices(self, stack: ExitStack, running: Deployment, name: str, tiers: Tiers) -> Devices:
        group = stack.enter_context(ProcessGroup(self.folder / name, child_environment()))
        settings = {**running.tiers(name), **tiers.device}
        plan = DevicePlan(str(self.photos), name, self.timeout_s, settings)
        return Devices.started(group, self.traces, plan)

    def _bytes(self, running: Deployment) -> tuple[dict[str, dict[str, int]], tuple[int, int]]:
        served = {
            name: served_bytes(str(edge.wait_ready().get("metrics") or ""))
            for name, edge in running.edges.items()
        }
        return served, running.link.passed_bytes() if self.counts_bytes else (0, 0)


def _played(name: str, running: Deployment, devices: Devices, before: _Spent, after: _Spent) -> Played:
    edge = running.edges.get(name)
    names = {"cloud": running.cloud.name, "link": running.link.process.name}
    names |= {"edge": edge.name} if edge is not None else {}
    names |= {_DEVICES: _DEVICES}
    sent = after.served.get(name, {})
    up_bytes, down_bytes = (now - then for now, then in zip(after.passed, before.passed, strict=True))
    return Played(
        rows=devices.rows(),
        guests=WarmUp(endpoint_of(edge)).guests() if edge is not None else None,
        edge_sent={method: count - before.served[name].get(method, 0) for method, count in sent.items()},
        models=devices.models(),
        cpu_s={tier: after.cpu_s[one] - before.cpu_s[one] for tier, one in names.items()},
        up_bytes=up_bytes,
        down_bytes=down_bytes,
        link=running.link.calibration,
    )
