"""The live testbed: a real edge with real networks, and the simulator on the same requests.

`--data DIR` is a folder of networks, such as `nearsight models build` creates. If it has mCache's seven
networks, only these are used. Without it, small networks are created. In each cell, an edge first measures
the costs of the networks. Then the traffic of `mcache-policies` is replayed for one policy after the other.
With 0 clients, requests are sent at the trace's times divided by eight. With one and with four clients
(``--clients``), each client sends its next request after an answer, and only networks with long loads are
requested. The edge has no cloud, so an absent network is loaded. The simulator's share of the cores is
reduced by what other processes used during the same requests.

The load delay of a request is the time from when a worker of the edge takes it until its network is in
memory, 0 for hits. Means exclude the first tenth of the requests, because ties determine what is in memory at
the start. Before these requests, each network is requested once. Means of both sides also exclude the
requests that the edge refused; these are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.model_cache.model_cache import ModelCache
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.model_cache.registry import make_policy
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import leaves, nested, values
from nearsight.experiments.model_serving.loader import Machine, serve_with_loader
from nearsight.experiments.model_serving.profiles import small_network
from nearsight.experiments.model_serving.simulation import Served, knowledge_of
from nearsight.experiments.model_serving.workloads import Recipe
from nearsight.experiments.model_serving.zoo import mcache_models
from nearsight.experiments.rig.model_edge import CORES, model_edge, prepared_copy
from nearsight.experiments.studies.mcache.ablation_figure import THROUGHPUT
from nearsight.experiments.studies.mcache.contenders import row_of
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES
from nearsight.experiments.traces.model_requests import ModelRequests

EDGE, SIMULATOR = "edge", "simulator"
_OPEN = ("lru", "lfu", "cremebrulee", "iam", "forecast")
_CLOSED = ("lfu", "iam", "forecast")
_CLAIRVOYANT = "cremebrulee-oracle"
"""Simulated only."""
_MEMORY = ("0.4", "0.6", "0.8")
_CLIENTS, _RUNS = (1, 4), 2
"""Numbers of clients and runs of the closed loops."""
_LONG_LOADS = 3.0
"""Smallest ratio of load to execution time of networks in the closed loop."""
_SPEED, _SECONDS, _REQUESTS = 8.0, 90.0, 600
_OPEN_WINDOW_S, _CLOSED_WINDOW_S = 8.0, 3.0
"""Windows of IAM [s]: about 40 requests, as in a minute of `mcache-policies`."""
_ROUNDS = 5
"""Number of rounds of loads that measure the costs before each cell."""
_LEAST_NETWORKS = 3
_AGREE = 0.10
_MEANS = ("hit_ratio", "load_s", "load_s_of_misses", "latency_s", "p95_load_s")
"""Columns that exclude refused requests."""
_COLOURS = dict(
    zip(
        (*_OPEN, _CLAIRVOYANT),
        ("#e0a33a", "#8a8a8a", "#7a9e3b", "#c2571a", "#1f6f8b", "#24415c"),
        strict=True,
    )
)


class Figure(Experiment):
    """Load delays and throughput of a live edge with real networks, and the simulator's."""

    name: ClassVar[str] = "model-testbed"
    source: ClassVar[str] = "CremeBrulee, 6.2; mCache, 6.3.2"
    takes: ClassVar[tuple[str, ...]] = ("data", "clients")

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per number of clients and share of the memory."""
        memory, runs = (_MEMORY[:1], 1) if options.smoke else (_MEMORY, _RUNS)
        closed = (options.clients,) if options.clients else _CLIENTS[: 1 if options.smoke else None]
        return [
            *({"clients": 0, "memory": share, "run": 0} for share in memory),
            *(
                {"clients": clients, "memory": share, "run": run}
                for run in range(runs)
                for clients in closed
                for share in memory
                if share in THROUGHPUT
            ),
        ]

    def run(self, options: RunOptions, clients: int, memory: str, run: int) -> Iterator[Row]:
        """Two rows per policy: of the edge, and of the simulator with the measured costs."""
        drawn: Row = {"clients": clients, "memory": memory, "run": run}
        with TemporaryDirectory(prefix="nearsight-testbed-") as scratch:
            folder = Path(scratch)
            source = options.data or _small_networks(folder / "small")
            sizes = prepared_copy(source, _wanted(source), folder / "models")
            largest = max(sizes.values())
            with model_edge(folder / "costs", folder / "models", "lru", _budget(largest, 0.0)) as edge:
                costs, unload_ms = edge.costs(sizes, 1 if options.smoke else _ROUNDS)
            if clients:
                costs = _long_loads(costs)
            budget_bytes = _budget(
                max(one.size_bytes for one in costs.values()),
                float(memory) * sum(one.size_bytes for one in costs.values()),
            )
            requests = _requests(costs, clients, run, options)
            simulator = _Simulator(requests, costs, unload_ms, budget_bytes, clients)
            others = []
            for policy in _CLOSED if clients or options.smoke else _OPEN:
                with model_edge(
                    folder / policy, folder / "models", policy, budget_bytes, simulator.window_s
                ) as edge:
                    edge.warm_up(costs)
                    before, _ = edge.evictions(), edge.other_cores()
                    live = edge.serve(requests, clients)
                    others.append(edge.other_cores())
                    evictions = edge.evictions() - before
                shared = {**drawn, "policy": policy, "others": round(others[-1], 2)}
                yield {**shared, "where": EDGE, **_row(live, evictions, live.refused)}
                yield {**shared, "where": SIMULATOR, **simulator.row(policy, others[-1], live.refused)}
            if clients:
                usual = float(np.median(others))
                shared = {**drawn, "policy": _CLAIRVOYANT, "others": round(usual, 2)}
                yield {**shared, "where": SIMULATOR, **simulator.row(_CLAIRVOYANT, usual)}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<clients>.<memory>.<policy>.<edge or simulator>``, and their difference."""
        return nested(rows, ("clients", "memory"), _of_cell)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Edge and simulator agree; throughput as in figure 10."""
        return (*_agreement(summary.get("0", {})), *_throughput(summary))

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per cell and policy."""
        for clients, memory, policy, one in leaves(summary, 3):
            line: dict[str, object] = {
                "clients": clients if clients != "0" else "open",
                "memory": percent(float(memory)),
                "policy": policy,
            }
            sides = [("", one.get(EDGE)), (", simulated", one.get(SIMULATOR))]
            for added, found in sides:
                line[f"load delay [ms]{added}"] = f"{1e3 * found['load_s']:.0f}" if found else ""
            for added, found in sides:
                line[f"misses{added}"] = percent(1 - found["hit_ratio"], 1) if found else ""
            for added, found in sides:
                closed = found if clients != "0" else None  # in an open loop, all have the same throughput
                line[f"speed over LFU{added}"] = f"{closed['over_lfu']:.2f}" if closed else ""
            line["refused"] = f"{one[EDGE]['refused']:.0f}" if EDGE in one else ""
            yield line

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the load delays of the open loop and the throughput of the closed ones."""
        found = dict(results.metrics)
        panels = [
            ("0", "load_s", "Mean load delay, open loop"),
            *(
                (clients, "over_lfu", f"Throughput over LFU's, clients: {clients}")
                for clients in found
                if clients != "0"
            ),
        ]
        picture = drawing.new_picture(5.0 * len(panels), 4.0)
        all_axes = np.atleast_1d(picture.subplots(1, len(panels)))
        for axes, (clients, number, title) in zip(all_axes, panels, strict=True):
            _draw_bars(axes, found[clients], number)
            axes.set(
                title=title, ylabel="time [s]" if clients == "0" else "ratio", xlabel="memory [% of all]"
            )
            if clients != "0":
                axes.axhline(1.0, color="#8a8a8a", linewidth=0.8)
        drawing.legend_below(picture, all_axes[0])
        drawing.caption(
            picture,
            "Bars: a live edge; dots: the simulator (the last: the clairvoyant); stars: IAM in mCache",
        )
        return picture


def _budget(largest_bytes: int, asked_bytes: float) -> int:
    """Memory budget in whole MB; has room for at least the largest network."""
    return int(max(asked_bytes, largest_bytes + 1e6) // 1e6) * 10**6


def _long_loads(costs: Mapping[str, ModelCosts]) -> dict[str, ModelCosts]:
    found = {name: one for name, one in costs.items() if one.load_ms >= _LONG_LOADS * one.execution_ms}
    return found if len(found) >= _LEAST_NETWORKS else dict(costs)


def _requests(costs: Mapping[str, ModelCosts], clients: int, run: int, options: RunOptions) -> ModelRequests:
    """The beginning of a trace of `mcache-policies`."""
    drawn = Recipe(ARRIVAL_PROCESSES["on-off"]).draw(costs, options.rng("mcache-policies", run)).requests
    speed = 100.0 if options.smoke else _SPEED
    count = 20 if options.smoke else _REQUESTS
    if not clients:
        count = min(count, int(np.searchsorted(drawn.times_s, speed * _SECONDS)))
    return ModelRequests(drawn.times_s[:count] / speed, drawn.models[:count], drawn.names)


@dataclass(frozen=True, slots=True)
class _Simulator:
    """Simulates the requests of the edge with the measured costs, from the same initial state."""

    requests: ModelRequests
    costs: Mapping[str, ModelCosts]
    unload_ms: Mapping[str, float]
    budget_bytes: int
    clients: int

    @property
    def window_s(self) -> float:
        """Window of IAM [s]."""
        return _CLOSED_WINDOW_S if self.clients else _OPEN_WINDOW_S

    def row(self, policy: str, others: float, left_out: NDArray[np.bool_] | None = None) -> Row:
        """Simulate the requests while other processes use ``others`` cores.

        ``left_out`` marks requests that do not count in means. The simulator itself refuses none, because
        the budget has room for every network.
        """
        requests, costs, names = self.requests, self.costs, sorted(self.costs)
        takes_s = np.array([(costs[name].load_ms + costs[name].execution_ms) / 1e3 for name in names])
        places = np.array([requests.names.index(name) for name in names], np.int32)
        first = ModelRequests(np.cumsum(takes_s) - takes_s, places, requests.names)
        times_s = requests.times_s - (requests.times_s[0] if self.clients else 0.0) + takes_s.sum()
        following = ModelRequests(times_s, requests.models, requests.names)
        known = ModelRequests(
            np.concatenate([first.times_s, times_s]),
            np.concatenate([places, requests.models]),
            requests.names,
        )
        policy_of = make_policy(policy, knowledge_of(known, window_s=self.window_s))
        cache = ModelCache(self.budget_bytes, policy_of)
        serve_with_loader(first, costs, cache, unload_ms=self.unload_ms)
        before = len(cache.evictions)
        machine = Machine(CORES, others, ServerSettings().workers)
        served = serve_with_loader(
            following, costs, cache, machine=machine, clients=self.clients, unload_ms=self.unload_ms
        )
        return _row(served, len(cache.evictions) - before, served.refused if left_out is None else left_out)


def _row(all_served: Served, evictions: int, left_out: NDArray[np.bool_]) -> Row:
    """Means without the first tenth and without ``left_out``; NaN if no request is left."""
    first = len(all_served.load_ms) // 10
    counted = ~left_out
    counted[:first] = False
    served = Served(*(getattr(all_served, one.name)[counted] for one in fields(Served)))
    means: Row = dict.fromkeys(_MEANS, math.nan)
    if counted.any():
        means = {**row_of(served), "p95_load_s": round(float(np.quantile(served.load_ms, 0.95)) / 1e3, 5)}
    return {
        **means,
        "requests": len(all_served.load_ms) - first,
        "refused": int(all_served.refused[first:].sum()),
        "evictions": evictions,
    }


def _wanted(source: Path) -> tuple[str, ...]:
    there = ModelRepository(source).manifests()
    seven = mcache_models()
    return tuple(seven if seven.keys() <= there.keys() else there)


def _small_networks(folder: Path) -> Path:
    """Create a folder of three small networks."""
    folder.mkdir()
    repository = ModelRepository(folder)
    for megabytes in (1, 2, 4):
        path = small_network(folder / f"small-{megabytes}.new.onnx", megabytes)
        repository.add(path, manifest_of_file(path, f"small-{megabytes}"))
    return folder


def _of_cell(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Medians over runs, sums of refused requests; throughput is relative to LFU's on the same trace."""
    numbers = ("load_s", "p95_load_s", "latency_s", "hit_ratio", "evictions", "refused", "requests")
    found: dict[str, Any] = nested(
        rows, ("policy", "where"), lambda group: {name: values(group, name) for name in numbers}
    )
    lfu = {where: one["latency_s"] for where, one in found["lfu"].items()}
    for one in found.values():
        for where, each in one.items():
            ratios = np.array(lfu[where]) / np.maximum(each["latency_s"], 1e-9)
            one[where] = {name: float(np.median(each[name])) for name in numbers}
            one[where]["refused"] = sum(each["refused"])
            one[where]["over_lfu"] = round(float(np.median(ratios)), 4)
            one[where]["over_lfu_each"] = ratios.round(3).tolist()
        if EDGE in one:
            one["difference"] = round(one[EDGE]["load_s"] / max(one[SIMULATOR]["load_s"], 1e-9) - 1.0, 4)
    return found


def _agreement(by_memory: Mapping[str, Any]) -> Iterator[Target]:
    for memory, policies in by_memory.items():
        shown = ", ".join(f"{policy} {100 * one['difference']:+.0f} %" for policy, one in policies.items())
        live_s, simulated_s = (
            sum(one[where]["load_s"] for one in policies.values()) for where in (EDGE, SIMULATOR)
        )
        yield Target.at_most(
            f"{percent(float(memory))} of the memory: load delay, edge against simulator, mean of policies, "
            f"off by at most {_AGREE:g}",
            abs(live_s / max(simulated_s, 1e-9) - 1.0),
            _AGREE,
            shown,
            3,
        )


def _throughput(summary: Mapping[str, Any]) -> Iterator[Target]:
    for clients, by_memory in summary.items():
        for memory, policies in by_memory.items() if clients != "0" else ():
            best = policies[_CLAIRVOYANT][SIMULATOR]["over_lfu"]
            for policy in ("iam", "forecast"):
                one = policies[policy]
                yield Target.at_least(
                    f"{percent(float(memory))} of the memory, clients: {clients}: "
                    f"throughput of {policy} over lfu, at least {THROUGHPUT[memory]:g}",
                    one[EDGE]["over_lfu"],
                    THROUGHPUT[memory],
                    f"each {one[EDGE]['over_lfu_each']}, simulated {one[SIMULATOR]['over_lfu']:.2f}, "
                    f"the clairvoyant {best:.2f}",
                    2,
                )


def _draw_bars(axes: Axes, by_memory: Mapping[str, Any], number: str) -> None:
    """Draw bars of the edge and dots of the simulator, for each share of the memory."""
    policies = [policy for policy in _COLOURS if any(policy in found for found in by_memory.values())]
    width = 0.85 / len(policies)
    for place, (memory, found) in enumerate(by_memory.items()):
        for shift, policy in enumerate(policies):
            x, one = place + (shift - (len(policies) - 1) / 2) * width, found.get(policy, {})
            label = policy if not place else None
            if EDGE in one:
                axes.bar(x, one[EDGE][number], width, color=_COLOURS[policy], label=label)
            if SIMULATOR in one:
                axes.plot(x, one[SIMULATOR][number], "o", color="black", markersize=4)
            if policy == "iam" and number == "over_lfu" and memory in THROUGHPUT:
                axes.plot(x, THROUGHPUT[memory], "*", color="black", markersize=8)
    axes.set_xticks(range(len(by_memory)), [f"{100 * float(memory):.0f}" for memory in by_memory])
