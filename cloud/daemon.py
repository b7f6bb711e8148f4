"""The cloud daemon: creates, connects and runs the store, catalogues, intake and services.

Start order: the database is opened and the port is bound first, so that a damaged file or a used port is
reported at once. Then the catalogues are loaded. During this time the daemon answers health requests; other
requests receive UNAVAILABLE if their catalogue is not loaded yet. Stop order is the reverse; requests in
progress are finished first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.intake import ObjectIntake
from nearsight.cloud.network_intake import NetworkIntake
from nearsight.cloud.networks import CloudNetworks
from nearsight.cloud.service import CatalogueService, RecognitionService
from nearsight.cloud.settings import CloudSettings
from nearsight.common.catalogue.live_catalogue import IndexState
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import training_fingerprint
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import ConfigurationError
from nearsight.common.inference.metrics import model_metrics
from nearsight.common.inference.service import InferenceService, ModelsService
from nearsight.common.logging import get_logger
from nearsight.common.metrics import DaemonMetrics, Readings, labelled
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.server import RpcServer

MAX_NAMED = 10
"""Limit of damaged objects that the status lists by name."""
_METRICS: Sequence[tuple[str, str, Callable[[IndexState], float]]] = (
    ("objects", "Objects in the catalogue.", lambda state: state.objects),
    ("revision", "Revision of the catalogue.", lambda state: state.revision),
    ("indexed_revision", "Revision of the active index.", lambda state: state.indexed_revision),
    ("damaged", "Objects whose models cannot be read.", lambda state: len(state.damaged)),
    ("index_build_seconds", "Time to build the index.", lambda state: state.last_build_ms / 1e3),
)


class CloudDaemon:
    """Serves the catalogues of one database file.

    Parameters
    ----------
    settings : CloudSettings
        Settings of the daemon.
    metrics : DaemonMetrics, optional
        Counts calls; None: calls are not counted.

    Raises
    ------
    NotFound, CorruptStore, ConfigurationError
        If the database or a setting is unusable.
    """

    def __init__(self, settings: CloudSettings, metrics: DaemonMetrics | None = None) -> None:
        self._settings = settings
        self._log = get_logger("cloud")
        if settings.security.secret_key_file is not None and settings.security.allowed_clients is None:
            raise ConfigurationError(
                "security.secret_key_file is set, security.allowed_clients is not",
                advice="name the folder with the public keys of the clients that may connect",
            )
        security = settings.security.for_server()
        self._store = CatalogueStore(
            settings.database,
            create=settings.create,
            or_read_only=True,
            max_catalogues=settings.max_catalogues,
        )
        if self._store.read_only:
            self._log.warning("the database is read-only: changes are refused", why=self._store.read_only)
        self._catalogues = Catalogues(
            self._store, settings.recognition, poll_interval_s=settings.poll_interval_s, clock=SYSTEM_CLOCK
        )
        self.networks = CloudNetworks(settings.models, settings.poll_interval_s, SYSTEM_CLOCK)
        """The networks."""
        self._network_intake = NetworkIntake(self.networks, settings.models, self._store, SYSTEM_CLOCK)
        self._training = training_fingerprint(settings.recognition)
        self._intake = ObjectIntake(
            self._catalogues,
            settings.recognition,
            threads=settings.intake.threads,
            max_pending=settings.intake.max_pending,
        )
        self.server = RpcServer(
            [
                RecognitionService(self._catalogues, self.networks, settings.recognition.limits),
                InferenceService(self.networks.memory, "cloud"),
                ModelsService(
                    self.networks.repository,
                    self.networks.memory,
                    lambda name: name not in self._catalogues.by_name,
                    SYSTEM_CLOCK,
                ),
                self._network_intake,
                CatalogueService(
                    self._catalogues,
                    self._intake,
                    training=self._training,
                    max_response_bytes=settings.server.max_message_bytes // 2,
                ),
                HealthService("cloud", self.ready, self.details),
            ],
            tier="cloud",
            settings=settings.server,
            security=security,
            clock=SYSTEM_CLOCK,
            metrics=metrics,
        )
        """The server."""
        if metrics is not None:
            metrics.registry.register(Readings(lambda: _metrics_of(self._catalogues)))
            metrics.registry.register(Readings(lambda: model_metrics(self.networks.memory.state)))

    @property
    def endpoint(self) -> str:
        """Endpoint of the daemon, with the bound port. Valid once started."""
        return self.server.endpoint

    def start(self) -> None:
        """Bind the port, and load the catalogues; on return all of them are in service.

        Raises
        ------
        CorruptStore, ConfigurationError
            If the database is unusable.
        AddressInUse
            If another process uses the port.
        """
        try:
            self.server.start()
            self.networks.start()
            self._catalogues.load()
        except BaseException:
            self.stop(0.0)
            raise
        objects = sum(catalogue.state.objects for catalogue in self._catalogues.all())
        self._log.info("catalogues loaded", database=str(self._settings.database), objects=objects)
        # They were not compared with each other.
        for name, outdated in self._store.outdated(self._training).items():
            self._log.warning(
                "objects were trained by another version or with other settings: caches may confuse them",
                catalogue=name,
                objects=outdated,
                advice="ingest their images again",
            )

    def stop(self, grace_s: float) -> None:
        """Refuse new requests, finish those in progress within ``grace_s`` seconds, close the database."""
        self.server.stop(grace_s)
        self._network_intake.stop(grace_s)
        self.networks.stop(grace_s)
        self._intake.stop()
        self._catalogues.stop()
        self._store.close()

    def ready(self) -> bool:
        """Whether every catalogue of the database is in service."""
        return not self._catalogues.loading

    def details(self) -> Sequence[tuple[str, str]]:
        """Database, catalogues and the state of their indexes, as text for the status."""
        facts = [("database", str(self._settings.database))]
        if self._catalogues.loading:
            facts.append(("loading", self._catalogues.loading))
        facts += [
            (f"catalogue {catalogue.name}", _describe(catalogue.state, catalogue.recognizer.backend))
            for catalogue in self._catalogues.all()
        ]
        if self._catalogues.problem:
            facts.append(("database problem", self._catalogues.problem))
        facts += self.networks.facts()
        facts.append(("queue length", str(self.server.queue_length)))
        return facts


def _describe(state: IndexState, backend: str) -> str:
    text = f"{state.objects} objects, revision {state.revision}, index {backend}"
    if state.damaged:
        more = len(state.damaged) - MAX_NAMED
        named = ", ".join(state.damaged[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        text = f"{len(state.damaged)} DAMAGED, add them again: {named}; {text}"
    if state.problem:
        return f"{text} of revision {state.indexed_revision}: {state.problem}"
    if state.indexed_revision < state.revision:
        return f"{text} of revision {state.indexed_revision}, the next is being built"
    return f"{text} built in {state.last_build_ms:.0f} ms"


def _metrics_of(catalogues: Catalogues) -> Iterator[Metric]:
    """One gauge per entry of `_METRICS`, labelled with the catalogue."""
    states = {catalogue.name: catalogue.state for catalogue in catalogues.all()}
    for name, text, read in _METRICS:
        values = {catalogue: read(state) for catalogue, state in states.items()}
        yield labelled(GaugeMetricFamily, f"nearsight_cloud_{name}", text, "catalogue", values)
