"""The demo's figure: latency over time, its distribution, the answering tiers, and bytes on the link.

Reads ``requests.csv`` and ``summary.json`` of a demo's folder and writes ``demo.png``; needs no display.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nearsight.experiments.framework.drawing import (
    STYLE,
    TIER_COLOURS,
    distribution,
    plain_logarithmic,
    save,
    stacked_bars,
)
from nearsight.experiments.rig.rows import (
    RequestRow,
    counted_latencies_ms,
    latency_in_words,
    latency_percentiles,
    read_request_rows,
)

ROWS, SUMMARY, PICTURE = "requests.csv", "summary.json", "demo.png"
"""Names of the result files of a demo."""
CONFIGURATION_COLOURS = {
    "only-cloud": "#c2571a",
    "edge-cache": "#1f6f8b",
    "edge-cache-compared": "#7a9e3b",
    "without-cloud": "#8a4f9e",
}
_MEDIAN_OVER_S = 5.0
"""Length of the window of a running median [s]."""
_BELOW: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}


def plot(folder: Path) -> Path:
    """Draw ``demo.png`` from the files in ``folder`` and return its path."""
    rows = read_request_rows(folder / ROWS)
    summary = json.loads((folder / SUMMARY).read_text())
    timeout_s = summary["scenario"]["timeout_s"]
    by_configuration: dict[str, list[RequestRow]] = {}
    for row in rows:
        by_configuration.setdefault(row.configuration, []).append(row)
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        figure = Figure(figsize=(11, 7.2), layout="constrained")
        ((over_time, distribution), (answered_by, link)) = figure.subplots(2, 2)
        _latency_over_time(over_time, by_configuration, timeout_s)
        _latency_distribution(distribution, by_configuration, timeout_s)
        _tiers(answered_by, by_configuration)
        _link_bytes(link, summary["configurations"])
        figure.suptitle(_title(summary), fontsize=11)
        path = folder / PICTURE
        save(figure, path, dpi=150)
    return path


def _title(summary: Mapping[str, Any]) -> str:
    scenario = summary["scenario"]
    link = scenario["link"]
    return (
        f"{scenario['visitors']} visitors, one photo per second each; {scenario['objects']} objects, "
        f"{scenario['sections']} x {scenario['exhibits_per_section']} on show; "
        f"link to the cloud {link['rtt_ms']:g} ms RTT, {link['up_mbps']:g} Mbit/s"
    )


def _latency_over_time(
    axes: Axes, by_configuration: Mapping[str, Sequence[RequestRow]], timeout_s: float
) -> None:
    for name, rows in by_configuration.items():
        answered = [row for row in rows if row.is_answered]
        colour = CONFIGURATION_COLOURS.get(name)
        times_s, latencies_ms = [row.time_s for row in answered], [row.latency_ms for row in answered]
        axes.scatter(times_s, latencies_ms, s=8, alpha=0.35, color=colour, linewidths=0)
        all_times_s = np.array([row.time_s for row in rows])
        medians = _running_median(all_times_s, np.array(counted_latencies_ms(rows, timeout_s)))
        axes.plot(*medians, color=colour, linewidth=2, label=name)
        failed = [row for row in rows if not row.is_answered and np.isfinite(row.latency_ms)]
        axes.scatter(
            [row.time_s for row in failed],
            [row.latency_ms for row in failed],
            marker="x",
            color=colour,
            label=f"{name}: failed" if failed else None,
        )
    axes.set(
        title=f"Latency of each request, and median over {_MEDIAN_OVER_S:g} s",
        xlabel="time in the trace [s]",
        ylabel="latency [ms]",
    )
    if _any_latency(by_configuration):
        plain_logarithmic(axes.yaxis)
    axes.legend(**_BELOW, ncols=4)


def _running_median(
    times_s: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> tuple[list[float], list[float]]:
    """Times in steps of one second, and the median of the values around each; only where there are values."""
    centres: list[float] = []
    medians: list[float] = []
    for centre in np.arange(0, times_s.max() + 1, 1.0):
        window = values[np.abs(times_s - centre) <= _MEDIAN_OVER_S / 2]
        if len(window):
            centres.append(float(centre))
            medians.append(float(np.median(window)))
    return centres, medians


def _latency_distribution(
    axes: Axes, by_configuration: Mapping[str, Sequence[RequestRow]], timeout_s: float
) -> None:
    for name, rows in by_configuration.items():
        latencies_ms = [row.latency_ms for row in rows if row.is_answered]
        colour = CONFIGURATION_COLOURS.get(name)
        found = latency_percentiles(rows, timeout_s)
        p50, p95 = (latency_in_words(found[name], timeout_s) for name in ("p50", "p95"))
        failed = len(rows) - len(latencies_ms)
        label = f"{name}: p50 {p50} ms, p95 {p95} ms{f', {failed} failed' if failed else ''}"
        distribution(axes, latencies_ms, whole=len(rows), color=colour, linewidth=2, label=label)
        for ms, share in ((found["p50"], 0.5), (found["p95"], 0.95)):
            if ms < 1000 * timeout_s:
                axes.plot([ms], [share], "o", color=colour, markersize=4)
    axes.set(
        title="Share of requests answered within …",
        xlabel="latency [ms]",
        ylabel="share of requests",
        ylim=(0, 1.02),
    )
    if _any_latency(by_configuration):
        plain_logarithmic(axes.xaxis)
    axes.legend(**_BELOW)


def _any_latency(by_configuration: Mapping[str, Sequence[RequestRow]]) -> bool:
    """Whether there is a positive latency, which a logarithmic axis requires."""
    return any(row.latency_ms > 0 for rows in by_configuration.values() for row in rows)


def _tiers(axes: Axes, by_configuration: Mapping[str, Sequence[RequestRow]]) -> None:
    shares = {
        tier: [_share(rows, tier) for rows in by_configuration.values()] for tier in (*TIER_COLOURS, "none")
    }
    shown = {tier: values for tier, values in shares.items() if any(values)}
    colours = {**TIER_COLOURS, "none": "#999999"}
    stacked_bars(axes, list(by_configuration), shown, colours, height=0.55, numbers="white", least=4)
    axes.set(title="Answered by", xlabel="share of requests [%]", xlim=(0, 100))
    axes.grid(visible=False, axis="y")
    axes.legend(**_BELOW, ncols=4)


def _megabytes(value: float) -> str:
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _share(rows: Sequence[RequestRow], tier: str) -> float:
    hits = sum((row.answered_by if row.is_answered else "none") == tier for row in rows)
    return 100 * hits / len(rows) if rows else 0.0


def _link_bytes(axes: Axes, configurations: Mapping[str, Any]) -> None:
    names = [name for name, result in configurations.items() if "to-cloud" in result["bytes"]]
    positions = np.arange(len(names))
    for offset, direction, label in ((-0.2, "up", "to the cloud"), (0.2, "down", "from the cloud")):
        megabytes = [configurations[name]["bytes"]["to-cloud"][direction] / 1e6 for name in names]
        colours = [CONFIGURATION_COLOURS.get(name, "#555555") for name in names]
        bars = axes.barh(
            positions + offset,
            megabytes,
            height=0.36,
            color=colours,
            alpha=1.0 if direction == "up" else 0.55,
        )
        axes.bar_label(bars, [f" {_megabytes(value)} MB {label}" for value in megabytes], padding=2)
    axes.set_yticks(positions, names)
    axes.set(title="Bytes on the link to the cloud", xlabel="megabytes")
    axes.margins(x=0.6)
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
