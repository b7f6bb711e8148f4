"""Summary of a sweep: latency, accuracy and costs of the tiers, per configuration and point.

It is computed from the stored results of the cells. Latencies and costs are medians over the runs, which had
different visitors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.experiments.links.calibration import TARGET_ERROR, TARGET_RTT_ERROR_MS
from nearsight.experiments.rig.rows import (
    LATE_MS,
    Metrics,
    latency_in_words,
    latency_percentile,
    latency_percentiles,
    latency_split,
    read_request_rows,
    summarise,
)
from nearsight.experiments.testbed.campaign import BASELINE, Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS, FACTS = "requests.csv", "cell.json"
_TO_CLOUD = "/link-to-cloud"
_COLOURS = ("#c2571a", "#e0a33a", "#8a8f3c", "#1f6f8b", "#24415c", "#8c5a8c", "#5c5c5c")


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """Errors of the shaped links, from their own calibration."""

    links: int = 0
    off: int = 0
    """Number of links in all runs, and of those outside the target."""
    delay_ms: float = 0.0
    rate_percent: float = 0.0
    """The largest errors [ms, %]."""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """One configuration at one point."""

    configuration: str
    point: str
    """Names of both."""
    metrics: Metrics
    """Metrics of all runs together."""
    each_run_ms: Mapping[str, Sequence[float]]
    """"p50" and "p95" of every run [ms]."""
    split_ms: Mapping[str, float]
    """Mean time of a request on the tiers, in their queues, and in transit [ms]."""
    cpu_percent: Mapping[str, float]
    """CPU use of "edge" and "cloud" during the replay [% of a core]."""
    cloud_bytes: float | None
    """Bytes to and from the cloud per request; None without links that count them."""
    links: LinkErrors
    """Errors of the links at their calibration."""
    late_ms: Mapping[str, float]
    """Runs in which photos were sent late, with the 99th percentile of the delay [ms]."""
    timeout_s: float
    """Deadline of each request [s]; in percentiles, requests without an answer count with at least this."""
    commits: Sequence[str]
    """Commits of nearsight at which the runs were measured; empty text: unknown."""


def summarise_sweep(cells: Sequence[Cell], out: Path, timeout_s: float) -> tuple[PartSummary, ...]:
    """One summary per configuration and point, in the order of the cells; all cells must be measured."""
    runs: dict[tuple[str, str], list[Path]] = {}
    for cell in cells:
        runs.setdefault((cell.configuration, cell.point.name), []).append(out / cell.name)
    return tuple(_summary(*names, folders, timeout_s) for names, folders in runs.items())


def _summary(configuration: str, point: str, folders: Sequence[Path], timeout_s: float) -> PartSummary:
    rows = [read_request_rows(folder / ROWS) for folder in folders]
    facts = [json.loads((folder / FACTS).read_text()) for folder in folders]
    found = [latencies for run in rows if (latencies := latency_percentiles(run, timeout_s))]
    together = [row for run in rows for row in run]
    counted = [
        passed / len(run)
        for run, one in zip(rows, facts, strict=True)
        if (passed := _cloud_bytes(one)) is not None
    ]
    return PartSummary(
        configuration,
        point,
        metrics=summarise(together, timeout_s),
        each_run_ms={name: tuple(one[name] for one in found) for name in ("p50", "p95")},
        split_ms=latency_split(together),
        cpu_percent={
            tier: float(np.median([_cpu_percent(one, tier) for one in facts])) for tier in ("edge", "cloud")
        },
        cloud_bytes=float(np.median(counted)) if counted else None,
        links=_link_errors(
            [daemon["calibration"] for one in facts for daemon in one["daemons"] if daemon["calibration"]]
        ),
        late_ms={
            folder.name: late_ms
            for folder, run in zip(folders, rows, strict=True)
            if (late_ms := summarise(run, timeout_s).sent_late_ms) > LATE_MS
        },
        timeout_s=timeout_s,
        commits=tuple(dict.fromkeys(one["environment"]["commit"] for one in facts)),
    )


def _link_errors(found: Sequence[Mapping[str, Any]]) -> LinkErrors:
    rates = ("up_error_percent", "down_error_percent")
    return LinkErrors(
        links=len(found),
        off=sum(not one["within_target"] for one in found),
        delay_ms=max((abs(one["rtt_error_ms"]) for one in found), default=0.0),
        rate_percent=max((abs(one[name]) for one in found for name in rates), default=0.0),
    )


def _cpu_percent(facts: Mapping[str, Any], tier: str) -> float:
    used = (
        cpu_s
        for name, cpu_s in facts["cpu_s"].items()
        if name.partition("/")[2].split("-")[0] == tier  # "box/edge-main"
    )
    return 100 * float(sum(used)) / float(facts["seconds"])


def _cloud_bytes(facts: Mapping[str, Any]) -> int | None:
    """Bytes on links to the cloud, without links that continue through another link."""
    counts = [
        link["up_bytes"] + link["down_bytes"]
        for name, link in facts["links"].items()
        if name.endswith(_TO_CLOUD) and not link["via"]
    ]
    return sum(counts) if counts else None


@dataclass(frozen=True, slots=True)
class Table:
    """A table with headings for the terminal."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def tables(parts: Sequence[PartSummary]) -> tuple[Table, Table]:
    """Latency, and accuracy with costs; each table is narrow enough for a terminal."""
    runs = max((len(part.each_run_ms["p50"]) for part in parts), default=0)
    spread = f": median over {runs} runs (least\N{EN DASH}most)" if runs > 1 else ""
    first = ("configuration", "point")
    return (
        Table(
            f"Latency{spread}",
            (*first, "answered", "p50 ms", "p95 ms"),
            [(part.configuration, part.point, *_latency_cells(part)) for part in parts],
        ),
        Table(
            "Accuracy [%], CPU [% of a core], KB per photo to and from the cloud",
            (*first, "recall", "precision", "edge CPU", "cloud CPU", "cloud KB"),
            [(part.configuration, part.point, *_cost_cells(part)) for part in parts],
        ),
    )


def _latency_cells(part: PartSummary) -> tuple[str, ...]:
    found = part.metrics
    each = (_latency(part.each_run_ms[name], part.timeout_s) for name in ("p50", "p95"))
    return (f"{found.answered}/{found.requests}", *each)


def _cost_cells(part: PartSummary) -> tuple[str, ...]:
    found = part.metrics
    return (
        *(_or_dash(one, 0.01) for one in (found.recall, found.precision)),
        *(f"{part.cpu_percent[tier]:.1f}" for tier in ("edge", "cloud")),
        _or_dash(part.cloud_bytes, 1000),
    )


def notes(parts: Sequence[PartSummary]) -> list[str]:
    """Remarks on the tables: errors of the links, runs whose photos were sent late, and several commits."""
    links = [part.links for part in parts if part.links.links]
    found = []
    if links:
        off, count = sum(one.off for one in links), sum(one.links for one in links)
        found.append(
            f"Links differed from the request by at most {max(one.delay_ms for one in links):.2f} ms and "
            f"{max(one.rate_percent for one in links):.1f} %; {off} of {count} missed the target "
            f"({TARGET_RTT_ERROR_MS} ms or {100 * TARGET_ERROR:.0f} % of the delay, "
            f"{100 * TARGET_ERROR:.0f} % of the rate){', as on a busy machine' if off else ''}"
        )
    late = [
        f"{part.configuration}/{part.point}/{run} ({late_ms:.0f} ms)"
        for part in parts
        for run, late_ms in part.late_ms.items()
    ]
    if late:
        found.append(
            f"A machine was overloaded, photos were sent late (99th percentile): {', '.join(late)}. "
            "These latencies are not valid: remove these folders, and the same command measures them again"
        )
    commits = dict.fromkeys(commit or "unknown" for part in parts for commit in part.commits)
    if len(commits) > 1:
        found.append(
            f"Runs were measured at several commits of nearsight: {', '.join(commits)}. "
            "With --fresh, the same command measures all of them again"
        )
    return found


def _latency(runs: Sequence[float], timeout_s: float) -> str:
    if not runs:
        return "-"
    middle, least, most = (
        latency_in_words(value, timeout_s)
        for value in (latency_percentile(runs, 50, timeout_s), min(runs), max(runs))
    )
    return f"{middle} ({least}\N{EN DASH}{most})" if len(runs) > 1 else middle


def _or_dash(value: float | None, unit: float) -> str:
    """A number in a unit, such as 0.01 for percent; a dash if there is none."""
    return "-" if value is None else f"{value / unit:.1f}"


def draw(parts: Sequence[PartSummary], path: Path, baseline: Mapping[str, int]) -> Path:
    """Draw the picture; returns its path. ``baseline`` has the values of the variables at the baseline."""
    import matplotlib as mpl  # noqa: PLC0415  a sweep can be summarised without it
    from matplotlib.figure import Figure  # noqa: PLC0415

    from nearsight.experiments.framework.drawing import STYLE, plain_logarithmic, save  # noqa: PLC0415

    points = list(dict.fromkeys(part.point for part in parts))
    variables = list(dict.fromkeys(_variable(point) for point in points if point != BASELINE)) or [""]
    with mpl.rc_context(STYLE):
        picture = Figure(figsize=(3.2 + 3.4 * len(variables), 3.8), layout="constrained")
        panels = picture.subplots(1, len(variables), squeeze=False, sharey=True)[0]
        for axes, variable in zip(panels, variables, strict=True):
            chosen = [point for point in points if point == BASELINE or _variable(point) == variable]
            labels_of = {point: _value(point, variable, baseline) for point in chosen}
            _panel(axes, parts, dict(sorted(labels_of.items(), key=_order)), variable)
            plain_logarithmic(axes.yaxis)
        panels[0].set_ylabel("latency [ms]")
        handles, labels = panels[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside right center")
        picture.suptitle(
            "Latency: points are medians, lines reach to 95th percentiles; both are medians over the runs.\n"
            "A triangle is at least that latency, as requests without an answer count with the timeout.",
            fontsize=8.5,
            color="#555555",
        )
        save(picture, path)
    return path


def _variable(point: str) -> str:
    return point.partition("-")[0]


def _value(point: str, variable: str, baseline: Mapping[str, int]) -> str:
    """Value of the variable at a point; "all" classes are those of the database."""
    if point != BASELINE:
        return point.removeprefix(f"{variable}-")
    return str(baseline[variable] or "all") if variable in baseline else BASELINE


def _order(labelled: tuple[str, str]) -> tuple[bool, int]:
    """Sort key: numbers by value, then other labels in the order of the file."""
    label = labelled[1]
    return not label.isdigit(), int(label) if label.isdigit() else 0


def _panel(axes: Axes, parts: Sequence[PartSummary], points: Mapping[str, str], variable: str) -> None:
    """Draw one variable: a marker per configuration and point, side by side; points have labels."""
    names = list(dict.fromkeys(part.configuration for part in parts))
    timeout_s = parts[0].timeout_s
    for index, name in enumerate(names):
        found = {part.point: part for part in parts if part.configuration == name}
        places, p50, p95 = [], [], []
        for place, point in enumerate(points):
            runs = found[point].each_run_ms
            if runs["p50"]:
                places.append(place + (index - (len(names) - 1) / 2) * 0.8 / len(names))
                p50.append(latency_percentile(runs["p50"], 50, timeout_s))
                p95.append(latency_percentile(runs["p95"], 50, timeout_s))
        colour = _COLOURS[index % len(_COLOURS)]
        axes.plot(places, p50, "o", markersize=4, color=colour, label=name)
        axes.vlines(places, p50, p95, color=colour, linewidth=1)
        bounds = [pair for pair in zip(places, p95, strict=True) if pair[1] >= 1000 * timeout_s]
        if bounds:
            axes.plot(*zip(*bounds, strict=True), "^", markersize=6, color=colour)
    axes.set_xticks(range(len(points)), list(points.values()))
    axes.set_title(variable or "all configurations")
    axes.set_yscale("log")
