"""Starts cloud, shaped link and edges as processes, for demo, figures and benchmarks.

The kernel picks the ports and the daemons announce them. The user's own settings (file, environment) do not
affect these daemons: they get all settings on their command lines.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nearsight.cloud.settings import CloudSettings
from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.ingestion import ingest_folder
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.errors import InternalError, Unavailable
from nearsight.common.files import write_json
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.experiments.framework.signals import termination_as_interrupt
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.shaper import ShaperSettings
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.warming import WarmUp

CATALOGUE = "museum"
START_TIMEOUT_S = 90.0
NO_STANDBY = {"standby_mb": 0}
"""Disables the standby: figures measure caches, so only models for caches may use the link."""
NO_CONFIG = os.devnull
"""Configuration file of processes that get all settings on their command lines, in place of the user's."""
_COUNT_TIMEOUT_S, _COUNT_POLL_S = 15.0, 0.05
_METRICS_TIMEOUT_S = 10.0
_SENT_BYTES = "nearsight_sent_bytes"


def assignments(settings: Mapping[str, object]) -> list[str]:
    """Settings as arguments of a daemon."""
    texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return [part for key, text in texts.items() for part in ("--set", f"{key}={text}")]


def endpoint_of(daemon: ManagedProcess) -> str:
    """Wait until a daemon serves, and return its endpoint.

    Raises
    ------
    SetupError
        If the daemon does not start; with the last lines of its log.
    """
    return str(daemon.wait_ready(START_TIMEOUT_S)["endpoint"])


@dataclass(frozen=True, slots=True)
class RunningLink:
    """A shaped link in front of a server."""

    process: ManagedProcess
    """The shaper."""
    endpoint: str
    """Endpoint at which clients reach the server through the link."""
    calibration: Mapping[str, Any]
    """The requested shape, the measured shape, and the errors."""
    shape_path: Path
    stats_path: Path
    """File from which the shaper reads a new shape, and file to which it writes its counters."""

    @classmethod
    def started(cls, group: ProcessGroup, server: str, shape: LinkShape, *, seed: int) -> RunningLink:
        """Start a link in front of a server, and wait until its calibration has finished."""
        stats, control = group.folder / "link-counters.json", group.folder / "link-shape.json"
        settings = ShaperSettings(server, shape, stats=str(stats), seed=seed, control=str(control))
        process = group.start("link", settings.arguments())
        announced = process.wait_ready(START_TIMEOUT_S)
        return cls(process, announced["endpoint"], announced["calibration"], control, stats)

    def reshape(self, shape: LinkShape) -> None:
        """Change the shape of the link without breaking connections."""
        write_json(self.shape_path, asdict(shape))
        self.process.send_signal(signal.SIGHUP)

    def passed_bytes(self) -> tuple[int, int]:
        """Bytes sent up and down so far; waits about a second for fresh counters.

        Raises
        ------
        Unavailable
            If the link writes no fresh counters in time.
        """
        asked_ns, deadline_s = time.time_ns(), time.monotonic() + _COUNT_TIMEOUT_S
        while not (self.stats_path.exists() and self.stats_path.stat().st_mtime_ns > asked_ns):
            self.process.check_alive()
            if time.monotonic() > deadline_s:
                raise Unavailable(f"{self.process.name} wrote no counters for {_COUNT_TIMEOUT_S:.0f} s")
            time.sleep(_COUNT_POLL_S)
        counters = json.loads(self.stats_path.read_text())
        return int(counters["up"]["bytes"]), int(counters["down"]["bytes"])

    def stop(self) -> dict[str, Any]:
        """Stop the link and return its final counters."""
        self.process.stop()
        counters: dict[str, Any] = json.loads(self.stats_path.read_text())
        return counters


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running cloud, the link to it, and edges behind the link."""

    cloud: ManagedProcess
    """The cloud."""
    link: RunningLink
    """The link to the cloud; edges and devices use its endpoint as the cloud's."""
    edges: Mapping[str, ManagedProcess]
    """Edges by name."""

    @property
    def daemons(self) -> Sequence[ManagedProcess]:
        """All daemons, including the link."""
        return (self.cloud, self.link.process, *self.edges.values())

    def tiers(self, edge: str) -> dict[str, str]:
        """Settings of a device: endpoints of this edge, if it exists, and of the cloud."""
        near = {"edge.endpoint": endpoint_of(self.edges[edge])} if edge in self.edges else {}
        return {**near, "cloud.endpoint": self.link.endpoint}

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by the name of the process."""
        return {daemon.name: daemon.cpu_s() for daemon in self.daemons}

    def warm_up(
        self,
        requests: Sequence[tuple[str, str]],
        objects: Mapping[str, int | None],
        *,
        with_models: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        """Warm up edges, and wait for all of them at the same time.

        Parameters
        ----------
        requests : sequence of (device, object id)
            Earlier requests, in the order of time.
        objects : mapping of str to int or None
            By edge, the number of objects that it must hold in the end; None: the number that it chooses.
        with_models : bool
            Let the edges fetch all object models first; see `WarmUp.load_catalogue`.
        timeout_s : float
            Timeout for each edge [s].

        Raises
        ------
        SetupError
            If an edge does not reach its number of objects.
        """
        edges = {name: WarmUp(endpoint_of(self.edges[name])) for name in objects}
        for edge in edges.values():
            edge.load_catalogue(with_models=with_models)
            edge.report(requests)

        def wait(name: str) -> int:
            return edges[name].wait_settled(objects=objects[name], timeout_s=timeout_s)

        with ThreadPoolExecutor(max_workers=max(1, len(edges))) as pool:
            list(pool.map(wait, edges))


@contextmanager
def deployed(
    folder: Path,
    *,
    database: Path,
    edges: Mapping[str, Mapping[str, object]],
    network: LinkShape,
    seed: int,
    opened: bool = True,
) -> Iterator[Deployment]:
    """Start cloud, link and edges, for a ``with`` block in which SIGTERM and SIGHUP act like Ctrl-C.

    Parameters
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    edges : mapping of str to mapping
        Settings of each edge by its name, as after ``--set``. The process of edge NAME is called "edge-NAME";
        an empty name gives "edge".
    network : LinkShape
        Shape of the link to the cloud.
    seed : int
        Seed of the link.
    opened : bool
        Whether the link is unshaped until `RunningLink.reshape`, so that tiers start and warm up quickly. The
        link is still calibrated with its shape, because the overhead cannot be subtracted from a delay of
        zero.

    Raises
    ------
    SetupError
        If a daemon does not start; with the last lines of its log.
    """
    with termination_as_interrupt(), ExitStack() as stack:
        group = stack.enter_context(ProcessGroup(folder))
        cloud = start_daemon(group, "cloud", "cloud", {"database": str(database)})
        link = RunningLink.started(group, endpoint_of(cloud), network, seed=seed)
        if opened:
            link.reshape(UNSHAPED)
        started = {
            name: start_daemon(
                group, "edge", f"edge-{name}".rstrip("-"), {"cloud": link.endpoint, **NO_STANDBY, **settings}
            )
            for name, settings in edges.items()
        }
        yield Deployment(cloud, link, started)


def start_daemon(group: ProcessGroup, tier: str, name: str, settings: Mapping[str, object]) -> ManagedProcess:
    """Start a daemon under this name, on a free loopback port, with settings as after ``--set``."""
    given = {"server.listen": "tcp://127.0.0.1:0", **settings}
    return group.start(name, tier_arguments(tier, given))


def tier_arguments(tier: str, settings: Mapping[str, object]) -> list[str]:
    """Arguments that start a tier's daemon with settings as after ``--set``, and no others."""
    given = {"metrics_listen": "", **settings}
    return ["-m", "nearsight", tier, "--config", NO_CONFIG, *assignments(given)]


def served_bytes(metrics: str) -> dict[str, int]:
    """Bytes of a daemon's responses since its start, by ``Service.Method``; see `metric_samples`."""
    return {
        f"{sample.labels['service'].rpartition('.')[2]}.{sample.labels['method']}": int(sample.value)
        for sample in metric_samples(metrics)
        if sample.name == f"{_SENT_BYTES}_total"
    }


def metric_samples(metrics: str) -> list[Sample]:
    """Current metrics of a daemon.

    Parameters
    ----------
    metrics : str
        ``host:port``, as the daemon announced; empty if it serves none.

    Raises
    ------
    Unavailable
        If the daemon does not answer.
    """
    if not metrics:
        return []
    try:
        # Uses no proxy, whatever the user's environment says: the daemon runs on this machine.
        with closing(HTTPConnection(metrics, timeout=_METRICS_TIMEOUT_S)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode()
    except (OSError, HTTPException) as error:
        raise Unavailable(f"no metrics from {metrics}: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise Unavailable(f"no metrics from {metrics}: {answer.status} {answer.reason}")
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def fill_catalogue(
    museum: Path, database: Path, progress: Callable[[int, int], None] = lambda _done, _of: None
) -> None:
    """Add all exhibits of a museum to the catalogue, as ``nearsight cloud ingest`` does; skips known ones.

    Raises
    ------
    InternalError
        If an exhibit was rejected.
    """
    pin_threads()
    with (
        CatalogueStore(database, create=True) as store,
        closing(DatabaseCatalogue(store, CATALOGUE, CloudSettings().recognition)) as catalogue,
    ):
        report = ingest_folder(museum, catalogue, threads=os.cpu_count() or 1, progress=progress)
    if report.interrupted:
        raise KeyboardInterrupt
    if report.rejected:
        raise InternalError(
            f"{len(report.rejected)} of {report.total} exhibits were rejected; "
            f"{report.problems[0].object_id}: {report.problems[0].reason}"
        )
