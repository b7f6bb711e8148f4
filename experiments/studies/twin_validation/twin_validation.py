"""The twin against the testbed: the same traces on real daemons and on the virtual clock.

A first point fits the twin's costs (`simulation/fitting.py`). Then both run the baseline of table 6.2 and two
other points, more visitors and a slow network, each with visitors of its own: only cloud, load-balanced edge,
and the full system (devices that prefetch, with adaptive feature extraction, before a bounded edge).

Each of these points is compared on several traces, with other visitors and another teaching of the edge
(6.2: four runs with different traces): a visitor sends a few photos of a few objects, and with how many
features its device looks for them, or in which form an edge passes them on, may be a tie for a whole visit.
All photos of a point count together. The trace that costs are fitted to is played twice instead: how far the
testbed is from itself says how well the twin can be known to agree with it. A session that was disturbed is
played again, and nothing is fitted to one (`testbed/conditions.py`). A tenth of the photos show what nobody
knows. With a twentieth, the 95th percentile would be where the distribution has a gap, between the photos
that a tier knows and those that go on, and would jump across it with every second photo that is late.

All processes of the testbed share the cores of one machine, and so do the nodes of the twin. What the pace
of the machine is during a session, the twin is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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
from nearsight.experiments.studies.twin_validation.twin_bench import FIT, POINTS, Bench, Played, simulate

TESTBED, TWIN = "testbed", "twin"
MOST_ERROR = 0.15
MOST_POINTS = 0.03
_SMOKE_POINTS = (FIT, "baseline")
_COLUMNS = (
    *("visitor", "number", "time_s", "late_ms", "expected", "answered", "outcome", "answered_by"),
    *("latency_ms", "sent_bytes", "edge_queue_ms", "edge_compute_ms", "edge_next_tier_ms"),
    *("cloud_queue_ms", "cloud_compute_ms"),
)
_TWO = 2


class Figure(Experiment):
    """The simulation against the testbed, on the same traces: latency and who answered."""

    style: ClassVar[Any] = {"axes.grid.axis": "both"}
    name: ClassVar[str] = "twin-validation"
    source: ClassVar[str] = "Cachier dissertation, 6.2"

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:  # noqa: D102
        points = _SMOKE_POINTS if options.smoke else tuple(POINTS)
        return tuple(Cell(point.replace(" ", "-"), {"point": point}) for point in points)

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:  # noqa: D102
        name = str(cell.parameters["point"])
        bench = Bench(options)
        both = {trace: bench.sessions(name, POINTS[name], trace) for trace in bench.traces(name)}
        sessions = {trace: session for trace, (session, _) in both.items()}
        played = bench.together(sessions[1]) if options.smoke else bench.one_by_one(name, sessions)
        if name == FIT:
            bench.fit(both[1][1], played)
        costs = bench.costs()
        simulated = [
            one
            for trace, (_, twin) in both.items()
            for one in simulate(replace(twin, costs=costs), [one for one in played if one.trace == trace])
        ]
        return [
            row
            for source, sessions in ((TESTBED, played), (TWIN, simulated))
            for one in sessions
            for row in _rows(name, source, one)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``points.<point>.<configuration>``: numbers of testbed and twin, and the errors of the twin.

        ``itself`` is how far repetitions of one trace are from each other on the testbed, ``scatter`` how far
        those of the twin are; ``traces`` are the errors of each trace alone.
        """
        groups: dict[tuple[str, str, str], list[StoredRow]] = defaultdict(list)
        for row in rows:
            groups[row["point"], row["tiers"], row["source"]].append(row)
        found: dict[str, Any] = {}
        for point, tiers in dict.fromkeys((point, tiers) for point, tiers, _ in groups):
            both = {source: _numbers(groups[point, tiers, source]) for source in (TESTBED, TWIN)}
            found.setdefault(point, {})[tiers] = {
                **both,
                "errors": _errors(both),
                "itself": _from_itself(groups[point, tiers, TESTBED]),
                "scatter": _scatter(groups[point, tiers, TWIN]),
                "traces": _errors_of_traces(groups[point, tiers, TESTBED], groups[point, tiers, TWIN]),
            }
        return {"points": found}

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:  # noqa: D102
        return tuple(
            target
            for point, configurations in summary["points"].items()
            if point != FIT
            for tiers, one in configurations.items()
            for target in _targets(f"{point}, {tiers}", one, summary["points"][FIT][tiers]["itself"])
        )

    def table(  # noqa: D102
        self, summary: Mapping[str, Any]
    ) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        rows = []
        for point, configurations in summary["points"].items():
            for tiers, one in configurations.items():
                real, twin, errors = one[TESTBED], one[TWIN], one["errors"]
                rows.append(
                    (
                        point,
                        tiers,
                        *(f"{real[key]:.1f} / {twin[key]:.1f}" for key in ("p50_ms", "p95_ms")),
                        *(f"{100 * errors[key]:+.0f} %" for key in ("p50", "p95")),
                        _shown(one["itself"]),
                        *(f"{100 * real[tier]:.0f} / {100 * twin[tier]:.0f}" for tier in ("device", "edge")),
                        f"{real['recall']:.3f} / {twin['recall']:.3f}",
                        real["requests"],
                    )
                )
        columns = ("point", "configuration", "p50 ms", "p95 ms", "error p50", "error p95", "testbed itself")
        return (*columns, "device %", "edge %", "recall", "photos"), rows

    def draw(self, results: Results) -> Picture:  # noqa: D102
        from nearsight.experiments.studies.twin_validation.twin_validation_picture import draw  # noqa: PLC0415

        return draw(results)


def _rows(point: str, source: str, one: Played) -> list[Row]:
    labels: Row = {
        **{"point": point, "source": source, "tiers": one.tiers},
        **{"trace": one.trace, "repetition": one.repetition},
    }
    under: Row = {"pace_ms": round(one.conditions.pace_ms, 3), "others": round(one.conditions.others, 4)}
    found: list[Row] = []
    for row in one.rows:
        values = asdict(row)
        found.append({**labels, **{name: values[name] for name in _COLUMNS}, **under})
    return found


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    latencies = [float(row["latency_ms"]) for row in rows if row["answered_by"]]
    relevant = [row for row in rows if row["expected"]]
    p50, p95 = np.percentile(latencies, [50, 95]) if latencies else (0.0, 0.0)
    late = np.percentile([float(row["late_ms"]) for row in rows], 99)
    return {
        "p50_ms": round(float(p50), 3),
        "p95_ms": round(float(p95), 3),
        **{
            tier: round(float(np.mean([row["answered_by"] == tier for row in rows])), 4)
            for tier in ("device", "edge", "cloud")
        },
        "recall": round(
            sum(row["answered"] == row["expected"] for row in relevant) / max(1, len(relevant)), 4
        ),
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
        "sent_bytes": sum(int(row["sent_bytes"]) for row in rows),
        "sent_late_p99_ms": round(float(late), 2),
    }


def _errors(both: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    real, twin = both[TESTBED], both[TWIN]
    relative = {
        name: round(twin[f"{name}_ms"] / real[f"{name}_ms"] - 1.0, 4) if real[f"{name}_ms"] else 0.0
        for name in ("p50", "p95")
    }
    return {**relative, **{tier: round(twin[tier] - real[tier], 4) for tier in ("device", "edge")}}


def _errors_of_traces(testbed: Sequence[StoredRow], twin: Sequence[StoredRow]) -> dict[str, list[float]]:
    """Errors of each trace by itself, in the order of the traces."""
    real, simulated = _by(testbed, "trace"), _by(twin, "trace")
    errors = [
        _errors({TESTBED: _numbers(rows), TWIN: _numbers(simulated[trace])})
        for trace, rows in real.items()
        if trace in simulated
    ]
    return {name: [one[name] for one in errors] for name in ("p50", "p95", "device", "edge")}


def _from_itself(rows: Sequence[StoredRow]) -> dict[str, float]:
    """How far repetitions of the same trace are from each other; empty if there are none, or several traces.

    Latencies: the largest over the least, less 1; shares: the largest less the least.
    """
    sessions = [_numbers(one) for one in _by(rows, "repetition").values()]
    if len(sessions) < _TWO or len(_by(rows, "trace")) > 1:
        return {}
    latencies = {name: [one[f"{name}_ms"] for one in sessions] for name in ("p50", "p95")}
    shares = {tier: [one[tier] for one in sessions] for tier in ("device", "edge")}
    return {
        **{name: round(max(some) / max(1e-3, min(some)) - 1.0, 4) for name, some in latencies.items()},
        **{tier: round(max(some) - min(some), 4) for tier, some in shares.items()},
    }


def _scatter(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Standard deviation between repetitions of all traces, of latencies as a share of their mean."""
    sessions = [_numbers(one) for one in _by(rows, "repetition").values()]
    found = {}
    for name in ("p50", "p95"):
        values = [one[f"{name}_ms"] for one in sessions]
        found[name] = round(float(np.std(values) / max(1e-3, np.mean(values))), 4)
    return {
        **found,
        **{tier: round(float(np.std([one[tier] for one in sessions])), 4) for tier in ("device", "edge")},
    }


def _by(rows: Sequence[StoredRow], column: str) -> dict[str, list[StoredRow]]:
    found: dict[str, list[StoredRow]] = defaultdict(list)
    for row in rows:
        found[row.get(column, "")].append(row)
    return found


def _shown(itself: Mapping[str, float]) -> str:
    return f"{100 * itself['p50']:.0f}, {100 * itself['p95']:.0f} %" if itself else ""


def _note(one: Mapping[str, Any], itself: Mapping[str, float], name: str, unit: str) -> str:
    """What the error is made of, and how far sessions of the same kind are from each other."""
    traces = [f"{100 * error:+.0f}" for error in one["traces"][name]]
    alone = f"{', '.join(traces)} {unit} on each trace alone; " if len(traces) > 1 else ""
    same = "two sessions of the testbed with the same photos differ by"
    ours = f"{same} {100 * itself[name]:.0f} {unit}, " if itself else ""
    return f"{alone}{ours}runs of the twin scatter by {100 * one['scatter'][name]:.0f} {unit}"


def _targets(where: str, one: Mapping[str, Any], itself: Mapping[str, float]) -> list[Target]:
    """``itself``: how far the testbed is from itself where it played the same trace twice."""
    errors = one["errors"]
    return [
        *(
            Target(
                f"{where}: error of {name}, at most 0.15",
                errors[name],
                abs(errors[name]) <= MOST_ERROR,
                _note(one, itself, name, "%"),
            )
            for name in ("p50", "p95")
        ),
        *(
            Target(
                f"{where}: share answered by the {tier}, twin minus testbed, at most 0.03",
                errors[tier],
                abs(errors[tier]) <= MOST_POINTS,
                _note(one, itself, tier, "points"),
            )
            for tier in ("device", "edge")
        ),
    ]
