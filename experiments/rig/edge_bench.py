"""Edges side by side as processes: one cloud, one link to it, and a device of this process before each edge.

All edges stand behind the same link. They fetch nothing ahead and do not ask the cloud for news, so that what
they do follows from what they are asked. `CacheBench` compares sizes of caches. All its edges are asked about
the same photos, one request at a time and a few photos before it is the next one's turn. A machine that is
busy for a while slows all of them alike, and differences between sizes are not those between photos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.replay import NO_HOP
from nearsight.experiments.rig.tiers import CATALOGUE, deployed, endpoint_of
from nearsight.experiments.rig.warming import WarmUp

ADAPTIVE = "adaptive"
_COMMON = {"poll_s": "3600", "prefetch.objects": "0"}
_TIMEOUT_S = 20.0


class EdgeBench:
    """Cloud, link and edges for a ``with`` block.

    Parameters
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    edges : mapping of str to mapping
        Settings of each edge by its name, as after ``--set``.
    device : RecognizerSettings
        Of the devices.
    network : LinkShape
        Of the first `reshape`, with which the link is calibrated; before, nothing holds messages up.
    seed : int
        Of the link.

    Attributes
    ----------
    edges : dict of str to str
        Endpoints.
    devices : dict of str to Recognizer
        One per edge.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: Path,
        edges: Mapping[str, Mapping[str, object]],
        device: RecognizerSettings,
        network: LinkShape,
        seed: int,
    ) -> None:
        settings = {name: {**_COMMON, **own} for name, own in edges.items()}
        self._tiers = deployed(folder, database=database, edges=settings, network=network, seed=seed)
        self._device = device
        self._open = ExitStack()
        self.edges: dict[str, str] = {}
        self.devices: dict[str, Recognizer] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._running = undo.enter_context(self._tiers)
            for name, daemon in self._running.edges.items():
                self.edges[name] = endpoint_of(daemon)
                device = Recognizer(self.edges[name], None, CATALOGUE, settings=self._device)
                undo.callback(device.close)
                self.devices[name] = device
            self._open = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def warm_up(
        self, requests: Sequence[tuple[str, str]], objects: Mapping[str, int], *, timeout_s: float
    ) -> None:
        """Tell every edge what was asked for before; wait until it holds the objects that are said, if any.

        Raises
        ------
        SetupError
            If an edge does not come to hold them.
        """
        expected = {name: objects.get(name) for name in self.edges}
        self._running.warm_up(requests, expected, with_models=True, timeout_s=timeout_s)

    def reshape(self, shape: LinkShape) -> None:
        """Another network between the edges and the cloud."""
        self._running.link.reshape(shape)


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


class CacheBench(EdgeBench):
    """An edge per cache size.

    Parameters
    ----------
    folder, database, network, seed
        As of `EdgeBench`.
    objects : int
        How many the catalogue has: a cache of this size is one of everything.
    sizes : sequence of str
        "0", "5", …, "adaptive".
    edge_settings : mapping of str to object
        Of all edges, as after ``--set``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: Path,
        objects: int,
        sizes: Sequence[str],
        edge_settings: Mapping[str, object],
        network: LinkShape,
        seed: int,
    ) -> None:
        super().__init__(
            folder,
            database=database,
            edges={size: {**edge_settings, **policy_settings(size, objects)} for size in sizes},
            device=RecognizerSettings(timeout_s=_TIMEOUT_S, prefetch=PrefetchSettings(enabled=False)),
            network=network,
            seed=seed,
        )

    def fill(self, requests: Sequence[tuple[str, str]]) -> None:
        """Tell every edge what was asked for before; static caches are full of the most frequent then."""
        full = {size: int(size) for size in self.edges if size != ADAPTIVE}
        self.warm_up(requests, full, timeout_s=120.0)

    def settle(self, asks: Sequence[Ask]) -> None:
        """Let the adaptive edge see the network: a few requests, and the time to act on them."""
        for ask in asks:
            self._ask(ADAPTIVE, ask)
        WarmUp(self.edges[ADAPTIVE]).wait_settled(timeout_s=15.0)

    def ask_all(self, asks: Sequence[Ask], turn: int) -> list[tuple[Ask, Answer]]:
        """Show photos to every edge, all to one before the next; ``turn`` changes the order of the edges.

        An edge that was asked a moment ago finds its index in the processor's caches.
        """
        sizes = tuple(self.edges)
        turn %= len(sizes)
        order = (*sizes[turn:], *sizes[:turn])
        return [(ask, self._ask(size, ask)) for size in order for ask in asks]

    def cached(self) -> dict[str, int]:
        """Objects in each cache now."""
        return {
            size: WarmUp(edge).wait_settled(quiet_s=0.0, timeout_s=0.0) for size, edge in self.edges.items()
        }

    def _ask(self, size: str, ask: Ask) -> Answer:
        photo = ask.path.read_bytes()
        started_s = perf_counter()
        recognition = self.devices[size].recognize_blocking(photo)
        return Answer(size, (perf_counter() - started_s) * 1e3, recognition)


def policy_settings(size: str, objects: int) -> dict[str, str]:
    """The settings of an edge whose cache has this size, in a catalogue of so many objects."""
    if size == ADAPTIVE:
        return {}
    if size == "0":
        return {"cache.policy": "none"}
    if int(size) >= objects:
        return {"cache.policy": "everything"}
    return {"cache.policy": "lfu", "cache.fixed_size": size}
