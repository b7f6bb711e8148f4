"""Requests with photos and their answers: rows, and metrics that several studies use."""

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
    """Row of a photo for ``rows.csv``; every experiment's rows already have a column "configuration"."""
    return {name: value for name, value in asdict(request).items() if name != "configuration"}


def answer_numbers(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Shares of the answering tiers, and recognition quality (dissertation, 6.2.2).

    A photo without an answer counts against recall.
    """
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
    """Latencies of the answered photos [ms]."""
    return numbers.values((row for row in rows if row["answered_by"]), "latency_ms")


def counted_latencies_ms(rows: Iterable[StoredRow], timeout_s: float) -> list[float]:
    """Latency of every photo [ms]; without an answer it is at least the timeout, as in `rig.rows`.

    A refusal takes hardly any time: an edge that refuses photos would otherwise appear fast.
    """
    return [
        float(row["latency_ms"])
        if row["answered_by"]
        else float(np.fmax(float(row["latency_ms"]), 1000 * timeout_s))
        for row in rows
    ]


def median_and_tail(repetitions: Iterable[Sequence[float]]) -> dict[str, Any]:
    """Summarise latencies per repetition: ``p50_ms`` and ``p95_ms`` as median and range over repetitions."""
    runs = list(repetitions)
    return {
        f"p{percent}_ms": numbers.median_and_range([float(np.nanpercentile(one, percent)) for one in runs])
        for percent in (50, 95)
    }


def sent_late_ms(rows: Sequence[StoredRow]) -> float:
    """99th percentile of the delay with which photos were sent after their planned time [ms]."""
    return round(float(np.percentile(numbers.values(rows, "late_ms"), 99)), 2)
