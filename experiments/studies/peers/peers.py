"""Devices that share: nothing is lost when they die, and they load the edge less (dissertation, chapter 5).

Two parts that share a name. *Nothing lost*: 20 devices, every key on two of them, devices killed one after
another with time for the hand-over in between. *Cooperative prefetching*: ten visitors' devices, alone and
sharing, before the same edge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
from nearsight.experiments.rig.processes import termination_as_interrupt
from nearsight.experiments.studies.peers.peer_endurance import (
    GONE,
    HANDED_OVER,
    MISCOUNTED,
    POSTPONED,
    REPEATED,
    UNREADABLE,
    Endurance,
    EndurancePlan,
)
from nearsight.experiments.studies.peers.peer_prefetching import (
    ALONE,
    EDGE_BYTES,
    PHOTO,
    REPETITIONS,
    SHARING,
    CooperativePrefetching,
)

ENDURANCE, PREFETCHING = "nothing lost", "prefetching"
MOST_EDGE_BYTES = 0.4
NOT_WORSE = 1.05
"""Latencies of two runs of the same configuration differ by a few per cent."""

FULL = EndurancePlan(
    nodes=20,
    survivors=2,
    keys=10_000,
    value_bytes=128,
    replicas=2,
    merges=5,
    period_s=1.0,
    departure_s=3.0,
)
SMOKE = EndurancePlan(
    nodes=4,
    survivors=2,
    keys=200,
    value_bytes=128,
    replicas=2,
    merges=3,
    period_s=0.3,
    departure_s=0.6,
)
_COLUMNS: Row = {
    "part": "",
    "devices": "",
    "repetition": 0,
    "kind": "",
    "place": "",
    "death": 0,
    "left": 0,
    "expected": "",
    "answered": "",
    "answered_by": "",
    "value": 0.0,
}


class Figure(Experiment):
    """Devices that share: nothing is lost when they die, and less is downloaded from the edge."""

    name: ClassVar[str] = "peers"
    source: ClassVar[str] = "Cachier dissertation, 5.1.1 and 5.3"

    def __init__(self) -> None:
        self._prefetching = CooperativePrefetching(self.name)

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        together = f"{ALONE}+{SHARING}"
        prefetching = [
            (number, configurations)
            for number in range(1 if options.smoke else REPETITIONS)
            for configurations in ([together] if options.smoke else _order(number))
        ]
        return (
            Cell("nothing-lost", {"part": ENDURANCE}),
            *(
                Cell(
                    f"prefetching-{number}-{'both' if options.smoke else names}",
                    {"part": PREFETCHING, "repetition": number, "configurations": names},
                )
                for number, names in prefetching
            ),
        )

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        part = str(cell.parameters["part"])
        rows: Sequence[Row]
        if part == ENDURANCE:
            folder = options.museums.resolve().parent / "testbed" / self.name / cell.key
            plan = SMOKE if options.smoke else FULL
            with termination_as_interrupt():
                rows = Endurance(folder, plan, options.rng(self.name, part), options.seed).run()
        else:
            names = str(cell.parameters["configurations"]).split("+")
            rows = self._prefetching.run(int(cell.parameters["repetition"]), options, names)
        return [{**_COLUMNS, "part": part, **row} for row in rows]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``nothing_lost``, ``prefetching.<configuration>``, and ``ratios``: of each repetition by itself."""
        parts: dict[str, list[StoredRow]] = defaultdict(list)
        for row in rows:
            parts[row["part"]].append(row)
        configurations: dict[str, list[StoredRow]] = defaultdict(list)
        for row in parts[PREFETCHING]:
            configurations[row["devices"]].append(row)
        return {
            "nothing_lost": _endurance(parts[ENDURANCE]),
            "prefetching": {name: _prefetching(group) for name, group in configurations.items()},
            "ratios": _ratios(parts[PREFETCHING]),
        }

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        lost = summary["nothing_lost"]
        alone, sharing = (summary["prefetching"][name] for name in (ALONE, SHARING))
        bytes_ratio = sharing["edge_model_bytes"] / max(1, alone["edge_model_bytes"])
        latencies = [
            Target(
                f"sharing: {name} relative to alone, at most {NOT_WORSE}",
                round(sharing[f"{name}_ms"] / alone[f"{name}_ms"], 4),
                sharing[f"{name}_ms"] <= NOT_WORSE * alone[f"{name}_ms"],
                f"crowd by crowd {_spread(summary['ratios'][name])}",
            )
            for name in ("p50", "p95")
        ]
        recall = sharing["recall"] - alone["recall"]
        return (
            Target("keys that cannot be read, after any death", lost["unreadable"], lost["unreadable"] == 0),
            Target("counters off by, after any death", lost["miscounted"], lost["miscounted"] == 0),
            Target(
                f"sharing: bytes of models from the edge, relative to alone, at most {MOST_EDGE_BYTES}",
                round(bytes_ratio, 4),
                bytes_ratio <= MOST_EDGE_BYTES,
            ),
            *latencies,
            Target("sharing: wrong answers", sharing["wrong"], sharing["wrong"] <= alone["wrong"]),
            Target("sharing: recall relative to alone, at least -0.01", round(recall, 4), recall >= -0.01),
        )

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = [
            (
                name,
                *(
                    f"{one[f'{what}_bytes'] / 1e6:.2f}"
                    for what in ("edge_model", "list", "peer_model", "wasted_model")
                ),
                f"{one['p50_ms']:.1f}",
                f"{one['p95_ms']:.1f}",
                *(f"{100 * one['answered_by'][tier]:.0f} %" for tier in ("device", "edge", "cloud")),
                f"{one['recall']:.3f}",
                one["wrong"],
                one["requests"],
            )
            for name, one in summary["prefetching"].items()
        ]
        columns = ("devices", "from edge MB", "lists MB", "from peers MB", "wasted MB", "p50 ms", "p95 ms")
        return (*columns, "device", "edge", "cloud", "recall", "wrong", "requests"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.peers.peers_picture import draw  # noqa: PLC0415

        return draw(results)


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "not known"
    return f"{min(ratios):.2f} to {max(ratios):.2f}, median {np.median(ratios):.2f}"


def _ratios(rows: Sequence[StoredRow]) -> dict[str, list[float]]:
    """Latency of those who share over that of those who do not, of each crowd."""
    latencies: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kind"] == PHOTO and row["answered_by"]:
            latencies[row["repetition"]][row["devices"]].append(float(row["value"]))
    return {
        f"p{rank}": [
            round(float(np.percentile(one[SHARING], rank) / np.percentile(one[ALONE], rank)), 4)
            for one in latencies.values()
            if ALONE in one and SHARING in one
        ]
        for rank in (50, 95)
    }


def _order(number: int) -> tuple[str, ...]:
    return (ALONE, SHARING) if number % 2 == 0 else (SHARING, ALONE)


def _endurance(rows: Sequence[StoredRow]) -> dict[str, Any]:
    def values(kind: str) -> list[float]:
        return [float(row["value"]) for row in rows if row["kind"] == kind]

    return {
        "place": rows[0]["place"],
        "nodes": max(int(row["left"]) for row in rows),
        "survivors": min(int(row["left"]) for row in rows),
        "deaths": max(int(row["death"]) for row in rows),
        "unreadable": int(sum(values(UNREADABLE))),
        "repeated_reads": int(sum(values(REPEATED))),
        "miscounted": int(max(values(MISCOUNTED))),
        "postponed_merges": int(sum(values(POSTPONED))),
        "noticed_s": {"median": round(float(np.median(values(GONE))), 3), "most": max(values(GONE))},
        "handed_over_s": {
            "median": round(float(np.median(values(HANDED_OVER))), 3),
            "most": max(values(HANDED_OVER)),
        },
    }


def _prefetching(rows: Sequence[StoredRow]) -> dict[str, Any]:
    photos = [row for row in rows if row["kind"] == PHOTO]
    answered = [row for row in photos if row["answered_by"]]
    relevant = [row for row in photos if row["expected"]]
    named = [row for row in photos if row["answered"]]
    correct = sum(row["answered"] == row["expected"] for row in relevant)
    latencies = [float(row["value"]) for row in answered]

    def total(kind: str) -> int:
        return int(sum(float(row["value"]) for row in rows if row["kind"] == kind))

    return {
        "edge_model_bytes": total(EDGE_BYTES),
        "list_bytes": total("list_bytes"),
        "peer_model_bytes": total("peer_bytes"),
        "wasted_model_bytes": total("wasted_bytes"),
        "rejected_models": total("rejected_models"),
        "fetched_models": total("fetched_models"),
        "models_from_peers": total("peer_models"),
        "waited_in_vain": total("waited_in_vain"),
        "p50_ms": round(float(np.percentile(latencies, 50)), 3),
        "p95_ms": round(float(np.percentile(latencies, 95)), 3),
        "answered_by": {
            tier: round(float(np.mean([row["answered_by"] == tier for row in photos])), 4)
            for tier in ("device", "edge", "cloud")
        },
        "recall": round(correct / max(1, len(relevant)), 4),
        "wrong": len(named) - correct,
        "failed": len(photos) - len(answered),
        "requests": len(photos),
    }
