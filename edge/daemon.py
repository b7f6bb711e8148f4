"""The edge daemon: creates and connects all components in one place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import ConfigurationError
from nearsight.common.inference.service import ModelsService
from nearsight.common.logging import get_logger
from nearsight.common.metrics import DaemonMetrics, Readings
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.object_cache.profile import CacheProfile
from nearsight.common.operation.explain import ExplanationService
from nearsight.common.operation.status import HealthService, format_duration
from nearsight.common.result_cache.metrics import result_cache_metrics
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.server import RpcServer
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.cloud_client import CloudClient
from nearsight.edge.device_services import (
    EdgeCatalogueService,
    EdgeNetworkIntakeService,
    PredictionService,
)
from nearsight.edge.inference.networks import EdgeNetworks
from nearsight.edge.inference.service import EdgeInferenceService
from nearsight.edge.load import LoadControl
from nearsight.edge.memory_budget import MemoryBudget
from nearsight.edge.metrics import EdgeMetrics, network_metrics
from nearsight.edge.report import explanation_of, facts_of
from nearsight.edge.service import EdgeRecognitionService
from nearsight.edge.services import CLOUD, EdgeServices, next_tiers
from nearsight.edge.settings import EdgeSettings
from nearsight.edge.snapshot_holder import SnapshotHolder
from nearsight.edge.standby.standbys import Standbys
from nearsight.edge.state_store import StateStore


class EdgeDaemon:
    """Serves devices, from adaptive recognition caches in front of the cloud.

    Parameters
    ----------
    settings : EdgeSettings
        Settings of the daemon.
    metrics : DaemonMetrics
        Registry and counters of calls.

    Raises
    ------
    ConfigurationError, NotFound, CorruptStore, MissingDependency, Overloaded
        If a setting is invalid: no cloud, an unknown backend, an unusable profile, key or state file, or a
        state file that another edge uses.
    """

    def __init__(self, settings: EdgeSettings, metrics: DaemonMetrics) -> None:
        clock = SYSTEM_CLOCK
        self._settings = settings
        if not settings.cloud:
            raise ConfigurationError(
                "the endpoint of the cloud is not set",
                advice="give --cloud tcp://HOST:PORT, or set edge.cloud",
            )
        profile = _load_profile(settings)
        SnapshotHolder(settings.recognition)  # reports an invalid backend before anything runs
        client_security = settings.security.towards(settings.cloud_public_key, setting="cloud_public_key")
        state = settings.state
        self._store = StateStore.open_or_replace(state, clock) if state is not None else None
        self._cloud = CloudClient(
            *(
                Channel(settings.cloud, client_id=settings.client_id, security=client_security, clock=clock)
                for _ in range(2)
            )
        )
        self._background = BackgroundWorker(clock)
        edge_metrics = EdgeMetrics(metrics.registry)
        parallel = min(settings.server.workers, os.cpu_count() or 1)
        self._load = LoadControl(settings.multi_user, settings.load, parallel, clock)
        self._next_tiers = next_tiers(settings.recognition.query_features)
        services = EdgeServices(
            self._cloud,
            self._background,
            edge_metrics,
            clock,
            profile,
            self._load,
            self._next_tiers,
            self._store,
        )
        self.caches = CatalogueCaches(settings, services)
        """Recognition caches."""
        if settings.result_cache.enabled:
            metrics.registry.register(Readings(self._result_caches))
        self.networks = EdgeNetworks(
            settings.models, self._cloud, lambda: self.caches.cloud_lost, settings.poll_s, clock
        )
        """Neural networks."""
        metrics.registry.register(Readings(lambda: network_metrics(self.networks)))
        self.standbys = Standbys(settings, self.caches, services)
        """Answer requests while the cloud is unreachable."""
        self.memory = MemoryBudget(settings, self.caches, self.networks, self.standbys, services)
        """Memory that caches, networks and standbys share."""
        metrics.registry.register(Readings(self.memory.metrics))
        self._server = RpcServer(
            [
                EdgeRecognitionService(self.caches, self.networks, services, settings, self.standbys),
                EdgeInferenceService(self.networks, self._cloud, clock),
                ModelsService(
                    self.networks.repository, self.networks.memory, self.networks.takes_photos, clock
                ),
                EdgeCatalogueService(self.caches, max_response_bytes=settings.server.max_message_bytes // 2),
                EdgeNetworkIntakeService(),
                PredictionService(self.caches, self._load),
                ExplanationService(self.explanations, self._explained_networks),
                HealthService("edge", self.ready, self.details),
            ],
            tier="edge",
            settings=settings.server,
            security=settings.security.for_server(),
            clock=clock,
            metrics=metrics,
            arrived=self._load.arrived,
        )

    @property
    def endpoint(self) -> str:
        """Endpoint for devices, with the bound port."""
        return self._server.endpoint

    def start(self) -> None:
        """Start the server and the background work.

        Raises
        ------
        AddressInUse, ConfigurationError
            As in `RpcServer.start`.
        """
        try:
            self._server.start()
        except BaseException:
            self.stop(0.0)
            raise
        self._background.start()
        self.caches.start()
        self.networks.start()
        self.memory.start()
        self.standbys.start()

    def stop(self, grace_s: float) -> None:
        """Finish requests in progress within ``grace_s`` seconds, then release all resources."""
        self._server.stop(grace_s)
        self._background.stop(grace_s)
        self.networks.stop(grace_s)
        self._cloud.close()  # open requests to the cloud fail now, and standbys may process them
        self.standbys.stop(grace_s)
        if self._store is not None:
            self.caches.save()
            self._store.close()

    def ready(self) -> bool:
        """Whether the cloud is reachable, or a standby can answer in its place."""
        return not self.caches.cloud_problem or self.standbys.any_answers()

    def details(self) -> Sequence[tuple[str, str]]:
        """Lines for the status."""
        problem, outage_s = self.caches.cloud_problem, self.caches.cloud_outage_s
        if outage_s is not None:
            problem = f"unreachable for {format_duration(outage_s)}: {problem}"
        facts = [
            ("cloud", f"{self._settings.cloud}, {problem or 'reached'}"),
            ("load", self._load.why()),
            ("sent to the cloud", self._sent()),
        ]
        if self._store is not None:
            written = f"{self._store.path}, {self.caches.journal_problem or 'written'}"
            begun = f"; new, the damaged file is {self._store.damaged}" if self._store.damaged else ""
            facts.append(("state", written + begun))
        facts += [*self.networks.facts(), *self.memory.facts(), *self.standbys.facts()]
        for cache in self.caches.all():
            known = facts_of(cache, self.standbys.size(cache.name))
            facts += [(f"{cache.name}: {name}", value) for name, value in known.items()]
        return facts

    def explanations(self) -> tuple[Explanation, ...]:
        """Last decision of every cache that made one."""
        load = self._load.why()
        explained = [
            explanation_of(cache, load, self.memory.why(cache.name), self.standbys)
            for cache in self.caches.all()
        ]
        return tuple(one for one in explained if one is not None)

    def _explained_networks(self) -> Sequence[tuple[str, str]]:
        """Of each network: its name; where it is, who answers requests, and the memory of all networks."""
        memory = self.memory.why()
        return [(name, f"{why}; all networks: {memory}") for name, why in self.networks.explanations()]

    def _result_caches(self) -> Iterator[Metric]:
        """Metrics of the result caches."""
        caches = self.caches.all()
        yield from result_cache_metrics(
            {cache.name: cache.result.state for cache in caches if cache.result is not None}
        )

    def _sent(self) -> str:
        """Last choice of a form, in one line, as text for the user."""
        if self._settings.forward != "auto":
            return f"always {self._settings.forward}"
        return self._next_tiers.why().get(CLOUD, "nothing sent yet")


def _load_profile(settings: EdgeSettings) -> CacheProfile | None:
    if settings.cache.profile is None:
        return None
    profile = CacheProfile.load(settings.cache.profile)
    measured, ours = ((used.backend, used.query_features) for used in (profile, settings.recognition))
    if measured != ours:
        # Usable, because measured lookups correct it. But its recall was measured with other settings.
        get_logger("edge").warning(
            "the profile was measured with other settings", measured=measured, in_use=ours
        )
    return profile
