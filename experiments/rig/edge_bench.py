"""Edges with caches of different sizes side by side: one cloud, one link, and a device before each edge.

All edges stand behind the same link. They fetch nothing ahead and do not ask the cloud for news, so that what
they do follows from what they are asked. All are asked about the same photos, one request at a time and a few
photos before it is the next one's turn. A machine that is busy for a while slows all of them alike, and
differences between sizes are not those between photos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.replay import NO_HOP
from nearsight.experiments.rig.tiers import CATALOGUE, Deployment, deployed, endpoint_of
from nearsight.experiments.rig.warming import WarmUp

ADAPTIVE = "adaptive"
FIXED = MappingProxyType({"poll_s": "3600", "prefetch.objects": "0"})
"""Settings of edges that fetch nothing ahead and do not ask the cloud for news."""
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One photo, and what it shows."""

    object_id: str
    rank: int
    path: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one edge to one photo."""

    size: str
    """Which edge: its cache size, or "adaptive"."""
    latency_ms: float
    """At the device [ms]."""
    recognition: Recognition
    """The answer with the times of the tiers."""

    def hop(self, tier: str) -> Hop:
        """Times of a tier; zeros if it took no part."""
        return next((hop for hop in self.recognition.hops if hop.tier == tier), NO_HOP)


@dataclass(frozen=True, slots=True)
class CacheBench:
    """An edge per cache size, and a device before each; see `cache_bench`."""

    running: Deployment
    """Cloud, link and edges."""
    devices: Mapping[str, Recognizer]
    """One per edge, by its cache size."""

    def fill(self, requests: Sequence[tuple[str, str]]) -> None:
        """Tell every edge what was asked for before; static caches are full of the most frequent then."""
        held = {size: None if size == ADAPTIVE else int(size) for size in self.devices}
        self.running.warm_up(requests, held, with_models=True, timeout_s=120.0)

    def settle(self, asks: Sequence[Ask]) -> None:
        """Let the adaptive edge see the network: a few requests, and the time to act on them."""
        for ask in asks:
            self._ask(ADAPTIVE, ask)
        WarmUp(endpoint_of(self.running.edges[ADAPTIVE])).wait_settled(timeout_s=15.0)

    def ask_all(self, asks: Sequence[Ask], turn: int) -> list[tuple[Ask, Answer]]:
        """Show photos to every edge, all to one before the next; ``turn`` changes the order of the edges.

        An edge that was asked a moment ago finds its index in the processor's caches.
        """
        sizes = tuple(self.devices)
        turn %= len(sizes)
        order = (*sizes[turn:], *sizes[:turn])
        return [(ask, self._ask(size, ask)) for size in order for ask in asks]

    def cached(self) -> dict[str, int]:
        """Objects in each cache now."""
        return {
            size: WarmUp(endpoint_of(edge)).wait_settled(quiet_s=0.0, timeout_s=0.0)
            for size, edge in self.running.edges.items()
        }

    def _ask(self, size: str, ask: Ask) -> Answer:
        photo = ask.path.read_bytes()
        started_s = perf_counter()
        recognition = self.devices[size].recognize_blocking(photo)
        return Answer(size, (perf_counter() - started_s) * 1e3, recognition)


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
        As of `deployed`.
    objects : int
        How many the catalogue has: a cache of this size is one of everything.
    sizes : sequence of str
        "0", "5", …, "adaptive".
    edge_settings : mapping of str to object
        Of all edges, as after ``--set``.

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
        yield CacheBench(running, devices)


def policy_settings(size: str, objects: int) -> dict[str, str]:
    """The settings of an edge whose cache has this size, in a catalogue of so many objects."""
    if size == ADAPTIVE:
        return {}
    if size == "0":
        return {"cache.policy": "none"}
    if int(size) >= objects:
        return {"cache.policy": "everything"}
    return {"cache.policy": "lfu", "cache.fixed_size": size}
