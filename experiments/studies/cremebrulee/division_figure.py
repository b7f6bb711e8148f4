"""One memory budget shared by networks and recognition caches, against fixed shares, under shifting traffic.

There are two catalogues and seven networks. The traffic consists of periods of about ten minutes; the shares
of catalogues and networks change with each period. The edge's own classes decide on a virtual clock: request
distributions, E[L], model cache with its policy, and the division of memory. A chosen object is cached
immediately. Networks are loaded one after another, and the cloud answers during a load. The time that a
request saves is relative to an edge without memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nearsight.common.model_cache.model_cache import Load, ModelCache, Reason, Refuse, Run
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.registry import make_policy
from nearsight.common.text import percent
from nearsight.edge.cache_size import Costs
from nearsight.edge.memory_budget import RATE_WINDOW_S, RequestRates
from nearsight.edge.memory_partition import FAVOUR, Claim, MemoryPartitioner, NetworkUse
from nearsight.edge.request_distribution import RequestDistribution
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import leaves, median_and_range, median_in_words, nested, zipf

_OBJECTS, _ZIPF, _OBJECT_BYTES = 1000, 0.8, 430_000
_CATALOGUES = ("a", "b")
_NETWORKS_MB = (25, 40, 60, 100, 140, 230, 420)
_LOAD_MS_PER_MB, _CLOUD_MS, _RECALL = 3.0, 120.0, 0.9
_REQUESTS_HZ, _TURN_S, _HOUR_S, _HALF_LIFE_S = 10.0, 600.0, 3600.0, 3600.0
_BUDGETS_MB, _RUNS = (250, 500), 6
_COSTS = {f"{mb} MB": ModelCosts(mb * 10**6, mb * _LOAD_MS_PER_MB) for mb in _NETWORKS_MB}
_SAVED_MS = {name: min(costs.load_ms, _CLOUD_MS) for name, costs in _COSTS.items()}
_LOOKUP_MS = np.where(np.arange(_OBJECTS + 1) > 0, 3.0 + 0.01 * np.arange(_OBJECTS + 1), 0.0)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to divide the memory."""

    networks: float | None = None
    """Fixed share of the networks; None: one shared budget."""
    favour: float = FAVOUR
    rates_over_s: float = RATE_WINDOW_S
    loads_all: bool = False
    """Whether each requested network is loaded; else only those that the division chose, or that fit."""


_SHARED = "shared"
WAYS: dict[str, Way] = {
    _SHARED: Way(),
    **{f"{percent(share)} for networks": Way(share, loads_all=True) for share in (0.25, 0.5, 0.75)},
    **{f"{percent(share)}, only worthwhile loads": Way(share) for share in (0.25, 0.5, 0.75)},
    "shared, all loads": Way(loads_all=True),
    "shared, changes for any gain": Way(favour=1.0),
    "shared, changes for twice the gain": Way(favour=2.0),
    "shared, rates over 20 s": Way(rates_over_s=20.0),
    "shared, rates over 300 s": Way(rates_over_s=300.0),
}

Request = tuple[float, str, str]
"""Time [s], catalogue or "", object or network."""


def traffic(rng: np.random.Generator, length_s: float) -> list[Request]:
    """Generate requests in periods with random shares of objects, of each catalogue, and of each network."""
    popularity = zipf(_OBJECTS, _ZIPF)
    names = {one: rng.permutation(_OBJECTS).astype(str) for one in _CATALOGUES}
    requests: list[Request] = []
    begin_s = 0.0
    while begin_s < length_s:
        end_s = min(length_s, begin_s + rng.exponential(_TURN_S))
        for_objects, for_first = 1 / (1 + np.exp(-rng.normal(0, 2.5))), rng.random()
        shares = rng.dirichlet(np.ones(len(_COSTS)))
        times_s = np.sort(rng.uniform(begin_s, end_s, rng.poisson(_REQUESTS_HZ * (end_s - begin_s))))
        count = len(times_s)
        catalogues = np.where(rng.random(count) < for_first, *_CATALOGUES)
        objects, networks = rng.choice(_OBJECTS, count, p=popularity), rng.choice([*_COSTS], count, p=shares)
        for place, is_object in enumerate(rng.random(count) < for_objects):
            one = str(catalogues[place]) if is_object else ""
            name = names[one][objects[place]] if one else networks[place]
            requests.append((float(times_s[place]), one, str(name)))
        begin_s = end_s
    return requests


class Edge:
    """An edge whose requests take virtual time.

    Parameters
    ----------
    budget_bytes : int
        Memory budget of its networks and recognition caches together.
    way : Way
        The way to divide the budget.
    """

    def __init__(self, budget_bytes: int, way: Way) -> None:
        self._way = way
        self._fixed_bytes = int(budget_bytes * (way.networks or 0.0))
        self._networks = ModelCache(0, make_policy("forecast"))
        ids = [str(number) for number in range(_OBJECTS)]
        self._counts = {one: RequestDistribution(ids, half_life_s=_HALF_LIFE_S) for one in _CATALOGUES}
        self._partitioner = MemoryPartitioner(budget_bytes - self._fixed_bytes, budget_bytes, way.favour)
        self._for_networks = MemoryPartitioner(self._fixed_bytes, budget_bytes, way.favour)
        self._rates = RequestRates(way.rates_over_s)
        self._asked: dict[Hashable, int] = dict.fromkeys((*_CATALOGUES, *_COSTS), 0)
        self._cached: dict[str, frozenset[str]] = dict.fromkeys(_CATALOGUES, frozenset())
        self._loading: tuple[float, str] | None = None
        """End of the current load [s], and its network."""
        self._wanted: dict[str, None] = {}
        """Queue of the networks to be loaded; an ordered set."""
        self._worth_loading: frozenset[str] = frozenset()
        self._next_s = 0.0

    def serve(self, now_s: float, catalogue: str, name: str) -> float:
        """Process a request; return the time that it saves [ms]."""
        while self._next_s <= now_s:
            self._divide(self._next_s)
            self._next_s += 1.0
        while self._loading is not None and self._loading[0] <= now_s:
            (ended_s, network), self._loading = self._loading, None
            self._networks.loaded(network, ended_s)
            self._load_next(ended_s)
        self._asked[catalogue or name] += 1
        if catalogue:
            self._counts[catalogue].count(name, now_s)
            cached = self._cached[catalogue]
            return (_RECALL * _CLOUD_MS if name in cached else 0.0) - float(_LOOKUP_MS[len(cached)])
        costs = _COSTS[name]
        room = costs.size_bytes <= self._networks.free_bytes or name in self._networks.resident
        if not (room or self._way.loads_all or name in self._worth_loading):
            return 0.0
        decision = self._networks.request(name, costs, now_s)
        if isinstance(decision, Load):
            self._loading = (now_s + costs.load_ms / 1e3, name)
        elif isinstance(decision, Refuse) and decision.reason is Reason.LOADING:
            self._wanted[name] = None
        return _SAVED_MS[name] if isinstance(decision, Run) else 0.0

    def _load_next(self, now_s: float) -> None:
        while self._wanted and self._loading is None:
            name = next(iter(self._wanted))
            del self._wanted[name]
            if isinstance(self._networks.load(name, _COSTS[name], now_s), Load):
                self._loading = (now_s + _COSTS[name].load_ms / 1e3, name)

    def _divide(self, now_s: float) -> None:
        rates = self._rates.update(self._asked, now_s)
        rankings = {one: counts.ranking(now_s) for one, counts in self._counts.items()}
        costs = Costs(_LOOKUP_MS, np.full(_OBJECTS + 1, _RECALL), _CLOUD_MS)
        claims = {
            one: Claim.of_objects(costs.expected(ranking, ranking.seen).evaluate(), rates[one], _OBJECT_BYTES)
            for one, ranking in rankings.items()
        }
        uses = [
            NetworkUse(name, costs.size_bytes, _SAVED_MS[name] * rates[name])
            for name, costs in _COSTS.items()
        ]
        shared = self._way.networks is None
        divided = self._partitioner.divide(uses if shared else [], claims)
        chosen = divided if shared else self._for_networks.divide(uses, {})
        left = self._partitioner.budget_bytes - divided.size_bytes
        self._worth_loading = chosen.networks
        self._networks.resize(int(divided.networks_bytes + left if shared else self._fixed_bytes), now_s)
        for one, size_bytes in divided.caches_bytes.items():
            k = min(rankings[one].seen, int(size_bytes / _OBJECT_BYTES + 1e-6))
            self._cached[one] = frozenset(rankings[one].top(k))


class Division(Experiment):
    """One memory budget for networks and recognition caches, against fixed shares, under shifting traffic."""

    name: ClassVar[str] = "memory-division"
    source: ClassVar[str] = "beyond CremeBrulee's 6.3"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per run."""
        return [{"run": run} for run in range(2 if options.smoke else _RUNS)]

    def run(self, options: RunOptions, run: int) -> list[Row]:
        """One row per budget and way; all rows of a run have the same requests."""
        requests = traffic(options.rng(self.name, run), _HOUR_S / (60 if options.smoke else 1))

        def saved_ms(mb: int, way: Way) -> float:
            edge = Edge(mb * 10**6, way)
            return float(np.mean([edge.serve(*request) for request in requests]))

        return [
            {"run": run, "budget_mb": mb, "way": name, "saved_ms": saved_ms(mb, way)}
            for mb in _BUDGETS_MB[: 1 if options.smoke else None]
            for name, way in WAYS.items()
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<budget>.<way>``: the saved time, and that of the shared budget relative to it."""
        shared = {(one["budget_mb"], one["run"]): one for one in rows if one["way"] == _SHARED}

        def summary(group: list[StoredRow]) -> dict[str, Any]:
            saved = [float(one["saved_ms"]) for one in group]
            best = [float(shared[one["budget_mb"], one["run"]]["saved_ms"]) for one in group]
            return {
                "saved_ms": median_and_range(saved),
                "shared_over_it": median_and_range([ours / it for ours, it in zip(best, saved, strict=True)]),
            }

        return nested(rows, ("budget_mb", "way"), summary)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The shared budget against the best fixed share."""
        return tuple(
            Target.at_least(
                f"{mb} MB: time saved by shared over that by the best fixed share, median of runs",
                ratio,
                1.0,
                digits=3,
            )
            for mb, ways in summary.items()
            for ratio in [min(ways[name]["shared_over_it"]["median"] for name in ways if "%" in name)]
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per budget and way."""
        for mb, way, one in leaves(summary, 2):
            yield {
                "memory [MB]": mb,
                "way": way,
                "saved per request [ms]": median_in_words(one["saved_ms"], 1),
                "shared over it": median_in_words(one["shared_over_it"], 2),
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw one panel per budget."""
        picture = drawing.new_picture(9.6, 3.8)
        panels = picture.subplots(1, len(results.metrics), sharey=True, squeeze=False)[0]
        for axes, (mb, ways) in zip(panels, results.metrics.items(), strict=True):
            at, reach = drawing.error_bars([one["shared_over_it"] for one in ways.values()], "median")
            axes.errorbar(at, range(len(ways)), xerr=reach, fmt="o", markersize=4, capsize=2)
            axes.axvline(1.0, color="#8a8a8a", linestyle=":", linewidth=1)
            axes.set(title=f"{mb} MB", xlabel="time saved: shared over this way", yticks=range(len(ways)))
            axes.set_yticklabels([*ways])
        panels[0].invert_yaxis()
        drawing.caption(picture, "10 requests per second; median and range of runs")
        return picture
