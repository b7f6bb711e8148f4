"""Photos that were asked, and their answers: rows, and numbers that several studies show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from nearsight.experiments.framework import numbers
from nearsight.experiments.framework.experiment import Row, StoredRow
from nearsight.experiments.rig.rows import RequestRow

TIERS = ("device", "edge", "cloud")


def photo_row(request: RequestRow) -> Row:
    """One photo for ``rows.csv``; "configuration" is a column of every experiment's rows."""
    return {name: value for name, value in asdict(request).items() if name != "configuration"}


def answer_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Who answered, and how well (dissertation, 6.2.2); a photo without answer counts against recall."""
    relevant = [row for row in rows if row["expected"]]
    named = [row for row in rows if row["answered"]]
    correct = sum(row["answered"] == row["expected"] for row in relevant)
    return {
        "answered_by": {tier: numbers.share(row["answered_by"] == tier for row in rows) for tier in TIERS},
        "recall": round(correct / max(1, len(relevant)), 4),
        "precision": round(correct / max(1, len(named)), 4),
        "wrong": len(named) - correct,
        "failed": sum(not row["answered_by"] for row in rows),
        "requests": len(rows),
    }


def latencies_ms(rows: Iterable[StoredRow]) -> list[float]:
    """Latencies of the photos that were answered [ms]."""
    return numbers.values((row for row in rows if row["answered_by"]), "latency_ms")


def median_and_tail(repetitions: Iterable[Sequence[float]]) -> dict[str, Any]:
    """``p50_ms`` and ``p95_ms`` of latencies of every repetition: median and range over the repetitions."""
    runs = list(repetitions)
    return {
        f"p{percent}_ms": numbers.median_and_range([float(np.nanpercentile(one, percent)) for one in runs])
        for percent in (50, 95)
    }


def sent_late_ms(rows: Sequence[StoredRow]) -> float:
    """How late photos were sent, at the 99th percentile [ms]."""
    return round(float(np.percentile(numbers.values(rows, "late_ms"), 99)), 2)
