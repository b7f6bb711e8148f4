"""Compares edges with caches of different sizes: one cloud, one link, and one device per edge.

All edges are behind the same link. They do not prefetch and do not poll the cloud, so their behaviour depends
only on the requests. All edges get the same photos, one request at a time. A few photos go to one edge before
the next edge gets them, so background load on the machine affects all cache sizes alike. Differences between
the sizes are therefore not caused by differences between photos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.tiers import CATALOGUE, Deployment, deployed, endpoint_of
from nearsight.experiments.rig.warming import WarmUp

ADAPTIVE = "adaptive"
FIXED = MappingProxyType({"poll_s": "3600", "prefetch.objects": "0"})
"""Settings of edges that do not prefetch and do not poll the cloud."""
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One photo and the object that it shows."""

    object_id: str
    rank: int
    path: Path


@dataclass(frozen=True, slots=True)
class BenchAnswer:
    """The answer of one edge to one photo."""

    size: str
    """The edge, named by its cache size, or "adaptive"."""
    request: BenchRequest
    """The photo."""
    latency_ms: float
    """Latency at the device [ms]."""
    recognition: Recognition
    """The answer, with the times of the tiers."""


@dataclass(frozen=True, slots=True)
class CacheBench:
    """One edge per cache size and one device per edge; see `cache_bench`."""

    running: Deployment
    """Cloud, link and edges."""
    devices: Mapping[str, Recognizer]
    """One device per edge, by the edge's cache size."""
    objects: int
    """Number of objects in the catalogue."""

    def warm_up(self, requests: Sequence[tuple[str, str]]) -> None:
        """Report earlier requests to every edge; static caches then hold the most frequent objects."""
        held = {size: None if size == ADAPTIVE else min(int(size), self.objects) for size in self.devices}
        self.running.warm_up(requests, held, with_models=True, timeout_s=120.0)

    def settle(self, requests: Sequence[BenchRequest]) -> None:
        """Let the adaptive edge measure the network with a few requests, and wait until its cache settles."""
        for request in requests:
            self._send(ADAPTIVE, request)
        WarmUp(endpoint_of(self.running.edges[ADAPTIVE])).wait_settled(timeout_s=15.0)

    def send_all(self, requests: Sequence[BenchRequest], turn: int) -> list[BenchAnswer]:
        """Send photos to every edge, all of them to one edge before the next.

        ``turn`` rotates the order of the edges. Consecutive requests to one edge find its index in the CPU
        caches.
        """
        sizes = tuple(self.devices)
        turn %= len(sizes)
        order = (*sizes[turn:], *sizes[:turn])
        return [self._send(size, request) for size in order for request in requests]

    def cached(self) -> dict[str, int]:
        """Number of objects in each cache now."""
        return {size: WarmUp(endpoint_of(edge)).state().cached for size, edge in self.running.edges.items()}

    def _send(self, size: str, request: BenchRequest) -> BenchAnswer:
        photo = request.path.read_bytes()
        started_s = perf_counter()
        recognition = self.devices[size].recognize_blocking(photo)
        return BenchAnswer(size, request, (perf_counter() - started_s) * 1e3, recognition)


@contextmanager
def cache_bench(
    folder: Path,
    *,
    database: Path,
    objects: int,
    sizes: Sequence[str],
    edge_settings: Mapping[str, object],
    network: LinkShape,
    seed: int,
) -> Iterator[CacheBench]:
    """Start a `CacheBench`, for a ``with`` block.

    Parameters
    ----------
    folder, database, network, seed
        As in `deployed`.
    objects : int
        Number of objects in the catalogue. A cache of at least this size holds the whole catalogue.
    sizes : sequence of str
        Cache sizes: "0", "5", …, "adaptive".
    edge_settings : mapping of str to object
        Settings of all edges, as after ``--set``.

    Raises
    ------
    SetupError
        If a daemon does not start.
    """
    edges = {size: {**FIXED, **edge_settings, **policy_settings(size, objects)} for size in sizes}
    settings = RecognizerSettings(timeout_s=_TIMEOUT_S, prefetch=PrefetchSettings(enabled=False))
    with (
        deployed(folder, database=database, edges=edges, network=network, seed=seed) as running,
        ExitStack() as opened,
    ):
        devices = {
            size: opened.enter_context(Recognizer(endpoint_of(edge), None, CATALOGUE, settings=settings))
            for size, edge in running.edges.items()
        }
        yield CacheBench(running, devices, objects)


def policy_settings(size: str, objects: int) -> dict[str, str]:
    """Settings of an edge with this cache size, for a catalogue of ``objects`` objects."""
    if size == ADAPTIVE:
        return {}
    if size == "0":
        return {"cache.policy": "none"}
    if int(size) >= objects:
        return {"cache.policy": "everything"}
    return {"cache.policy": "lfu", "cache.fixed_size": size}
