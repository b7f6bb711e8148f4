"""The twin against the testbed: the same traces on real daemons and on the virtual clock.

The twin's costs are fitted at a first point (`twin.fitting`). Then testbed and twin play the baseline of
table 6.2 and two other points, one with more visitors and one with a slow network. There are three
configurations: only cloud, load-balanced edge, and the full system (devices that prefetch, with adaptive
feature extraction, and a bounded edge).

Each of these points is compared on several traces, with other visitors and other training of the edge (6.2.7:
four runs with different traces). A single trace would not be enough: a visitor sends only a few photos of a
few objects. The number of features that a device uses, or the form in which an edge forwards photos, may be a
tie that lasts for a whole visit. All photos of a point are pooled. The trace to which costs are fitted is
played twice instead. The difference between its two sessions limits how precisely the agreement of the twin
can be determined. A disturbed session is repeated, and nothing is fitted to it (`rig.conditions`). A tenth of
the photos show unknown objects. With a twentieth, the 95th percentile would fall into the gap of the
distribution between photos that a tier recognises and those that it forwards. It would then jump across this
gap with every second late photo.

All processes of the testbed share the cores of one machine, and so do the nodes of the twin. The machine's
pace during each session is an input of the twin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.links.link import in_words
from nearsight.experiments.studies.answers import answer_numbers, latencies_ms, photo_row, sent_late_ms
from nearsight.experiments.studies.cachier.scale.configurations import COLOURS
from nearsight.experiments.studies.twin_validation.bench import (
    CONFIGURATIONS_COMPARED,
    FIT,
    POINTS,
    Bench,
    Played,
    simulate,
)
from nearsight.experiments.twin.session import ADAPTIVE, LOAD_BALANCED, ONLY_CLOUD

TESTBED, TWIN = "testbed", "twin"
MOST_ERROR = 0.15
MOST_POINTS = 0.03
_SMOKE_POINTS = (FIT, "baseline")
_NAMES = {ONLY_CLOUD: "only cloud", LOAD_BALANCED: "load-balanced edge", ADAPTIVE: "full system"}
_LINES = {TESTBED: "-", TWIN: "--"}
_LATENCIES, _SHARES = ("p50", "p95"), ("device", "edge")
_COMPARED = (*_LATENCIES, *_SHARES)


class Figure(Experiment):
    """The twin against the testbed on the same traces: latencies and answering tiers."""

    style: ClassVar[Any] = {"axes.grid.axis": "both"}
    name: ClassVar[str] = "twin-validation"
    source: ClassVar[str] = "Cachier dissertation, 6.2"

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per point; costs are fitted at the first."""
        return [{"point": point} for point in (_SMOKE_POINTS if options.smoke else POINTS)]

    def run(self, options: RunOptions, point: str) -> Iterator[Row]:
        """Play a point on testbed and twin; one row per photo."""
        bench = Bench(options)
        both = {trace: bench.sessions(point, POINTS[point], trace) for trace in bench.traces(point)}
        sessions = {trace: session for trace, (session, _) in both.items()}
        played = bench.play_all(sessions[1]) if options.smoke else bench.play_each_alone(point, sessions)
        if point == FIT:
            bench.fit(both[1][1], played)
        costs = bench.costs()
        simulated = [
            one
            for trace, (_, twin) in both.items()
            for one in simulate(replace(twin, costs=costs), [one for one in played if one.trace == trace])
        ]
        for source, found in ((TESTBED, played), (TWIN, simulated)):
            for one in found:
                yield from _rows(point, source, one)

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``points.<point>.<configuration>``: numbers of testbed and twin, and the errors of the twin.

        ``itself`` is the difference between repetitions of one trace on the testbed, ``scatter`` the
        variation between repetitions of the twin. ``traces`` are the errors of each trace alone. Latencies
        are those of the answered photos; ``failed`` counts the others.
        """
        return {"points": numbers.nested(rows, ("point", "tiers"), _compared)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """Errors at all points except that of the fit."""
        for point, tiers, one in numbers.leaves(summary["points"], 2):
            if point != FIT:
                yield from _targets(f"{point}, {tiers}", one, summary["points"][FIT][tiers]["itself"])

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per point and configuration: testbed / twin."""
        for point, tiers, one in numbers.leaves(summary["points"], 2):
            real, twin = (one[TESTBED], one[TWIN])
            yield {
                "point": point,
                "configuration": tiers,
                "p50 ms, testbed / twin": f"{real['p50_ms']:.1f} / {twin['p50_ms']:.1f}",
                "p95 ms": f"{real['p95_ms']:.1f} / {twin['p95_ms']:.1f}",
                **{f"error {key}": f"{100 * one['errors'][key]:+.0f} %" for key in _LATENCIES},
                "testbed, repeated": _shown(one["itself"]),
                **{f"{tier} %": f"{100 * real[tier]:.0f} / {100 * twin[tier]:.0f}" for tier in _SHARES},
                "recall": f"{real['recall']:.3f} / {twin['recall']:.3f}",
                "no answer %": " / ".join(
                    f"{100 * one['failed'] / one['requests']:.1f}" for one in (real, twin)
                ),
                "photos": real["requests"],
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the latency distributions of testbed and twin, one panel per point."""
        found = results.metrics["points"]
        latencies = numbers.nested(results.rows, ("point", "tiers", "source"), latencies_ms)
        picture = drawing.new_picture(3.6 * len(found) + 0.6, 4.4)
        panels = picture.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for axes, (point, one) in zip(panels, found.items(), strict=True):
            _draw_point(axes, point, one, latencies[point])
        panels[0].set_ylabel("share answered within …")
        drawing.legend_below(picture, panels[-1], len(CONFIGURATIONS_COMPARED))
        return picture


def _rows(point: str, source: str, one: Played) -> list[Row]:
    labels: Row = {
        **{"point": point, "source": source, "tiers": one.tiers},
        **{"trace": one.trace, "repetition": one.repetition},
        **{"pace_ms": round(one.conditions.pace_ms, 3), "others": round(one.conditions.others, 4)},
    }
    return [{**labels, **photo_row(row)} for row in one.rows]


def _compared(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Compare testbed and twin in one configuration at one point."""
    sources = numbers.grouped(rows, "source")
    both = {source: _numbers(sources[source]) for source in (TESTBED, TWIN)}
    return {
        **both,
        "errors": _errors(both),
        "itself": _repeatability(sources[TESTBED]),
        "scatter": _scatter(sources[TWIN]),
        "traces": _errors_of_traces(sources[TESTBED], sources[TWIN]),
    }


def _numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    found = answer_numbers(rows)
    p50, p95 = np.percentile(latencies_ms(rows) or [0.0], [50, 95])
    return {
        "p50_ms": round(float(p50), 3),
        "p95_ms": round(float(p95), 3),
        **found.pop("answered_by"),
        **found,
        "sent_bytes": sum(int(row["sent_bytes"]) for row in rows),
        "sent_late_p99_ms": sent_late_ms(rows),
    }


def _value(found: Mapping[str, Any], name: str) -> float:
    return float(found[f"{name}_ms"] if name in _LATENCIES else found[name])


def _error(name: str, value: float, other: float) -> float:
    """Error of a value: for latencies the ratio minus 1 (0 if the other is 0), for shares the difference."""
    if name in _SHARES:
        return round(value - other, 4)
    return round(value / other - 1.0, 4) if other else 0.0


def _errors(both: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {name: _error(name, _value(both[TWIN], name), _value(both[TESTBED], name)) for name in _COMPARED}


def _errors_of_traces(testbed: Sequence[StoredRow], twin: Sequence[StoredRow]) -> dict[str, list[float]]:
    """Errors of each trace alone, in the order of the traces."""
    real, simulated = numbers.grouped(testbed, "trace"), numbers.grouped(twin, "trace")
    errors = [
        _errors({TESTBED: _numbers(rows), TWIN: _numbers(simulated[trace])})
        for trace, rows in real.items()
        if trace in simulated
    ]
    return {name: [one[name] for one in errors] for name in _COMPARED}


def _of_repetitions(rows: Sequence[StoredRow]) -> dict[str, list[float]]:
    sessions = [_numbers(one) for one in numbers.grouped(rows, "repetition").values()]
    return {name: [_value(one, name) for one in sessions] for name in _COMPARED}


def _repeatability(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Difference between repetitions of one trace; empty without repetitions or with several traces."""
    if len(numbers.grouped(rows, "repetition")) < 2 or len(numbers.grouped(rows, "trace")) > 1:
        return {}
    return {name: _error(name, max(some), min(some)) for name, some in _of_repetitions(rows).items()}


def _scatter(rows: Sequence[StoredRow]) -> dict[str, float]:
    """Standard deviation between repetitions over all traces; for latencies relative to their mean.

    It is that of a sample; 0 for a single repetition.
    """
    return {
        name: round(_deviation(some) / (max(1e-3, float(np.mean(some))) if name in _LATENCIES else 1.0), 4)
        for name, some in _of_repetitions(rows).items()
    }


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _shown(itself: Mapping[str, float]) -> str:
    return f"{100 * itself['p50']:.0f}, {100 * itself['p95']:.0f} %" if itself else ""


def _targets(where: str, one: Mapping[str, Any], itself: Mapping[str, float]) -> Iterator[Target]:
    """``itself``: difference between two sessions of the testbed with the same trace."""
    for name in _COMPARED:
        text, most, unit = f"error of {name}, at most 0.15", MOST_ERROR, "%"
        if name in _SHARES:
            text = f"share answered by the {name}, twin minus testbed, at most 0.03"
            most, unit = MOST_POINTS, "points"
        traces = [f"{100 * error:+.0f}" for error in one["traces"][name]]
        note = f"{', '.join(traces)} {unit} on each trace alone; " if len(traces) > 1 else ""
        if itself:
            same = "two sessions of the testbed with the same photos differ by"
            note += f"{same} {100 * itself[name]:.0f} {unit}, "
        note += f"runs of the twin vary by {100 * one['scatter'][name]:.0f} {unit}"
        error = one["errors"][name]
        yield Target(f"{where}: {text}", error, abs(error) <= most, note)


def _draw_point(axes: Axes, point: str, found: Mapping[str, Any], latencies: Mapping[str, Any]) -> None:
    lines = []
    for tiers in CONFIGURATIONS_COMPARED:
        for source, style in _LINES.items():
            drawing.distribution(
                axes,
                latencies[tiers][source],
                whole=found[tiers][source]["requests"],
                color=COLOURS[tiers],
                linestyle=style,
                linewidth=1.6,
                label=f"{_NAMES[tiers]}, {source}",
            )
        errors = found[tiers]["errors"]
        lines.append(f"{_NAMES[tiers]}: {100 * errors['p50']:+.0f} %, {100 * errors['p95']:+.0f} %")
    what = f"{point} (costs are fitted here)" if point == FIT else point
    axes.set_title(f"{what}\n{in_words(POINTS[point].link)}")
    axes.set(xscale="log", ylim=(0, 1.02))
    drawing.plain_logarithmic(axes.xaxis)
    axes.tick_params(axis="x", labelrotation=60)
    axes.set_xlabel("latency [ms]\nThe twin's error of p50, p95:\n" + "\n".join(lines), fontsize=8)
