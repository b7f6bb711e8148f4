"""Figure 3.2: latency and hit ratio of an edge cache over its size (dissertation, 3.2).

Requests for 400 objects follow Zipf's law with exponent 0.8, one at a time. Static caches are full of the
most frequent objects; the adaptive edge has heard the same earlier requests and chooses by itself. All are
real daemons behind one shaped link; the paper's network first, then those of table 6.3. With the paper's
classifier (LSH of FLANN) a large cache takes longer to search than it saves; our default hardly grows with
its size.

A cell is one repetition of one classifier: daemons started anew, warmed over a link without limits, then
measured in one network after the other. The offline analysis that the adaptive edge rests on is made before.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearsight.experiments.framework.drawing import Picture
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Target,
)
from nearsight.experiments.framework.numbers import median_and_range, median_in_words
from nearsight.experiments.links.link import FIGURE_3_2, TABLE_6_3
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.edge_bench import ADAPTIVE, Answer, Ask, CacheBench
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.rig.tiers import teach_catalogue
from nearsight.experiments.studies.cachier.edge_profile import EdgeProfiles, ProfileAmount
from nearsight.experiments.studies.cachier.museums import MUSEUM, SMOKE_MUSEUM, dataset_of, museum_folder
from nearsight.experiments.studies.cachier.zipf import systematic_ranks, zipf_shares
from nearsight.experiments.traces.plan import photos_by_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearsight.experiments.datasets.dataset import Dataset

LSH, OURS = "flann-lsh", "auto"
BACKENDS = (LSH, OURS)
PIPELINES: Mapping[str, Mapping[str, str | bool]] = {
    LSH: {"backend": LSH, "early_stop": False},
    OURS: {"backend": OURS},
}
"""The paper's searches with all features of a photo, whether its object is in the cache or not."""
PAPER = "figure 3.2"
NETWORKS = {PAPER: FIGURE_3_2, **TABLE_6_3}
EXPONENT = 0.8
WITHIN = 0.05
"""How much worse than the best static size the adaptive edge may be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    museum : MuseumSettings
        The catalogue and its photos.
    sizes : tuple of int
        Static caches.
    repetitions : int
        Of everything, with daemons started anew.
    earlier : int
        Requests that all edges have heard of before.
    networks : tuple of str
        Of `NETWORKS`.
    settling, rehearsed : int
        Requests per network: to the adaptive edge so that it sees the network, and to each edge before it is
        measured.
    photos : mapping of str to int
        Measured requests per network and edge, by backend: of fast lookups noise is a larger part.
    profile : ProfileAmount
        The offline analysis.
    """

    museum: MuseumSettings
    sizes: tuple[int, ...]
    repetitions: int
    earlier: int
    networks: tuple[str, ...]
    settling: int
    rehearsed: int
    photos: Mapping[str, int]
    profile: ProfileAmount


FULL = Plan(
    MUSEUM,
    (0, 5, 10, 20, 30, 50, 80, 120, 200, 400),
    repetitions=3,
    earlier=1600,
    networks=tuple(NETWORKS),
    settling=12,
    rehearsed=3,
    photos={LSH: 20, OURS: 60},
    profile=ProfileAmount((1, 25, 50, 100, 200, 300, 400), subsets=2, queries=12),
)
SMOKE = Plan(
    SMOKE_MUSEUM,
    (0, 3, 12),
    repetitions=1,
    earlier=40,
    networks=(PAPER,),
    settling=2,
    rehearsed=1,
    photos={LSH: 3, OURS: 3},
    profile=ProfileAmount((1, 12), subsets=2, queries=3),
)


class Figure(Experiment):
    """Latency and hit ratio over static cache sizes, and the adaptive edge; five networks."""

    name: ClassVar[str] = "fig3.2"
    source: ClassVar[str] = "Cachier dissertation, 3.2"

    def __init__(self) -> None:
        self._profiles = EdgeProfiles()

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        return tuple(
            Cell(f"{number}-{backend}", {"backend": backend, "repetition": number})
            for number in range(_plan(options).repetitions)
            for backend in BACKENDS
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        backend, number = str(cell.parameters["backend"]), int(cell.parameters["repetition"])
        plan = _plan(options)
        crowd = Crowd(dataset_of(options, plan.museum), options.rng(self.name, "ranks"))
        museum = museum_folder(options.museums, plan.museum).resolve()
        database = museum / "cloud.db"
        teach_catalogue(museum, database, threads=os.cpu_count() or 1, progress=lambda _done, _of: None)
        profile = self._profiles.of(
            museum / f"profile-{backend}.json",
            PIPELINES[backend],
            crowd.dataset,
            plan.profile,
            plan.museum.seed,
        )
        settings = {
            **{f"recognition.{key}": str(value) for key, value in PIPELINES[backend].items()},
            "cache.profile": str(profile),
        }
        rng = options.rng(self.name, "requests", number)
        with (
            termination_as_interrupt(),
            CacheBench(
                museum.parent.parent / "testbed" / self.name,
                database=database,
                objects=plan.museum.objects,
                sizes=(*map(str, plan.sizes), ADAPTIVE),
                edge_settings=settings,
                network=NETWORKS[plan.networks[0]],
                seed=options.seed,
            ) as bench,
        ):
            bench.fill(crowd.reports(plan.earlier, rng))
            rows: list[Row] = []
            for network in plan.networks:
                bench.reshape(NETWORKS[network])
                bench.settle(crowd.asks(plan.settling, rng))
                bench.ask_all(crowd.asks(plan.rehearsed, rng), 0)
                measured = _measure(bench, crowd.asks(plan.photos[backend], rng))
                rows += [
                    {"backend": backend, "network": network, "repetition": number, **row} for row in measured
                ]
        return rows

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per backend and network: every edge's latency, hit ratio and size; the best static one."""
        groups: dict[tuple[str, str], list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["backend"], row["network"]].append(row)
        found: dict[str, Any] = {}
        for (backend, network), group in groups.items():
            found.setdefault(backend, {})[network] = _curve(group)
        return {"backends": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        paper = summary["backends"][LSH][PAPER]
        latency = {size: one["latency_ms"]["median"] for size, one in paper["static"].items()}
        largest = max(latency, key=int)
        inner = min(value for size, value in latency.items() if size not in {"0", largest})
        falls, rises = latency["0"] / inner, latency[largest] / inner
        targets = [
            Target("LSH: without a cache, over the best size; the curve falls", falls, falls > 1),
            Target("LSH: everything cached, over the best size; the curve rises", rises, rises > 1),
        ]
        for backend, networks in summary["backends"].items():
            for network, curve in networks.items():
                ratio = curve["adaptive over best"]
                text = (
                    f"{backend}, {network}: adaptive edge over the best static size ({curve['best']}) on the "
                    "same photos, at most 1.05"
                )
                targets.append(Target(text, ratio, ratio <= 1 + WITHIN))
        return tuple(targets)

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                backend,
                network,
                size,
                one["cached"],
                median_in_words(one["latency_ms"], 1),
                f"{one['hit_ratio']:.2f}",
            )
            for backend, networks in summary["backends"].items()
            for network, curve in networks.items()
            for size, one in {**curve["static"], ADAPTIVE: curve[ADAPTIVE]}.items()
        ]
        return ("backend", "network", "size", "cached", "latency ms (least to most)", "hits"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.cachier.fig3_2_picture import draw  # noqa: PLC0415  measuring draws nothing

        return draw(results)


class Crowd:
    """Visitors whose requests follow Zipf's law; which object has which rank is chance.

    Parameters
    ----------
    dataset : Dataset
        Objects and photos of them.
    rng : Generator
        Draws the ranks.
    """

    def __init__(self, dataset: Dataset, rng: np.random.Generator) -> None:
        self.dataset = dataset
        self._photos = photos_by_object(dataset)
        self._objects = [str(name) for name in rng.permutation(sorted(self._photos))]
        self._shares: NDArray[np.float64] = zipf_shares(len(self._objects), EXPONENT)

    def reports(self, count: int, rng: np.random.Generator) -> list[tuple[str, str]]:
        """Earlier requests as (device, object)."""
        ranks = systematic_ranks(self._shares, count, rng)
        return [
            (f"earlier-{number % _EARLIER_DEVICES}", self._objects[rank]) for number, rank in enumerate(ranks)
        ]

    def asks(self, count: int, rng: np.random.Generator) -> list[Ask]:
        """Photos to show now."""
        asks = []
        for rank in systematic_ranks(self._shares, count, rng):
            object_id = self._objects[rank]
            photos = self._photos[object_id]
            asks.append(Ask(object_id, int(rank) + 1, Path(photos[int(rng.integers(len(photos)))])))
        return asks


_EARLIER_DEVICES = 64
_IN_A_ROW = 4
"""Photos to one edge before the next is asked."""
_SPREAD = 3
"""How far the order of the edges is turned each time; no edge always follows the same busy moment."""


def _plan(options: RunOptions) -> Plan:
    plan = SMOKE if options.smoke else FULL
    return replace(plan, museum=replace(plan.museum, seed=options.seed))


def _measure(bench: CacheBench, asks: Sequence[Ask]) -> list[Row]:
    turns = [asks[start : start + _IN_A_ROW] for start in range(0, len(asks), _IN_A_ROW)]
    measured = [pair for turn, some in enumerate(turns) for pair in bench.ask_all(some, _SPREAD * turn)]
    cached = bench.cached()
    return [_row(ask, answer, cached[answer.size]) for ask, answer in measured]


def _row(ask: Ask, answer: Answer, cached: int) -> Row:
    edge, cloud = answer.hop("edge"), answer.hop("cloud")
    return {
        "size": answer.size,
        "cached": cached,
        "rank": ask.rank,
        "expected": ask.object_id,
        "answered": answer.recognition.object_id or "",
        "answered_by": answer.recognition.answered_by,
        "latency_ms": round(answer.latency_ms, 3),
        "edge_compute_ms": round(edge.compute_ms, 3),
        "edge_next_tier_ms": round(edge.next_tier_ms, 3),
        "cloud_compute_ms": round(cloud.compute_ms, 3),
    }


def _curve(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """One backend in one network."""
    by_size: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        by_size[row["size"]].append(row)
    edges = {size: _edge(group) for size, group in by_size.items()}
    adaptive = edges.pop(ADAPTIVE)
    static = dict(sorted(edges.items(), key=lambda item: int(item[0])))
    best = min(static, key=lambda size: float(static[size]["latency_ms"]["median"]))
    # Repetition by repetition: within one, all edges got the same photos at the same moments.
    ratios = _by_repetition(by_size[ADAPTIVE]) / _by_repetition(by_size[best])
    return {
        "static": static,
        ADAPTIVE: adaptive,
        "best": best,
        "adaptive over best": round(float(np.median(ratios)), 4),
        "adaptive over best, spread": [round(float(ratios.min()), 4), round(float(ratios.max()), 4)],
    }


def _edge(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """One edge over all repetitions, and the least and most of any."""
    relevant = [row for row in rows if row["expected"]]
    return {
        "latency_ms": median_and_range(_by_repetition(rows).tolist()),
        "plain_mean_ms": round(float(np.mean([float(row["latency_ms"]) for row in rows])), 3),
        "hit_ratio": round(float(np.mean([row["answered_by"] == "edge" for row in rows])), 4),
        "recall": round(float(np.mean([row["answered"] == row["expected"] for row in relevant])), 4),
        "edge_compute_ms": round(float(np.median([float(row["edge_compute_ms"]) for row in rows])), 3),
        "cached": round(float(np.median([int(row["cached"]) for row in rows]))),
        "requests": len(rows),
    }


def _by_repetition(rows: Sequence[StoredRow]) -> NDArray[np.float64]:
    """Typical mean latency of each repetition [ms]."""
    groups: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        groups[row["repetition"]].append(row)
    return np.array([typical_mean_ms(groups[name]) for name in sorted(groups)])


def typical_mean_ms(rows: Sequence[StoredRow]) -> float:
    """Mean latency, the requests that a tier answered taken at their median [ms].

    Hits and misses differ by a factor, so a median of all says nothing of the mean; but one request that met
    a busy machine should not decide between cache sizes.
    """
    by_tier: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_tier[row["answered_by"]].append(float(row["latency_ms"]))
    return sum(len(values) * float(np.median(values)) for values in by_tier.values()) / len(rows)
