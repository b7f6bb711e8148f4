"""Cloud, shaped link and edges as processes: the tiers before which demo, figures and benches put devices.

Ports are picked by the kernel and announced by the daemons. The person's own settings (file, environment) do
not reach these daemons: they get all settings on their command lines.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nearsight.cloud.settings import CloudSettings
from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.ingestion import ingest_folder
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import ObjectTrainer
from nearsight.common.errors import InternalError, Unavailable
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.experiments.links.link import UNSHAPED, LinkShape
from nearsight.experiments.links.shaper import ShaperOrder, write_json
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup, termination_as_interrupt
from nearsight.experiments.rig.warming import WarmUp

CATALOGUE = "museum"
START_TIMEOUT_S = 90.0
NO_STANDBY = {"standby_mb": 0}
"""Figures are about caches, whose models alone are to pass the link."""
_COUNT_TIMEOUT_S, _COUNT_POLL_S = 15.0, 0.05
_METRICS_TIMEOUT_S = 10.0
_SENT_BYTES = "nearsight_sent_bytes"


def assignments(settings: Mapping[str, object]) -> list[str]:
    """Settings as arguments of a daemon."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={_text(value)}")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def empty_config(group: ProcessGroup) -> str:
    """A configuration file for the processes of a group, instead of the person's own."""
    path = group.folder / "nearsight.toml"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# empty: these processes get all settings on their command lines\n")
    return str(path)


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


@dataclass(frozen=True, slots=True)
class RunningLink:
    """A shaped link that stands before a server."""

    process: ManagedProcess
    """The shaper."""
    endpoint: str
    """Endpoint at which clients reach the server through the link."""
    calibration: Mapping[str, Any]
    """The shape that was asked for, the measured one, and the errors."""
    shape_path: Path
    stats_path: Path
    """Files in which the shaper finds another shape, and writes its counters."""

    @classmethod
    def started(cls, group: ProcessGroup, server: str, shape: LinkShape, *, seed: int) -> RunningLink:
        """Start a link before a server, and wait until it has calibrated itself."""
        stats, control = group.folder / "link-counters.json", group.folder / "link-shape.json"
        order = ShaperOrder(server, shape, stats=str(stats), seed=seed, control=str(control))
        process = group.start("link", order.arguments())
        calibration = process.wait_ready(START_TIMEOUT_S).get("calibration")
        if not isinstance(calibration, dict):
            raise InternalError("the link did not say how it was calibrated")
        return cls(process, endpoint_of(process), calibration, control, stats)

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

    def stop(self) -> dict[str, Any]:
        """Stop the link and return its final counters."""
        self.process.stop()
        counters: dict[str, Any] = json.loads(self.stats_path.read_text())
        return counters


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running cloud, the link to it, and edges behind the link."""

    group: ProcessGroup
    """Their processes."""
    cloud: ManagedProcess
    """The cloud."""
    link: RunningLink
    """The link to it; its endpoint is the cloud for everybody else."""
    edges: Mapping[str, ManagedProcess]
    """By name."""

    @property
    def daemons(self) -> Sequence[ManagedProcess]:
        """All, the link included."""
        return (self.cloud, self.link.process, *self.edges.values())

    def tiers(self, edge: str) -> dict[str, str]:
        """A device's settings for the edge of this name, if there is such an edge, and the cloud."""
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
            What visitors looked at before, in the order of time.
        objects : mapping of str to int or None
            By edge, the objects that each must hold in the end; None: whatever it chooses.
        with_models : bool
            Let them fetch all object models first; see `WarmUp.admit`.
        timeout_s : float
            For each.

        Raises
        ------
        SetupError
            If an edge does not come to hold its objects.
        """
        edges = {name: WarmUp(endpoint_of(self.edges[name])) for name in objects}
        for edge in edges.values():
            edge.admit(with_models=with_models)
            edge.report(requests)
        with ThreadPoolExecutor(max_workers=max(1, len(edges))) as pool:
            waits = [
                pool.submit(edge.wait_settled, objects=objects[name], timeout_s=timeout_s)
                for name, edge in edges.items()
            ]
        for wait in waits:
            wait.result()


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
    """Start cloud, link and edges, for a ``with`` block, in which SIGTERM and SIGHUP are as Ctrl-C.

    Parameters
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    edges : mapping of str to mapping
        Settings of each edge by its name, as after ``--set``; the process of edge NAME is "edge-NAME", that
        of the edge without a name "edge".
    network : LinkShape
        To the cloud.
    seed : int
        Of the link.
    opened : bool
        The link holds nothing up before `RunningLink.reshape`, so that tiers start and warm up quickly. It
        is calibrated with its shape all the same: from no delay no overhead can be taken off.

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
        yield Deployment(group, cloud, link, started)


def start_daemon(group: ProcessGroup, tier: str, name: str, settings: Mapping[str, object]) -> ManagedProcess:
    """Start a daemon under a name, on a free port of loopback, with settings as after ``--set``."""
    given = {"server.listen": "tcp://127.0.0.1:0", **settings}
    return group.start(name, tier_arguments(tier, empty_config(group), given))


def tier_arguments(tier: str, config: str, settings: Mapping[str, object]) -> list[str]:
    """The command of a tier's daemon with settings as after ``--set``, and an empty file of them."""
    given = {"metrics_listen": "", **settings}
    return ["-m", "nearsight", tier, "--config", config, *assignments(given)]


def served_bytes(metrics: str) -> dict[str, int]:
    """Bytes of a daemon's responses since its start, by ``Service.Method``; as `metric_samples`."""
    return {
        f"{sample.labels['service'].rpartition('.')[2]}.{sample.labels['method']}": int(sample.value)
        for sample in metric_samples(metrics)
        if sample.name == f"{_SENT_BYTES}_total"
    }


def metric_samples(metrics: str) -> list[Sample]:
    """What a daemon counts now.

    Parameters
    ----------
    metrics : str
        ``host:port``, as the daemon announced; empty if it serves none.

    Raises
    ------
    Unavailable
        If it does not answer.
    """
    if not metrics:
        return []
    try:
        # Without a proxy, whatever the person's environment says: it is a daemon of this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{metrics}/metrics", timeout=_METRICS_TIMEOUT_S) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError) as error:
        raise Unavailable(f"no metrics from {metrics}: {error}") from error
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def teach_catalogue(
    museum: Path, database: Path, *, threads: int, progress: Callable[[int, int], None]
) -> None:
    """Learn all exhibits of a museum, as ``nearsight cloud ingest`` does; known ones are passed over.

    Raises
    ------
    InternalError
        If an exhibit could not be learnt.
    """
    pin_threads()
    settings = CloudSettings(database=database)
    trainer = ObjectTrainer(settings.recognition)
    with (
        CatalogueStore(database, create=True) as store,
        closing(DatabaseCatalogue(store, CATALOGUE, trainer)) as catalogue,
    ):
        report = ingest_folder(museum, catalogue, threads=threads, progress=progress)
    if report.interrupted:
        raise KeyboardInterrupt
    if report.rejected:
        raise InternalError(
            f"{len(report.rejected)} of {report.total} exhibits could not be learnt; "
            f"{report.problems[0].object_id}: {report.problems[0].reason}"
        )
