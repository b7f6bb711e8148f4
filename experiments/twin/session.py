"""A run of the twin: one configuration, with the traces of the testbed; the rows are those of a replay.

Configurations are the five of section 6.2.3, and devices that share their models. As on the testbed, they
differ in the settings of edge and devices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nearsight.common.rpc.settings import ServerSettings
from nearsight.device.engine import DEVICE
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.edge.service import EDGE
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.rig.replay import Ledger
from nearsight.experiments.rig.session import Played
from nearsight.experiments.rig.warming import CacheState
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cloud import CLOUD, TwinCloud, TwinCloudClient
from nearsight.experiments.twin.cost_model import CostModel, Costs, Hardware
from nearsight.experiments.twin.device import TwinDevice
from nearsight.experiments.twin.edge import TwinEdge
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.link import TierAccess, TwinLink, tier_over_link
from nearsight.experiments.twin.neighbourhood import TwinNeighbourhood
from nearsight.experiments.twin.photos import TwinPhoto, twin_model
from nearsight.experiments.twin.processor import Cores, Processor

ONLY_CLOUD = "only-cloud"
EDGE_CACHE = "edge-cache"
LOAD_BALANCED = "load-balanced"
BOUNDED = "bounded"
PREFETCHING = "prefetching"
ADAPTIVE = "prefetching-adaptive"
COOPERATIVE = "cooperative"

_SETTLED_S, _POLL_S = 60.0, 0.25
_DEVICE_START_S = 0.57
"""CPU time until a device's process is ready [s]; measured, 0.52 to 0.59 s, where all tiers share a machine.
"""


@dataclass(frozen=True, slots=True)
class TwinTiers:
    """One configuration."""

    edge: EdgeSettings | None
    """Settings of the edge; None: devices send requests to the cloud directly."""
    device: RecognizerSettings
    features: tuple[int, ...] = ()
    """Numbers of features that devices choose from; empty: all of their profile."""


_WITHOUT_PREFETCH = RecognizerSettings(prefetch=PrefetchSettings(enabled=False))
_WITH_PREFETCH = RecognizerSettings()
_COOPERATES = RecognizerSettings(peers=PeerSettings(enabled=True))

CONFIGURATIONS: Mapping[str, TwinTiers] = {
    ONLY_CLOUD: TwinTiers(None, _WITHOUT_PREFETCH),
    EDGE_CACHE: TwinTiers(EdgeSettings(), _WITHOUT_PREFETCH),
    LOAD_BALANCED: TwinTiers(EdgeSettings(multi_user="load-balanced"), _WITHOUT_PREFETCH),
    BOUNDED: TwinTiers(EdgeSettings(multi_user="bounded"), _WITHOUT_PREFETCH),
    PREFETCHING: TwinTiers(EdgeSettings(multi_user="bounded"), _WITH_PREFETCH, (600,)),
    ADAPTIVE: TwinTiers(EdgeSettings(multi_user="bounded"), _WITH_PREFETCH),
    COOPERATIVE: TwinTiers(EdgeSettings(multi_user="bounded"), _COOPERATES),
}
"""Section 6.2.3, an edge without control of its load, and devices that share their models (5.4)."""


@dataclass(frozen=True, slots=True)
class TwinVisitor:
    """The photos of one device."""

    name: str
    plan: Sequence[tuple[PlannedPhoto, TwinPhoto]]
    """Photos in the order of time."""
    edge: int = 0
    """Index of the visitor's edge."""


@dataclass(frozen=True, slots=True)
class TwinOutcome(Played):
    """Results of a run; CPU time and bytes are counted until the end of the session."""

    cached_objects: tuple[int, ...] = ()
    """Number of objects in each edge's cache at the end."""
    events: int = 0
    """Number of simulated actions."""


@dataclass(frozen=True, slots=True)
class TwinSession:
    """The settings that all configurations share."""

    object_ids: Sequence[str]
    """The cloud's catalogue."""
    visitors: Sequence[TwinVisitor]
    costs: CostModel
    network: LinkShape
    """Shape of the link between building and cloud."""
    transitions: Sequence[tuple[str, str]] = ()
    """Requests of earlier visitors as (visitor, object), for the warm-up of edges."""
    hardware: Hardware = field(default_factory=Hardware)
    edges: int = 1
    """Number of edges, each with its own link to the cloud."""
    seed: int = 1
    """Seed of computing times."""
    timeout_s: float = 5.0
    """Deadline of each request [s]."""
    queue_timeout_s: float = 2.0
    """Longest time for which requests wait at edge and cloud [s]."""
    seconds: float = 0.0
    """Length of the session [s], until which CPU time and bytes are counted; requests in flight then still
    get their answers. 0: until the last photo is due."""

    def play(
        self, name: str, tiers: TwinTiers | None = None, on_second: Callable[[float], object] | None = None
    ) -> TwinOutcome:
        """Run one configuration.

        Parameters
        ----------
        name : str
            Copied into rows.
        tiers : TwinTiers, optional
            The configuration; by default the one with this name in `CONFIGURATIONS`.
        on_second : callable, optional
            Called once per virtual second with the time since the start of the replay [s], first with 0.
        """
        return _Run(self, name, tiers or CONFIGURATIONS[name]).play(on_second or (lambda _second: None))


class _Run:
    """One configuration of one session."""

    def __init__(self, session: TwinSession, name: str, tiers: TwinTiers) -> None:
        self._session = session
        self._name = name
        self._tiers = tiers
        self._events = EventQueue()
        self._rng = np.random.default_rng([session.seed, 7])
        model = session.costs
        if tiers.features:
            kept = [one for one in model.device.profiles if one.query_features in tiers.features]
            model = model.model_copy(
                update={"device": model.device.model_copy(update={"profiles": tuple(kept)})}
            )
        self._costs = Costs(model, len(session.object_ids), self._rng)
        hardware = session.hardware
        self._machine = Cores(self._events, hardware.shared) if hardware.shared else None
        models = {name: twin_model(name, model.model_features) for name in session.object_ids}
        self._cloud = TwinCloud(
            self._processor(hardware.cloud, hardware.cloud_slowness),
            models,
            self._costs,
            ServerSettings(
                workers=hardware.shared or hardware.cloud, queue_timeout_s=session.queue_timeout_s
            ),
        )
        self._links = [TwinLink(self._events, UNSHAPED, self._rng) for _ in range(session.edges)]
        self._edges = self._make_edges()
        peers = self._tiers.device.peers
        self._neighbours = [TwinNeighbourhood(models, peers) for _ in self._edges] if peers.enabled else []
        self._devices = [self._device(visitor) for visitor in session.visitors]

    def _processor(self, cores: int, slowness: float) -> Processor:
        return Processor(
            self._events,
            cores if self._machine is None else self._machine,
            slowness,
            self._session.hardware.pace,
        )

    def _make_edges(self) -> list[TwinEdge]:
        settings = self._tiers.edge
        if settings is None:
            return []
        hardware = self._session.hardware
        waits = {"queue_timeout_s": self._session.queue_timeout_s}
        settings = settings.model_copy(update={"server": settings.server.model_copy(update=waits)})
        way_s = hardware.pace * self._costs.one_way_s(hardware.edge_slowness, hardware.cloud_slowness)
        return [
            TwinEdge(
                self._processor(hardware.edge, hardware.edge_slowness),
                TwinCloudClient(self._cloud, link, way_s, self._costs),
                self._costs,
                settings,
            )
            for link in self._links
        ]

    def _device(self, visitor: TwinVisitor) -> TwinDevice:
        session, hardware, costs = self._session, self._session.hardware, self._costs

        def asks(link: TwinLink, slowness: float, ask: TierAccess) -> TierAccess:
            way_s = hardware.pace * costs.one_way_s(hardware.device_slowness, slowness)
            return tier_over_link(link, way_s, costs, ask)

        edge = self._edges[visitor.edge] if self._edges else None
        air = TwinLink(self._events, UNSHAPED, self._rng)
        tiers: dict[str, TierAccess] = {}
        if edge is not None:
            tiers[EDGE] = asks(air, hardware.edge_slowness, partial(edge.recognize, visitor.name))
        tiers[CLOUD] = asks(self._links[visitor.edge], hardware.cloud_slowness, self._cloud.recognize)
        device = TwinDevice(
            visitor.name,
            self._processor(hardware.device, hardware.device_slowness),
            tiers,
            costs,
            self._tiers.device,
            Ledger(self._name, visitor.name),
        )
        if edge is not None and self._tiers.device.prefetch.enabled:
            neighbours = self._neighbours[visitor.edge] if self._neighbours else None
            device.prefetch(edge, air, neighbours, random.Random(f"{session.seed} {visitor.name}"))
        return device

    def play(self, on_second: Callable[[float], object]) -> TwinOutcome:
        self._warm()
        for link in self._links:
            link.reshape(self._session.network)
        start_s = self._events.now_s
        before = self._cpu()
        end_s = 0.0
        for visitor, device in zip(self._session.visitors, self._devices, strict=True):
            self._send_next(device, iter(visitor.plan), start_s)
            if visitor.plan:
                end_s = max(end_s, visitor.plan[-1][0].at_s)
        seconds = self._session.seconds or end_s
        counted_s = start_s + seconds
        last_s = max(counted_s, start_s + end_s + self._session.timeout_s + 1.0)
        on_second(0.0)
        used: dict[str, Any] = {}
        while self._events.now_s < last_s:
            second_s = min(last_s, self._events.now_s + 1.0)
            if not used and counted_s <= second_s:
                self._events.run(counted_s)
                used = self._used(before)
            self._events.run(second_s)
            on_second(self._events.now_s - start_s)
        return TwinOutcome(
            tuple(row for device in self._devices for row in device.ledger.rows()),
            prefetched=None,
            models=self._models(),
            seconds=seconds,
            cached_objects=tuple(edge.cache.size for edge in self._edges),
            events=self._events.done,
            **(used or self._used(before)),
        )

    def _used(self, before: Mapping[str, float]) -> dict[str, Any]:
        """CPU time of each tier since the replay began, and bytes to and from the cloud."""
        return {
            "cpu_s": {tier: busy - before[tier] for tier, busy in self._cpu().items()},
            "up_bytes": sum(link.up_bytes for link in self._links),
            "down_bytes": sum(link.down_bytes for link in self._links),
        }

    def _send_next(
        self, device: TwinDevice, left: Iterator[tuple[PlannedPhoto, TwinPhoto]], start_s: float
    ) -> None:
        """Send a visitor's photos when they are due; only one event is scheduled at a time."""
        found = next(left, None)
        if found is None:
            return
        planned, photo = found

        def send() -> None:
            device.recognize(planned, photo, self._session.timeout_s)
            self._send_next(device, left, start_s)

        self._events.at(start_s + planned.at_s, send)

    def _models(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for device in self._devices:
            if device.peer is not None:
                total.update(device.peer.account)
        return total

    def _warm(self) -> None:
        """Warm up edges over unshaped links until their caches have settled, then start devices."""
        if self._edges:
            warm: list[TwinEdge] = []
            for edge in self._edges:
                edge.warm_up(self._session.transitions, partial(warm.append, edge))
            self._events.run(enough=lambda: len(warm) == len(self._edges))
            self._settle()
        if self._machine is not None:
            started: list[TwinDevice] = []
            for device in self._devices:
                device.processor.run(_DEVICE_START_S, partial(started.append, device))
            self._events.run(enough=lambda: len(started) == len(self._devices))

    def _settle(self) -> None:
        """Wait until the edges' caches no longer change, as `rig.warming` does."""
        clock = self._events
        end_s, since_s, state = clock.now_s + _SETTLED_S, clock.now_s, self._caches()
        while clock.now_s < min(end_s, since_s + max(one.settles_in_s() for one in state)):
            self._events.run(clock.now_s + _POLL_S)
            before, state = state, self._caches()
            if state != before:
                since_s = clock.now_s

    def _caches(self) -> list[CacheState]:
        return [
            CacheState(
                edge.cache.size,
                edge.cache.supply.fetcher.in_flight,
                decision.k if (decision := edge.cache.optimizer.decision) is not None else 0,
            )
            for edge in self._edges
        ]

    def _cpu(self) -> dict[str, float]:
        return {
            CLOUD: self._cloud.processor.busy_s,
            EDGE: sum(edge.processor.busy_s for edge in self._edges),
            DEVICE: sum(device.processor.busy_s for device in self._devices),
        }
