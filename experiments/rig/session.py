"""Runs sessions on this machine: cloud, link, edge and devices replay the same photos in each configuration.

The demo and the figures of sessions call it. All processes are started anew for each configuration. Edges are
warmed up until their caches are settled. Then the devices start. Time is measured from the moment when all of
them are ready.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearsight.edge.prediction import PrefetchCount
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.rows import RequestRow, read_request_rows
from nearsight.experiments.rig.sequence import DevicePlan, OnTally, SessionSteps, Tally, run_session
from nearsight.experiments.rig.tiers import deployed, endpoint_of, served_bytes
from nearsight.experiments.rig.walks import Trace
from nearsight.experiments.rig.warming import WarmUp

_DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class Tiers:
    """One configuration."""

    edge: Mapping[str, object] | None
    """Settings of the edge, as after ``--set``; None: devices send requests to the cloud directly."""
    device: Mapping[str, object] = field(default_factory=dict)
    """Settings of the devices."""
    warmed_up: bool = True
    """Whether the edge is warmed up with the requests of earlier visitors."""


@dataclass(frozen=True, slots=True)
class Played:
    """Results of one configuration."""

    rows: tuple[RequestRow, ...]
    """Requests of all devices."""
    prefetched: PrefetchCount | None
    """The edge's counts of prefetched objects; None without an edge, and on the twin."""
    edge_sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the edge's responses, by ``Service.Method``; empty unless its settings serve metrics."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Models that all devices fetched together, by source; see `CooperationAccount`."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of "cloud", "link", "edge" and "devices" during the replay. If several configurations ran
    side by side, only those of the edge belong to this configuration alone. If the cloud was killed, they are
    counted until then, and "devices" is missing."""
    seconds: float = 0.0
    """Time from the start of the replay until all devices had ended [s]; the CPU seconds are of this time."""
    up_bytes: int = 0
    down_bytes: int = 0
    """Bytes on the link during the replay, of all configurations; 0 unless the session counts them."""
    link: Mapping[str, Any] = field(default_factory=dict)
    """Calibration of the link to the cloud: the requested shape, the measured shape, and the errors."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Counters of that link from its start to its end."""
    cloud_died_s: float | None = None
    """Time of the cloud's end, from the start of the replay [s]; None: it was not killed. Devices start later
    than the replay, so photos that they send this time after their own start were sent without a cloud."""


@dataclass(frozen=True, slots=True)
class Session:
    """The settings that all configurations share."""

    folder: Path
    """For logs."""
    database: Path
    """The cloud's catalogue."""
    traces: tuple[Trace, ...]
    """One per device."""
    transitions: tuple[tuple[str, str], ...]
    """Requests of earlier visitors, for the warm-up of edges."""
    network: LinkShape
    """Shape of the link to the cloud."""
    seed: int
    """Seed of the link."""
    counts_bytes: bool = False
    """Whether bytes on the link are counted, which takes two seconds."""
    photos: Path = Path()
    """Folder that the paths of the traces are relative to."""
    timeout_s: float = 5.0
    """Deadline of each request [s]."""
    opened: bool = True
    """Whether the link is unshaped before the replay; see `deployed`."""
    cloud_dies_after_s: float | None = None
    """Time at which the cloud is killed, from the start of the replay [s]; None: never."""

    def play(
        self,
        configurations: Mapping[str, Tiers],
        *,
        on_stage: Callable[[str], None] = lambda _stage: None,
        on_tally: OnTally = lambda _tally: None,
    ) -> dict[str, Played]:
        """Run configurations, from the start of their daemons to their end.

        Several configurations run side by side: this takes less time, but they disturb each other.

        Parameters
        ----------
        configurations : mapping of str to Tiers
            Configurations by name.
        on_stage, on_tally : callable
            Called with the name of the next step, and with the counts after every request.

        Raises
        ------
        SetupError, Unavailable
            If a process cannot start or ends early.
        """
        steps = _LocalSession(self, configurations, on_stage)
        _, played = run_session(steps, on_tally)
        return played


class _LocalSession(SessionSteps[dict[str, Played]]):
    """A session on this machine: one cloud and link, and for each configuration an edge and devices."""

    check_period_s = 0.5

    def __init__(
        self, session: Session, configurations: Mapping[str, Tiers], on_stage: Callable[[str], None]
    ) -> None:
        self._session = session
        self._configurations = configurations
        self._on_stage = on_stage
        self._devices: dict[str, ProcessGroup] = {}
        self._begun_s = self._seconds = 0.0
        self._cloud_died_s: float | None = None
        self._cpu_at_death: Mapping[str, float] = {}
        self.silence_s = session.timeout_s
        self.tally = Tally()
        self.requests = len(configurations) * sum(trace.photos for trace in session.traces)

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the daemons and the link."""
        session = self._session
        self._edges = {name: one.edge for name, one in self._configurations.items() if one.edge is not None}
        self._on_stage("starting tiers")
        with ExitStack() as self._open:
            self._running = self._open.enter_context(
                deployed(
                    session.folder / "tiers",
                    database=session.database,
                    edges=self._edges,
                    network=session.network,
                    seed=session.seed,
                    opened=session.opened,
                )
            )
            yield

    def warm_up(self) -> None:
        """Warm up the edges of configurations with ``warmed_up``; see `Deployment.warm_up`."""
        warmed_up = {name: None for name in self._edges if self._configurations[name].warmed_up}
        self._running.warm_up(self._session.transitions, warmed_up)

    def start_devices(self) -> Sequence[ManagedProcess]:
        """Start a device for each trace and configuration.

        Devices start after the warm-up. While processes start, an index build at the edge takes several times
        as long, and devices would be served before the edge holds all objects that it chose.
        """
        self._on_stage("starting devices")
        session = self._session
        devices: list[ManagedProcess] = []
        for name, tiers in self._configurations.items():
            group = self._devices[name] = self._open.enter_context(ProcessGroup(session.folder / name))
            settings = {**self._running.tiers(name), **tiers.device}
            plan = DevicePlan(str(session.photos), name, session.timeout_s, settings)
            for trace in session.traces:
                own = str(trace.path), trace.phase_s, group.path(trace.visitor)
                devices.append(group.start(trace.visitor, plan.arguments(trace.visitor, *own), capture=True))
        return devices

    def begin(self) -> None:
        """Shape the link, read the counters, and schedule the end of the cloud."""
        if self._session.opened:
            self._running.link.reshape(self._session.network)
        self._served, self._passed = self._bytes()
        self._on_stage("replay")
        # CPU times are read last here and first in `end`, because counting bytes takes time.
        self._cpu_s = {**self._running.cpu_s(), _DEVICES: 0.0}
        self._begun_s = time.monotonic()
        if self._session.cloud_dies_after_s is not None:
            killing = threading.Timer(self._session.cloud_dies_after_s, self._kill_cloud)
            self._open.callback(killing.cancel)
            killing.start()

    def _kill_cloud(self) -> None:
        """Kill the cloud, after reading the CPU times until then."""
        self._cloud_died_s = math.inf  # from here on, its end is no fault
        self._cpu_at_death = self._running.cpu_s()
        self._on_stage("without the cloud")
        self._running.cloud.send_signal(signal.SIGKILL)
        self._cloud_died_s = time.monotonic() - self._begun_s

    def end(self) -> None:
        """Read the counters again, and keep the differences."""
        cpu_s = {**self._running.cpu_s(), _DEVICES: self.tally.cpu_s, **self._cpu_at_death}
        self._seconds = time.monotonic() - self._begun_s
        self._cpu_s = {name: spent_s - self._cpu_s[name] for name, spent_s in cpu_s.items()}
        served, passed = self._bytes()
        for name, count in served.items():
            count.subtract(self._served[name])
        self._served, self._passed = served, (passed[0] - self._passed[0], passed[1] - self._passed[1])

    def check_tiers(self) -> None:
        """See `SessionSteps`."""
        for daemon in self._running.daemons:
            if self._cloud_died_s is None or daemon is not self._running.cloud:
                daemon.check_alive()

    def collect(self) -> tuple[Sequence[RequestRow], dict[str, Played]]:
        """The rows of all devices, and the results of each configuration."""
        counters = self._running.link.stop()
        played = {name: self._played(name, counters) for name in self._configurations}
        return [row for one in played.values() for row in one.rows], played

    def _bytes(self) -> tuple[dict[str, Counter[str]], tuple[int, int]]:
        """Bytes of each edge's responses by ``Service.Method``, and bytes on the link; both so far."""
        running = self._running
        served = {
            name: Counter(served_bytes(str(edge.wait_ready()["metrics"])))
            for name, edge in running.edges.items()
        }
        return served, running.link.passed_bytes() if self._session.counts_bytes else (0, 0)

    def _played(self, name: str, counters: Mapping[str, Any]) -> Played:
        running, edge = self._running, self._running.edges.get(name)
        names = {"cloud": running.cloud.name, "link": running.link.process.name}
        names |= {"edge": edge.name} if edge is not None else {}
        names |= {_DEVICES: _DEVICES} if self._cloud_died_s is None else {}
        folder = self._devices[name].folder
        rows: list[RequestRow] = []
        models = Counter[str]()
        for trace in self._session.traces:
            rows += read_request_rows(folder / f"{trace.visitor}.csv")
            models.update(json.loads((folder / f"{trace.visitor}-models.json").read_text()))
        return Played(
            rows=tuple(rows),
            prefetched=WarmUp(endpoint_of(edge)).prefetched() if edge is not None else None,
            edge_sent=self._served.get(name, {}),
            models=models,
            cpu_s={tier: self._cpu_s[process] for tier, process in names.items()},
            seconds=self._seconds,
            up_bytes=self._passed[0],
            down_bytes=self._passed[1],
            link=running.link.calibration,
            counters=counters,
            cloud_died_s=self._cloud_died_s,
        )
