"""The metrics of section 6.2.2 for one configuration in one session: pure functions of its requests.

Latencies include every request. Requests without an answer count with at least `TIMEOUT_S`. The mean latency
of answered requests is divided into parts. The time that no tier reports is the device's own computation and
the transfer to the tier that it asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearsight.experiments.framework.experiment import Row
from nearsight.experiments.rig.rows import RequestRow, counted_latencies_ms, precision, recall
from nearsight.experiments.rig.session import Played
from nearsight.experiments.studies.answers import TIERS
from nearsight.experiments.studies.cachier.scale.operating_point import OperatingPoint

PARTS = ("device", "edge", "cloud", "queue", "link")
"""Parts of a latency, see `split`."""
TIMEOUT_S = 5.0
"""Timeout of the dissertation's cloud before it drops a request (6.3), and timeout of our devices [s]."""


def session_row(
    point: OperatingPoint,
    tiers: str,
    run: int,
    played: Played,
    cores: Mapping[str, int],
    unknown_share: float = 0.0,
) -> Row:
    """All metrics of one configuration, ready for CSV; undefined numbers are empty.

    ``cores`` has the number of cores of each tier, which correspond to 100 % CPU.
    """
    rows, seconds = played.rows, played.seconds
    return {
        **point.parameters(),
        "run": run,
        "tiers": tiers,
        "unknown_share": unknown_share,
        "requests": len(rows),
        "failed": sum(not row.is_answered for row in rows),
        **_latency(rows),
        **{f"{part}_ms": round(value, 4) for part, value in split(rows).items()},
        "recall": _rounded(recall(rows)),
        "precision": _rounded(precision(rows)),
        **{
            f"{tier}_cpu": round(played.cpu_s.get(tier, 0.0) / (seconds * cores.get(tier, 1)), 6)
            for tier in ("edge", "cloud")
        },
        "up_kbps": round(played.up_bytes * 8e-3 / seconds, 3),
        "down_kbps": round(played.down_bytes * 8e-3 / seconds, 3),
        **{
            f"by_{tier}": round(float(np.mean([row.answered_by == tier for row in rows])), 5) if rows else ""
            for tier in TIERS
        },
        "late_p99_ms": round(float(np.percentile([row.late_ms for row in rows], 99)), 2) if rows else "",
    }


def link_errors(calibration: Mapping[str, Any]) -> Row:
    """Deviation of the link to the cloud from its specification, measured at its calibration."""
    rates = (calibration["up_error_percent"], calibration["down_error_percent"])
    return {
        "link_off_ms": abs(calibration["rtt_error_ms"]),
        "link_off_percent": max(abs(error) for error in rates),
    }


def _latency(rows: Sequence[RequestRow]) -> Row:
    values = counted_latencies_ms(rows, TIMEOUT_S)
    if not values:
        return dict.fromkeys(("p50_ms", "p95_ms", "mean_ms", "std_ms"), "")
    p50, p95 = np.percentile(values, [50, 95])
    numbers = {"p50_ms": p50, "p95_ms": p95, "mean_ms": np.mean(values), "std_ms": np.std(values)}
    return {name: round(float(value), 4) for name, value in numbers.items()}


def split(rows: Sequence[RequestRow]) -> dict[str, float]:
    """Parts of the mean latency of answered requests [ms].

    Returns
    -------
    dict
        "device": time until a tier has the request, and from the tier back (computation on the device, and
        transfer to the edge, which is not limited; 0 where devices ask the cloud and compute nothing).
        "edge", "cloud": their computation. "queue": waiting time at both. "link": between building and cloud.
    """
    parts = [_parts(row) for row in rows if row.is_answered]
    means = np.mean(parts, axis=0).tolist() if parts else [0.0] * len(PARTS)
    return dict(zip(PARTS, means, strict=True))


def _parts(row: RequestRow) -> tuple[float, float, float, float, float]:
    at_cloud = row.cloud_queue_ms + row.cloud_compute_ms
    at_edge = row.edge_queue_ms + row.edge_compute_ms
    rest = row.latency_ms - at_edge
    if at_edge or row.edge_next_tier_ms:
        behind, device = row.edge_next_tier_ms, rest - row.edge_next_tier_ms
    elif row.answered_by == "cloud":
        behind, device = rest, 0.0
    else:
        behind, device = 0.0, rest
    queue = row.edge_queue_ms + row.cloud_queue_ms
    link = max(0.0, behind - at_cloud)
    return max(0.0, device), row.edge_compute_ms, row.cloud_compute_ms, queue, link


def _rounded(value: float | None) -> float | str:
    return "" if value is None else round(value, 5)
