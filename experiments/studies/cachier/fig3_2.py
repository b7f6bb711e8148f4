"""Figure 3.2: latency and hit ratio of an edge cache over its size (dissertation, 3.2).

Requests for 400 objects follow Zipf's law with exponent 0.8, one at a time. Static caches hold the most
frequent objects. The same earlier requests are reported to the adaptive edge, which chooses its size. All are
real daemons behind one shaped link. The paper's network comes first, then those of table 6.3. With the
paper's classifier (LSH of FLANN), searching a large cache takes longer than the cache saves. With our
default, the search time hardly grows with the size.

A cell is one repetition of one classifier: new daemons, warmed up over a link without limits, then measured
in one network after the other. The offline analysis for the adaptive edge is made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import FIGURE_3_2, TABLE_6_3, in_words
from nearsight.experiments.rig.edge_bench import ADAPTIVE, BenchAnswer, BenchRequest, CacheBench, cache_bench
from nearsight.experiments.rig.replay import hop_of
from nearsight.experiments.studies.cachier.zipf import ZipfVisitors
from nearsight.experiments.studies.museums import TaughtMuseum, museum_of
from nearsight.experiments.studies.profiles import BACKEND_NAMES, LSH, OURS, EdgeProfiles, ProfileAmount

BACKENDS = (LSH, OURS)
PAPER = "figure 3.2"
NETWORKS = {PAPER: FIGURE_3_2, **TABLE_6_3}
WITHIN = 0.05
"""Tolerance of the adaptive edge's latency over that of the best static size."""
_COLOURS = {LSH: "#c2571a", OURS: "#1f6f8b"}
_HITS = "#8a8a8a"
_UNLABELLED_LARGE = frozenset({5, 20, 80})
_UNLABELLED = frozenset({5, 20, 30, 80, 120})
"""Sizes without a label, for lack of space."""
_BATCH = 4
"""Number of photos to one edge before the next edge is asked."""
_ROTATION = 3
"""Rotation of the order of edges between rounds, so that no edge is always measured after the same one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the measurement."""

    sizes: tuple[int, ...]
    """Sizes of the static caches."""
    repetitions: int
    """Number of repetitions, each with new daemons."""
    earlier: int
    """Number of earlier requests that are reported to all edges."""
    networks: tuple[str, ...]
    """Keys of `NETWORKS`."""
    settling: int
    rehearsed: int
    """Requests per network: ``settling`` to the adaptive edge so that it adapts to the network, and
    ``rehearsed`` to each edge before the measurement."""
    photos: Mapping[str, int]
    """Measured requests per network and edge, by backend; fast lookups need more, as noise is a larger
    part."""
    profile: ProfileAmount


FULL = Plan(
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

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per repetition and classifier."""
        repetitions = range((SMOKE if options.smoke else FULL).repetitions)
        return [{"repetition": number, "backend": backend} for number in repetitions for backend in BACKENDS]

    def run(self, options: RunOptions, repetition: int, backend: str) -> Iterator[Row]:
        """Start the daemons, warm them up, and send requests; one row per photo and edge."""
        plan, museum = SMOKE if options.smoke else FULL, TaughtMuseum(options, museum_of(options))
        visitors = ZipfVisitors(museum.dataset, options.rng(self.name, "ranks"))
        settings = self._profiles.settings(museum, backend, backend, plan.profile)
        rng = options.rng(self.name, "requests", repetition)
        with cache_bench(
            museum.testbed(self.name),
            database=museum.database,
            objects=len(museum.photos),
            sizes=(*map(str, plan.sizes), ADAPTIVE),
            edge_settings=settings,
            network=NETWORKS[plan.networks[0]],
            seed=options.seed,
        ) as bench:
            bench.warm_up(visitors.reports(plan.earlier, rng))
            for network in plan.networks:
                bench.running.link.reshape(NETWORKS[network])
                bench.settle(visitors.requests(plan.settling, rng))
                bench.send_all(visitors.requests(plan.rehearsed, rng), 0)
                for row in _measure(bench, visitors.requests(plan.photos[backend], rng)):
                    yield {"backend": backend, "network": network, "repetition": repetition, **row}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """Per backend and network: every edge's latency, hit ratio and size; the best static size."""
        return {"backends": numbers.nested(rows, ("backend", "network"), _curve)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The curve of LSH falls and rises; the adaptive edge is close to the best static size."""
        paper = summary["backends"][LSH][PAPER]
        latency = {size: one["latency_ms"]["median"] for size, one in paper["static"].items()}
        largest = max(latency, key=int)
        inner = min(value for size, value in latency.items() if size not in {"0", largest})
        falls, rises = latency["0"] / inner, latency[largest] / inner
        text = "LSH: latency without a cache over that at the best size, over 1: the curve falls"
        yield Target(text, falls, falls > 1)
        text = "LSH: latency with all objects cached over that at the best size, over 1: the curve rises"
        yield Target(text, rises, rises > 1)
        for backend, network, curve in numbers.leaves(summary["backends"], 2):
            text = (
                f"{backend}, {network}: adaptive edge over the best static size ({curve['best']}) on the "
                "same photos, at most 1.05"
            )
            yield Target.at_most(text, curve["adaptive over best"], 1 + WITHIN)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per classifier, network and edge."""
        for backend, network, curve in numbers.leaves(summary["backends"], 2):
            for size, one in {**curve["static"], ADAPTIVE: curve[ADAPTIVE]}.items():
                yield {
                    "backend": backend,
                    "network": network,
                    "size": size,
                    "cached": one["cached"],
                    "latency ms (least to most)": numbers.median_in_words(one["latency_ms"], 1),
                    "hits": f"{one['hit_ratio']:.2f}",
                }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the paper's network for both classifiers, and the other networks below."""
        found = results.metrics["backends"]
        networks = [network for network in found[LSH] if network != PAPER]
        picture = drawing.new_picture(11, 7.4 if networks else 4.2)
        grid = picture.add_gridspec(2 if networks else 1, 1, height_ratios=[1.25, 1] if networks else [1])
        above = picture.add_subfigure(grid[0])
        for axes, backend in zip(above.subplots(1, 2, sharey=True), BACKENDS, strict=True):
            _draw_paper(axes, found[backend][PAPER], backend)
        drawing.caption(above, _caption(found))
        if networks:
            below = picture.add_subfigure(grid[1])
            panels = below.subplots(1, len(networks), squeeze=False)[0]
            for axes, network in zip(panels, networks, strict=True):
                _draw_network(axes, found, network)
            panels[0].set_ylabel("mean latency [ms]")
            drawing.legend_below(below, panels[0], 4)
        return picture


def _measure(bench: CacheBench, requests: Sequence[BenchRequest]) -> list[Row]:
    turns = [requests[start : start + _BATCH] for start in range(0, len(requests), _BATCH)]
    measured = [one for turn, some in enumerate(turns) for one in bench.send_all(some, _ROTATION * turn)]
    cached = bench.cached()
    return [_row(answer, cached[answer.size]) for answer in measured]


def _row(answer: BenchAnswer, cached: int) -> Row:
    edge, cloud = hop_of(answer.recognition, "edge"), hop_of(answer.recognition, "cloud")
    return {
        "size": answer.size,
        "cached": cached,
        "rank": answer.request.rank,
        "expected": answer.request.object_id,
        "answered": answer.recognition.object_id or "",
        "answered_by": answer.recognition.answered_by,
        "latency_ms": round(answer.latency_ms, 3),
        "edge_compute_ms": round(edge.compute_ms, 3),
        "edge_next_tier_ms": round(edge.next_tier_ms, 3),
        "cloud_compute_ms": round(cloud.compute_ms, 3),
    }


def _curve(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Curve of one backend in one network."""
    by_size = numbers.grouped(rows, "size")
    edges = {size: _edge(group) for size, group in by_size.items()}
    adaptive = edges.pop(ADAPTIVE)
    static = dict(sorted(edges.items(), key=lambda item: int(item[0])))
    best = min(static, key=lambda size: float(static[size]["latency_ms"]["median"]))
    # Ratio per repetition: within one, all edges received the same photos at the same moments.
    ratios = _by_repetition(by_size[ADAPTIVE]) / _by_repetition(by_size[best])
    return {
        "static": static,
        ADAPTIVE: adaptive,
        "best": best,
        "adaptive over best": round(float(np.median(ratios)), 4),
        "adaptive over best, spread": [round(float(ratios.min()), 4), round(float(ratios.max()), 4)],
    }


def _edge(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Numbers of one edge over all repetitions, with the range over repetitions."""
    relevant = [row for row in rows if row["expected"]]
    return {
        "latency_ms": numbers.median_and_range(_by_repetition(rows).tolist()),
        "plain_mean_ms": round(float(np.mean(numbers.values(rows, "latency_ms"))), 3),
        "hit_ratio": numbers.share(row["answered_by"] == "edge" for row in rows),
        "recall": numbers.share(row["answered"] == row["expected"] for row in relevant),
        "edge_compute_ms": round(float(np.median(numbers.values(rows, "edge_compute_ms"))), 3),
        "cached": round(float(np.median(numbers.values(rows, "cached")))),
        "requests": len(rows),
    }


def _by_repetition(rows: Sequence[StoredRow]) -> NDArray[np.float64]:
    """Typical mean latency of each repetition [ms]."""
    groups = numbers.grouped(rows, "repetition")
    return np.array([typical_mean_ms(groups[name]) for name in sorted(groups)])


def typical_mean_ms(rows: Sequence[StoredRow]) -> float:
    """Mean latency, with each tier's answers counted at their median [ms].

    Hits and misses differ by a factor, so a median over all requests does not represent the mean. With a
    plain mean, one request at a busy moment could decide between cache sizes.
    """
    tiers = [numbers.values(group, "latency_ms") for group in numbers.grouped(rows, "answered_by").values()]
    return sum(len(values) * float(np.median(values)) for values in tiers) / len(rows)


def _caption(found: Mapping[str, Any]) -> str:
    some = [next(iter(networks[PAPER]["static"].values())) for networks in found.values()]
    repetitions = len(some[0]["latency_ms"]["each"])
    requests = " and ".join(str(one["requests"] // repetitions) for one in some)
    return (
        f"Zipf 0.8; {requests} requests per cache size and network, one at a time, "
        "the same for all sizes; hits and misses at their medians"
        + (f"; bars: range of {repetitions} repetitions" if repetitions > 1 else "")
    )


def _draw_network(axes: Axes, found: Mapping[str, Any], network: str) -> None:
    for backend in BACKENDS:
        _draw_curve(axes, found[backend][network], _COLOURS[backend], BACKEND_NAMES[backend])
    axes.set(xlabel="objects in the cache", ylim=(0, None))
    axes.text(0.0, 1.0, in_words(NETWORKS[network]), transform=axes.transAxes, va="bottom", size=7.5)
    axes.set_title(network, pad=16)


def _draw_paper(axes: Axes, curve: Mapping[str, Any], backend: str) -> None:
    _draw_curve(axes, curve, _COLOURS[backend], "static size", _UNLABELLED_LARGE)
    axes.set(xlabel="objects in the cache", ylabel="mean latency [ms]", ylim=(0, None))
    axes.set_title(f"{drawing.capital(BACKEND_NAMES[backend])}; {in_words(NETWORKS[PAPER])}", pad=17)
    hits = axes.twinx()
    sizes = [int(size) for size in curve["static"]]
    hits.plot(
        sizes,
        [one["hit_ratio"] for one in curve["static"].values()],
        "s:",
        color=_HITS,
        markersize=3,
        label="hit ratio (right)",
    )
    hits.set_ylim(0, 1.02)
    hits.set_ylabel("hit ratio", color=_HITS)
    hits.spines["right"].set(visible=True, color=_HITS)
    hits.tick_params(axis="y", colors=_HITS)
    hits.grid(visible=False)
    _note(axes, curve)
    lines = [*axes.get_legend_handles_labels()[0], *hits.get_legend_handles_labels()[0]]
    axes.legend(handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)


def _draw_curve(
    axes: Axes, curve: Mapping[str, Any], colour: str, name: str, unlabelled: frozenset[int] = _UNLABELLED
) -> None:
    sizes = np.array([int(size) for size in curve["static"]])
    middle, spread = drawing.error_bars([one["latency_ms"] for one in curve["static"].values()], "median")
    axes.errorbar(
        sizes, middle, spread, fmt="o-", color=colour, markersize=4, capsize=2, elinewidth=1, label=name
    )
    adaptive = curve[ADAPTIVE]
    (at,), adaptive_spread = drawing.error_bars([adaptive["latency_ms"]], "median")
    axes.axhline(at, color=colour, linewidth=1, linestyle="--", zorder=1)
    axes.errorbar(
        [adaptive["cached"]],
        [at],
        adaptive_spread,
        fmt="*",
        color=colour,
        markeredgecolor="black",
        markersize=12,
        capsize=2,
        elinewidth=1,
        zorder=4,
        clip_on=False,
        label="adaptive edge" if name == "static size" else f"{name}, adaptive",
    )
    axes.set_xscale("function", functions=(np.sqrt, np.square))
    axes.set_xlim(-0.0, sizes.max() * 1.06)
    axes.xaxis.set_major_locator(FixedLocator([size for size in sizes if size not in unlabelled]))
    axes.xaxis.set_minor_locator(NullLocator())


def _note(axes: Axes, curve: Mapping[str, Any]) -> None:
    adaptive = curve[ADAPTIVE]
    best = curve["static"][curve["best"]]["latency_ms"]["median"]
    text = (
        f"best static size {curve['best']}: {best:.0f} ms; "
        f"adaptive, chose {adaptive['cached']}: {adaptive['latency_ms']['median']:.0f} ms "
        f"({100 * (curve['adaptive over best'] - 1):+.1f} % on the same photos)"
    )
    axes.text(0.0, 1.0, text, transform=axes.transAxes, va="bottom", size=8)
