"""What a sweep found: per configuration and point latency, accuracy, and what it cost the tiers.

Read from what the parts left; nothing is measured here. Latencies and costs are medians over the runs, which
had different visitors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearsight.experiments.testbed.campaign import Cell
from nearsight.experiments.testbed.metrics import Metrics, latency_percentiles, latency_split, summarise
from nearsight.experiments.testbed.rows import read_request_rows

ROWS, FACTS = "requests.csv", "cell.json"
_TO_CLOUD = "/link-to-cloud"


@dataclass(frozen=True, slots=True)
class PartSummary:
    """One configuration at one point.

    Attributes
    ----------
    configuration, point : str
        Which.
    metrics : Metrics
        Of all runs together.
    each_run_ms : mapping of str to tuple of float
        "p50" and "p95" of every run that had answers [ms].
    split_ms : mapping of str to float
        Mean time of a request on the tiers, in their queues, and on the way [ms].
    cpu_percent : mapping of str to float
        Of "edge" and "cloud" during the replay, 100 being one core.
    cloud_bytes : float or None
        To and from the cloud, per request; None without links that count them.
    """

    configuration: str
    point: str
    metrics: Metrics
    each_run_ms: Mapping[str, Sequence[float]]
    split_ms: Mapping[str, float]
    cpu_percent: Mapping[str, float]
    cloud_bytes: float | None


def summarise_sweep(cells: Sequence[Cell], out: Path) -> tuple[PartSummary, ...]:
    """One summary per configuration and point, in the order of the cells, which all were measured."""
    runs: dict[tuple[str, str], list[Path]] = {}
    for cell in cells:
        runs.setdefault((cell.configuration, cell.point.name), []).append(out / cell.name)
    return tuple(_summary(*names, folders) for names, folders in runs.items())


def _summary(configuration: str, point: str, folders: Sequence[Path]) -> PartSummary:
    rows = [read_request_rows(folder / ROWS) for folder in folders]
    facts = [json.loads((folder / FACTS).read_text()) for folder in folders]
    found = [latencies for run in rows if (latencies := latency_percentiles(run))]
    together = [row for run in rows for row in run]
    counted = [
        passed / len(run)
        for run, one in zip(rows, facts, strict=True)
        if (passed := _cloud_bytes(one)) is not None
    ]
    return PartSummary(
        configuration,
        point,
        metrics=summarise(together),
        each_run_ms={name: tuple(one[name] for one in found) for name in ("p50", "p95")},
        split_ms=latency_split(together),
        cpu_percent={
            tier: float(np.median([_cpu_percent(one, tier) for one in facts])) for tier in ("edge", "cloud")
        },
        cloud_bytes=float(np.median(counted)) if counted else None,
    )


def _cpu_percent(facts: Mapping[str, Any], tier: str) -> float:
    used = (
        cpu_s
        for name, cpu_s in facts["cpu_s"].items()
        if name.partition("/")[2].split("-")[0] == tier  # "box/edge-main"
    )
    return 100 * float(sum(used)) / float(facts["seconds"])


def _cloud_bytes(facts: Mapping[str, Any]) -> int | None:
    """Of links to the cloud, but not of those that go on through another."""
    counts = [
        link["up_bytes"] + link["down_bytes"]
        for name, link in facts["links"].items()
        if name.endswith(_TO_CLOUD) and not link["via"]
    ]
    return sum(counts) if counts else None


def table(parts: Sequence[PartSummary]) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Columns and rows for a person."""
    columns = ("configuration", "point", "photos", "answered", "p50 ms", "p95 ms", "recall %", "precision %")
    costs = ("edge CPU %", "cloud CPU %", "KB/photo to cloud", "sent late p99 ms")
    return (*columns, *costs), [_line(part) for part in parts]


def _line(part: PartSummary) -> tuple[object, ...]:
    found = part.metrics
    return (
        part.configuration,
        part.point,
        found.requests,
        found.answered,
        *(_latency(part.each_run_ms[name]) for name in ("p50", "p95")),
        *(_or_dash(None if one is None else 100 * one, 1) for one in (found.recall, found.precision)),
        *(f"{part.cpu_percent[tier]:.1f}" for tier in ("edge", "cloud")),
        _or_dash(None if part.cloud_bytes is None else part.cloud_bytes / 1000, 1),
        f"{found.sent_late_ms:.0f}",
    )


def _latency(runs: Sequence[float]) -> str:
    if len(runs) < 2:
        return f"{runs[0]:.0f}" if runs else "-"
    return f"{np.median(runs):.0f} ({min(runs):.0f} to {max(runs):.0f})"


def _or_dash(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
