"""The numbers of figure 6.15: pure functions of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nearsight.experiments.framework import numbers
from nearsight.experiments.framework.experiment import StoredRow
from nearsight.experiments.rig.peer_process import GET, OK, PUT
from nearsight.experiments.studies.cachier.lookups import (
    BEACONS,
    CHANNEL,
    GET_PHASE,
    GONE,
    IDLE,
    PUT_PHASE,
    SEES_ALL,
    SYSTEMS,
)

ALL_GETS, OVER_NETWORK = "all gets", "over the network"


def mean_per_node(rows: Iterable[StoredRow]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the latency of each node's successful gets [ms], by node.

    Failed gets are left out; `setting_numbers` counts them, and includes them in its percentiles.
    """
    groups = numbers.grouped((row for row in rows if row["kind"] == GET and row["outcome"] == OK), "node")
    found = {}
    for node in sorted(groups):
        values = numbers.values(groups[node], "ms")
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        found[node] = (float(np.mean(values)), deviation)
    return found


def setting_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Numbers of both stores in one setting, and their ratios in each repetition."""
    systems = numbers.grouped(rows, "system")
    return {
        "title": rows[0]["title"],
        "place": sorted({row["place"] for row in rows}),
        "access_point_late_p99_ms": max(numbers.values(_of(rows, CHANNEL), "late_ms"), default=0.0),
        "systems": {name: _system(systems.get(name, [])) for name in SYSTEMS},
        "ratios": {reading: _ratios(rows, reading) for reading in (ALL_GETS, OVER_NETWORK)},
    }


def _of(rows: Iterable[StoredRow], kind: str) -> list[StoredRow]:
    return [row for row in rows if row["kind"] == kind]


def _gets_of(rows: Iterable[StoredRow], reading: str = ALL_GETS) -> list[StoredRow]:
    return [row for row in _of(rows, GET) if reading == ALL_GETS or row["local"] == "0"]


def _ratios(rows: Sequence[StoredRow], reading: str) -> list[dict[str, float]]:
    """Our latencies over Kademlia's, for each repetition in which both have some."""
    found = []
    for one in numbers.nested(_gets_of(rows, reading), ("repetition", "system"), _latencies).values():
        if all(name in one for name in SYSTEMS):
            ours, theirs = (one[name] for name in SYSTEMS)
            found.append({name: round(ours[name] / theirs[name], 4) for name in ("p50_ms", "p99_ms")})
    return found


def _system(rows: Sequence[StoredRow]) -> dict[str, Any]:
    gets, puts, network = _gets_of(rows), _of(rows, PUT), _gets_of(rows, OVER_NETWORK)
    means = [mean for mean, _ in mean_per_node(gets).values()]
    return {
        "gets": len(gets),
        "failed": sum(row["outcome"] != OK for row in gets),
        "outcomes": dict(Counter(row["outcome"] for row in gets)),
        "own_storage": round(1 - len(network) / max(1, len(gets)), 4),
        ALL_GETS: _latencies(gets),
        OVER_NETWORK: _latencies(network),
        "mean_per_node_ms": {
            name: round(float(of(means)), 4)
            for name, of in (("mean", np.mean), ("least", min), ("most", max))
            if means
        },
        "puts": len(puts),
        "puts_failed": sum(row["outcome"] != OK for row in puts),
        "put": _latencies(puts),
        "late_p99_ms": round(float(np.percentile(numbers.values(gets, "late_ms"), 99)), 3),
        "traffic": {
            "put": _traffic(_of(rows, PUT_PHASE), len(puts)),
            "get": _traffic(_of(rows, GET_PHASE), len(gets)),
        },
    }


def _latencies(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Latencies of all requests; a failed get counts with the time until it failed."""
    values = numbers.values(rows, "ms")
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "p50_ms": round(float(np.percentile(values, 50)), 4),
        "p99_ms": round(float(np.percentile(values, 99)), 4),
        "mean_ms": round(float(np.mean(values)), 4),
    }


def _traffic(phase: Sequence[StoredRow], operations: int) -> dict[str, float]:
    """Frames that all nodes sent in a phase, per operation; beacons are included."""
    return {
        "packets_each": round(sum(numbers.values(phase, "packets")) / max(1, operations), 2),
        "bytes_each": round(sum(numbers.values(phase, "bytes")) / max(1, operations), 1),
    }


def presence_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Presence in the settings in which it was measured; empty if there is none."""
    measured = {row["setting"] for row in _of(rows, GONE)}
    chosen = [row for row in rows if row["setting"] in measured]
    if not chosen:
        return {}

    def seconds(kind: str, of: Callable[[list[float]], float]) -> float:
        return round(of(numbers.values(_of(chosen, kind), "ms")) / 1000, 3)

    def bytes_s(kind: str) -> dict[str, float]:
        rates = [float(row["bytes"]) / float(row["seconds"]) for row in _of(chosen, kind)]
        return {"mean": round(float(np.mean(rates)), 2), "most_of_a_device": round(max(rates), 2)}

    first = chosen[0]
    return {
        "nodes": int(first["nodes"]),
        "place": first["place"],
        "period_s": float(first["period_s"]),
        "departure_s": float(first["departure_s"]),
        "all_see_all_s": seconds(SEES_ALL, max),
        "gone_s": {"least": seconds(GONE, min), "most": seconds(GONE, max)},
        "beacon_bytes_s": bytes_s(BEACONS),
        "interface_bytes_s": bytes_s(IDLE),
    }
