"""The numbers of a replay: pure functions of its rows (Cachier dissertation, 6.2.2).

recall = correct / photos of objects in the catalogue; precision = correct / answers that name an object. A
request that failed counts against recall, because its visitor got no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.experiments.rig.rows import RECOGNIZED, RequestRow

PERCENTILES = (50, 95, 99)
LATE_MS = 50.0
"""Photos sent later than this, at the 99th percentile, mean that the machine could not keep up."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Summary of the requests of one configuration.

    Attributes
    ----------
    requests, answered : int
        Photos sent, and those with exactly one outcome that is an answer.
    latency_ms : dict of str to float
        Percentiles of the answered requests, by "p50", "p95", "p99"; empty without any.
    recall, precision : float or None
        None where nothing is counted.
    wrong : int
        Answers that name an object that the photo does not show.
    answered_by, outcomes : dict of str to int
        Requests by tier that answered and by outcome.
    sent_late_ms : float
        99th percentile of how late photos were sent [ms].
    """

    requests: int
    answered: int
    latency_ms: dict[str, float]
    recall: float | None
    precision: float | None
    wrong: int
    answered_by: dict[str, int]
    outcomes: dict[str, int]
    sent_late_ms: float


def summarise(rows: Sequence[RequestRow]) -> Metrics:
    """All metrics of a set of rows."""
    return Metrics(
        requests=len(rows),
        answered=sum(row.is_answered for row in rows),
        latency_ms=latency_percentiles(rows),
        recall=recall(rows),
        precision=precision(rows),
        wrong=sum(row.outcome == RECOGNIZED and not row.is_correct for row in rows),
        answered_by=dict(sorted(Counter(row.answered_by for row in rows if row.is_answered).items())),
        outcomes=dict(sorted(Counter(row.outcome for row in rows).items())),
        sent_late_ms=float(np.percentile([row.late_ms for row in rows], 99)) if rows else 0.0,
    )


def latency_percentiles(rows: Iterable[RequestRow]) -> dict[str, float]:
    """Percentiles of the latency of answered requests [ms], by name."""
    latencies_ms = [row.latency_ms for row in rows if row.is_answered]
    if not latencies_ms:
        return {}
    return {f"p{percentile}": float(np.percentile(latencies_ms, percentile)) for percentile in PERCENTILES}


def latency_split(rows: Iterable[RequestRow]) -> dict[str, float]:
    """Where the time of answered requests went, on average [ms]: "compute" and "queue" of edge and cloud.

    "rest" is what they did not spend: the ways between, and the device. Empty without answers.
    """
    answered = [row for row in rows if row.is_answered]
    if not answered:
        return {}
    compute = np.mean([row.edge_compute_ms + row.cloud_compute_ms for row in answered])
    queue = np.mean([row.edge_queue_ms + row.cloud_queue_ms for row in answered])
    whole = np.mean([row.latency_ms for row in answered])
    return {"compute": float(compute), "queue": float(queue), "rest": float(whole - compute - queue)}


def recall(rows: Iterable[RequestRow]) -> float | None:
    """Correct answers / photos of objects in the catalogue."""
    relevant = [row for row in rows if row.expected]
    return sum(row.is_correct for row in relevant) / len(relevant) if relevant else None


def precision(rows: Iterable[RequestRow]) -> float | None:
    """Correct answers / answers that name an object."""
    definite = [row for row in rows if row.outcome == RECOGNIZED]
    return sum(row.is_correct for row in definite) / len(definite) if definite else None


def accounting_errors(rows: Iterable[RequestRow]) -> list[str]:
    """Requests that did not get exactly one outcome, each in words."""
    return [
        f"request {row.number} of {row.visitor} ({row.configuration}) got {row.outcomes} outcomes"
        for row in rows
        if row.outcomes != 1
    ]
