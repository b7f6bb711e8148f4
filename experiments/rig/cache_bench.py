"""Edges with caches of several sizes side by side, and requests to each in turn.

All are asked about the same photos, one request at a time and a few photos before it is the next one's turn:
a machine that is busy for a while slows all of them alike, and differences between sizes are not those
between photos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from nearsight.common.rpc.envelope import Hop
from nearsight.device.recognition import Recognition
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.edge_bench import EdgeBench
from nearsight.experiments.rig.warming import wait_settled

ADAPTIVE = "adaptive"
_TIMEOUT_S = 20.0
_NO_HOP = Hop(tier="", queue_ms=0.0, compute_ms=0.0, next_tier_ms=0.0, received_bytes=0, sent_bytes=0)


@dataclass(frozen=True, slots=True)
class Ask:
    """One photo, and what it shows."""

    object_id: str
    rank: int
    path: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """What one edge made of one photo.

    Attributes
    ----------
    size : str
        Which edge: its cache size, or "adaptive".
    latency_ms : float
        At the device [ms].
    recognition : Recognition
        The answer with the times of the tiers.
    """

    size: str
    latency_ms: float
    recognition: Recognition

    def hop(self, tier: str) -> Hop:
        """What a tier spent; zeros if it took no part."""
        return next((hop for hop in self.recognition.hops if hop.tier == tier), _NO_HOP)


class CacheBench(EdgeBench):
    """An edge per cache size.

    Parameters
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    objects : int
        How many it has: a cache of this size is one of everything.
    sizes : sequence of str
        "0", "5", …, "adaptive".
    edge_settings : mapping of str to str
        Of all edges, as after ``--set``.
    network : LinkShape
        As of `EdgeBench`.
    seed : int
        Of the link.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: Path,
        objects: int,
        sizes: Sequence[str],
        edge_settings: Mapping[str, str],
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

    def warm(self, requests: Sequence[tuple[str, str]]) -> None:
        """Tell every edge what was asked for before; static caches are full of the most frequent then."""
        full = {size: None if size == ADAPTIVE else int(size) for size in self.edges}
        self.teach(requests, full, timeout_s=120.0)

    def settle(self, asks: Sequence[Ask]) -> None:
        """Let the adaptive edge see the network: a few requests, and the time to act on them."""
        for ask in asks:
            self._ask(ADAPTIVE, ask)
        wait_settled(self.edges[ADAPTIVE], timeout_s=15.0)

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
        return {size: wait_settled(edge, quiet_s=0.0, timeout_s=0.0) for size, edge in self.edges.items()}

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
