"""Search for traffic that reproduces mCache's table 3 and figure 10: arrivals, functions, fixed memory.

The paper does not publish its traffic. Each combination is rated by the distance between its gains over LFU
and the twelve gains of table 3. Gains are computed per request and per miss, because the paper does not
define its means. The throughput of a client in a closed loop (figure 10) is given as well; loads take 30
times as long as executions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.common.text import percent
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import counted, leaves, nested, values
from nearsight.experiments.model_serving.workloads import Recipe, Workload
from nearsight.experiments.model_serving.zoo import mcache_models
from nearsight.experiments.studies.mcache.contenders import (
    CLAIRVOYANT,
    IAM,
    LFU,
    OURS,
    POLICIES,
    play,
    row_of,
)
from nearsight.experiments.traces.arrivals import ARRIVAL_PROCESSES, ArrivalProcess, Drift, OnOff
from nearsight.experiments.traces.model_requests import ModelRequests

TABLE_3 = {
    "0.4": {"LRU": 0.15, "ARC": 0.22, "SRRIP": 0.23, IAM: 0.27},
    "0.6": {"LRU": 0.25, "ARC": 0.33, "SRRIP": 0.36, IAM: 0.43},
    "0.8": {"LRU": 0.41, "ARC": 0.49, "SRRIP": 0.54, IAM: 0.62},
}
"""Gains in mean load time over LFU, by share of the memory."""
READINGS = {"per request": "load_s", "per miss": "load_s_of_misses"}
_FAST, _SHUFFLED, _RARER = "drift, fast", "on-off, shuffled", "on-off, rarer"
PROCESSES: dict[str, ArrivalProcess] = {
    **ARRIVAL_PROCESSES,
    _FAST: Drift(spread=3.0, memory_s=300.0),
    _SHUFFLED: ARRIVAL_PROCESSES["on-off"],
    _RARER: OnOff(duty=0.05),
}
"""Shuffled: in random order within every 10 minutes, as section 6.1 suggests. Rarer: active half as often."""
THROUGHPUT = {"0.4": 1.5, "0.8": 2.39}
"""Throughput of IAM over that of LFU in figure 10, by share of the memory."""
_FUNCTIONS, _FIXED_MB = (30, 300, 3_000), (0, 500, 1_000)
_SHUFFLED_OVER_S = 600.0
_RUNS = 8


class Figure(Experiment):
    """Gains over LFU under 63 kinds of traffic and memory, and their distance from those of mCache."""

    name: ClassVar[str] = "mcache-ablation"
    source: ClassVar[str] = "mCache, 6.3"
    timed: ClassVar[bool] = False

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per process, number of functions and fixed memory."""
        counts, sizes_mb = (_FUNCTIONS[1:2], _FIXED_MB[1:2]) if options.smoke else (_FUNCTIONS, _FIXED_MB)
        processes = ("poisson", "on-off", _SHUFFLED) if options.smoke else tuple(PROCESSES)
        return [
            {"process": process, "functions": functions, "fixed_mb": fixed_mb}
            for process in processes
            for functions in counts
            for fixed_mb in sizes_mb
        ]

    def run(self, options: RunOptions, process: str, functions: int, fixed_mb: int) -> Iterator[Row]:
        """One row per run, share of the memory and policy."""
        for run in range(1 if options.smoke else _RUNS):
            rng = options.rng(self.name, process, functions, run)
            workload = Recipe(PROCESSES[process], functions=functions).draw(mcache_models(fixed_mb), rng)
            if process == _SHUFFLED:
                workload = shuffled(workload, rng)
            for memory, policy in product(TABLE_3, POLICIES):
                yield {
                    "process": process,
                    "functions": functions,
                    "fixed_mb": fixed_mb,
                    "memory": memory,
                    "policy": policy,
                    "run": run,
                    **row_of(play(policy, workload, float(memory))),
                }

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<process>.<functions>.<fixed MB>``: median gains of policies, and distances from table 3."""
        return nested(rows, ("process", "functions", "fixed_mb"), _of_traffic)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Traffic that reproduces table 3 per request and figure 10; constant rates do not."""
        found = _by_distance(summary, "per request")
        distance, traffic = found[0]
        iam = [traffic["gains"]["per request"][IAM][memory] for memory in TABLE_3]
        note = f"{traffic['name']}; IAM {', '.join(f'{percent(gain)}' for gain in iam)}"
        constant, steady = next(one for one in found if one[1]["process"] == "poisson")
        missed, miss = _by_distance(summary, "per miss")[0]
        ahead = max(
            one["gains"]["per request"]["LRU"][memory] / TABLE_3[memory]["LRU"]
            for _, one in found
            if one["process"] == "poisson"
            for memory in TABLE_3
        )
        return (
            Target.at_most("nearest traffic: distance of its gains from table 3", distance, 0.1, note, 3),
            Target.at_least(
                "nearest with constant rates: distance, relative to the nearest traffic",
                constant / distance,
                1.5,
                steady["name"],
                2,
            ),
            Target.at_most(
                "constant rates: largest gain of LRU over LFU, relative to table 3", ahead, 0.75, "", 2
            ),
            Target.at_least(
                "gains per miss: distance of the nearest, relative to gains per request",
                missed / distance,
                1.5,
                miss["name"],
                2,
            ),
            *_throughput(found),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per traffic, nearest first; gains per request at 40, 60 and 80 % of the memory."""
        said = {policy: _three(gains) for policy, gains in _turned(TABLE_3).items()}
        speed, per_miss = f"{IAM}'s throughput", "distance per miss"
        yield {  # all columns, because the first line gives their order
            "traffic": "the paper",
            "distance": "",
            **said,
            CLAIRVOYANT: "",
            per_miss: "",
            speed: _ratios(THROUGHPUT),
            "clairvoyant's": "",
        }
        for distance, one in _by_distance(summary, "per request"):
            gains = one["gains"]["per request"]
            yield {
                "traffic": one["name"],
                "distance": f"{distance:.3f}",
                **{policy: _three(gains[policy]) for policy in (*said, CLAIRVOYANT)},
                per_miss: f"{one['distances']['per miss']:.3f}",
                speed: _ratios(one["throughput"][IAM]),
                "clairvoyant's": _ratios(one["throughput"][CLAIRVOYANT]),
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the gains of all traffics as a heat map, nearest first."""
        found = _by_distance(results.metrics, "per request")
        picture = drawing.new_picture(9.4, 1.6 + 0.24 * (len(found) + 1))
        _draw_map(picture.subplots(), found)
        runs = counted(len({row["run"] for row in results.rows}), "run")
        drawing.caption(
            picture,
            f"Gains in mean load time per request over LFU, medians of {runs}; nearest to table 3 first",
        )
        return picture


def shuffled(workload: Workload, rng: np.random.Generator) -> Workload:
    """Shuffle the requests within every 10 minutes."""
    requests = workload.requests
    times = (
        requests.times_s // _SHUFFLED_OVER_S * _SHUFFLED_OVER_S + rng.random(len(requests)) * _SHUFFLED_OVER_S
    )
    order = np.argsort(times, kind="stable")
    return Workload(
        ModelRequests(times[order], requests.models[order], requests.names),
        workload.costs,
        workload.segments,
    )


def _of_traffic(rows: Sequence[StoredRow]) -> dict[str, Any]:
    by_policy = nested(rows, ("policy", "memory"), lambda group: group)
    gains = {
        reading: {
            policy: {
                memory: _gain(group, by_policy[LFU][memory], column) for memory, group in by_memory.items()
            }
            for policy, by_memory in by_policy.items()
        }
        for reading, column in READINGS.items()
    }
    distances = {reading: _distance(found) for reading, found in gains.items()}
    hits = {
        policy: {
            memory: round(float(np.median(values(group, "hit_ratio"))), 3) for memory, group in one.items()
        }
        for policy, one in by_policy.items()
    }
    throughput = {
        policy: {memory: _ratio(by_policy[policy][memory], by_policy[LFU][memory]) for memory in THROUGHPUT}
        for policy in (IAM, OURS, CLAIRVOYANT)
    }
    return {"gains": gains, "distances": distances, "hit_ratio": hits, "throughput": throughput}


def _distance(gains: Mapping[str, Mapping[str, float]]) -> float:
    """Root mean square error over the twelve gains of table 3."""
    missed = [
        gains[policy][memory] - gain for memory, said in TABLE_3.items() for policy, gain in said.items()
    ]
    return round(float(np.sqrt(np.mean(np.square(missed)))), 4)


def _gain(rows: Sequence[StoredRow], lfu: Sequence[StoredRow], column: str) -> float:
    """Relative reduction of LFU's load time in the same run; median over runs."""
    ours, theirs = (np.array(values(group, column)) for group in (rows, lfu))
    return round(float(np.median(1.0 - ours / np.maximum(theirs, 1e-9))), 4)


def _ratio(rows: Sequence[StoredRow], lfu: Sequence[StoredRow]) -> float:
    """LFU's latency over the policy's, median over runs; the ratio of throughputs in a closed loop."""
    ours, theirs = (np.array(values(group, "latency_s")) for group in (rows, lfu))
    return round(float(np.median(theirs / ours)), 3)


def _throughput(found: Sequence[tuple[float, Mapping[str, Any]]]) -> Iterator[Target]:
    """Targets of the traffic with the best IAM throughput, by its worse ratio to figure 10's values."""
    best = max(
        (one for _, one in found),
        key=lambda one: min(one["throughput"][IAM][memory] / said for memory, said in THROUGHPUT.items()),
    )
    for memory, said in THROUGHPUT.items():
        ours, clairvoyant = (best["throughput"][policy][memory] for policy in (OURS, CLAIRVOYANT))
        yield Target.at_least(
            f"{percent(float(memory))} of the memory: IAM's throughput over LFU's, closed loop of one client",
            best["throughput"][IAM][memory],
            said,
            f"{best['name']}; forecast {ours:.2f}, the clairvoyant {clairvoyant:.2f}",
            2,
        )


def _by_distance(summary: Mapping[str, Any], reading: str) -> list[tuple[float, dict[str, Any]]]:
    """All traffics, nearest to table 3 first."""
    found = []
    for process, functions, fixed_mb, one in leaves(summary, 3):
        name = f"{process}, {functions} functions, {fixed_mb} MB"
        found.append((one["distances"][reading], {**one, "process": process, "name": name}))
    return sorted(found, key=lambda pair: pair[0])


def _turned(table: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Transpose the table: by policy, then by memory."""
    return {policy: {memory: table[memory][policy] for memory in table} for policy in table["0.4"]}


def _three(gains: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * gain:.0f}" for gain in gains.values()) + " %"


def _ratios(by_memory: Mapping[str, float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in by_memory.values())


def _draw_map(axes: Axes, found: Sequence[tuple[float, Mapping[str, Any]]]) -> None:
    policies = ("LRU", "ARC", "SRRIP", IAM, CLAIRVOYANT)
    said = _turned(TABLE_3)
    rows = [[said[policy][memory] if policy in said else np.nan for policy in policies for memory in TABLE_3]]
    rows += [
        [one["gains"]["per request"][policy][memory] for policy in policies for memory in TABLE_3]
        for _, one in found
    ]
    map_ = np.array(rows)
    axes.imshow(map_, cmap="RdBu", vmin=-0.8, vmax=0.8, aspect="auto")
    for (row, column), gain in np.ndenumerate(map_):
        if np.isfinite(gain):
            axes.text(column, row, f"{100 * gain:.0f}", ha="center", va="center", fontsize=7)
    labels = ["table 3 of the paper", *(f"{one['name']} ({distance:.2f})" for distance, one in found)]
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xticks(
        range(map_.shape[1]),
        [percent(float(memory)) for _ in policies for memory in TABLE_3],
        fontsize=7,
    )
    axes.xaxis.tick_top()
    for place, policy in enumerate(policies):
        axes.text(3 * place + 1, -1.9, policy, ha="center", fontsize=9, fontweight="bold")
        if place:
            axes.axvline(3 * place - 0.5, color="white", linewidth=2)
    axes.axhline(0.5, color="black", linewidth=1)
    axes.grid(visible=False)
    axes.tick_params(length=0)
