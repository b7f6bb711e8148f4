"""The rows of a replay, one per request, as CSV, and their metrics (Cachier dissertation, 6.2.2).

recall = correct / photos of objects in the catalogue; precision = correct / answers that name an object. A
failed request lowers the recall, because its visitor got no answer. For the same reason, it counts with at
least its timeout in percentiles of the latency.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from pydantic import TypeAdapter, ValidationError

from nearsight.experiments.datasets import tables

RECOGNIZED = "recognized"
UNKNOWN = "unknown"
LOST = "lost"
ANSWERS = (RECOGNIZED, UNKNOWN)
PERCENTILES = (50, 95, 99)
LATE_MS = 50.0
"""Limit for the 99th percentile of `RequestRow.late_ms` [ms]; above it the machine was overloaded."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request and its outcome."""

    configuration: str
    """Name of the configuration of tiers, such as "edge-cache"."""
    visitor: str
    """The visitor that sent the request, with one device."""
    number: int
    """Position in the visitor's trace, from 0."""
    time_s: float
    """Time when the photo was due, from the start of the replay [s]."""
    late_ms: float
    """Delay of the actual sending [ms]; large values mean that this machine was overloaded."""
    expected: str
    """Object on the photo; empty if it is not in the catalogue."""
    answered: str
    """Object of the answer; empty if unknown or failed."""
    outcome: str
    """"recognized", "unknown", the name of an error such as "DeadlineExceeded", or "lost"."""
    outcomes: int
    """Number of calls of the callback; any value but 1 is a defect of the SDK."""
    answered_by: str
    """Tier that answered; empty if none did."""
    latency_ms: float
    """From the call to the callback [ms]; NaN without a callback."""
    sent_bytes: int = 0
    received_bytes: int = 0
    """Bytes between the device and the tier that it asked."""
    edge_queue_ms: float = 0.0
    edge_compute_ms: float = 0.0
    edge_next_tier_ms: float = 0.0
    cloud_queue_ms: float = 0.0
    cloud_compute_ms: float = 0.0
    """Times of each tier [ms]; 0 for a tier that was not involved."""
    grain: str = ""
    """Kind of the cached item that gave the answer, such as "result"; empty if there is none."""

    @property
    def is_answered(self) -> bool:
        """Whether there is exactly one outcome and it is an answer ("unknown" included)."""
        return self.outcomes == 1 and self.outcome in ANSWERS

    @property
    def is_correct(self) -> bool:
        """Whether the right object was named."""
        return self.outcome == RECOGNIZED and self.answered == self.expected


COLUMNS = tuple(field.name for field in fields(RequestRow))
_DIGITS = 4


def write_rows(path: str | os.PathLike[str], rows: Iterable[RequestRow]) -> None:
    """Write rows as CSV; times are rounded to four decimals."""
    tables.write_rows(path, COLUMNS, ([_rounded(value) for value in astuple(row)] for row in rows))


def _rounded(value: str | float) -> str | float:
    return round(value, _DIGITS) if isinstance(value, float) else value


def read_request_rows(path: str | os.PathLike[str]) -> tuple[RequestRow, ...]:
    """Rows in the order of the file.

    Raises
    ------
    NotFound
        If there is no such file.
    InvalidArgument
        If the table is malformed; names the line.
    """
    return tuple(_parse(row) for row in tables.read_rows(path, (COLUMNS,)))


def _parse(row: tables.Row) -> RequestRow:
    try:
        return _STORED.validate_python(row.values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        expected = "a whole number" if first["type"].startswith("int") else "a number"
        raise row.error(f"{name} is {row.values[name]!r}", expected) from None


_STORED = TypeAdapter(RequestRow)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Summary of the requests of one configuration."""

    requests: int
    answered: int
    """Photos sent, and those with exactly one outcome that is an answer."""
    latency_ms: dict[str, float]
    """Percentiles by "p50", "p95", "p99", see `latency_percentiles`; empty without requests."""
    recall: float | None
    precision: float | None
    """None if the denominator is zero."""
    wrong: int
    """Answers that name an object that the photo does not show."""
    answered_by: dict[str, int]
    outcomes: dict[str, int]
    """Requests by tier that answered, and by outcome."""
    sent_late_ms: float
    """99th percentile of the delay of sending [ms]."""


def summarise(rows: Sequence[RequestRow], timeout_s: float) -> Metrics:
    """All metrics of a set of rows; ``timeout_s`` is the deadline of each request [s]."""
    return Metrics(
        requests=len(rows),
        answered=sum(row.is_answered for row in rows),
        latency_ms=latency_percentiles(rows, timeout_s),
        recall=recall(rows),
        precision=precision(rows),
        wrong=sum(row.outcome == RECOGNIZED and not row.is_correct for row in rows),
        answered_by=dict(sorted(Counter(row.answered_by for row in rows if row.is_answered).items())),
        outcomes=dict(sorted(Counter(row.outcome for row in rows).items())),
        sent_late_ms=float(np.percentile([row.late_ms for row in rows], 99)) if rows else 0.0,
    )


def counted_latencies_ms(rows: Iterable[RequestRow], timeout_s: float) -> list[float]:
    """Latency of every request [ms]; without an answer it is at least the timeout.

    A system that drops late requests or refuses them at once would otherwise appear fast.
    """
    return [
        row.latency_ms if row.is_answered else float(np.fmax(row.latency_ms, 1000 * timeout_s))
        for row in rows
    ]


def latency_percentiles(rows: Iterable[RequestRow], timeout_s: float) -> dict[str, float]:
    """Percentiles of `counted_latencies_ms` [ms], by name; empty without requests."""
    latencies_ms = counted_latencies_ms(rows, timeout_s)
    return {
        f"p{percentile}": latency_percentile(latencies_ms, percentile, timeout_s)
        for percentile in (PERCENTILES if latencies_ms else ())
    }


def latency_percentile(latencies_ms: Sequence[float], percentile: float, timeout_s: float) -> float:
    """A percentile of latencies [ms]; interpolated, but not between a latency and a lower bound of one."""
    upper_ms = float(np.percentile(latencies_ms, percentile, method="higher"))
    between_ms = float(np.percentile(latencies_ms, percentile))
    return upper_ms if upper_ms >= 1000 * timeout_s else between_ms


def latency_in_words(latency_ms: float, timeout_s: float, digits: int = 0) -> str:
    """A percentile of the latency; one that unanswered requests determine is only a lower bound."""
    return f"{'≥ ' if latency_ms >= 1000 * timeout_s else ''}{latency_ms:.{digits}f}"


def latency_split(rows: Iterable[RequestRow]) -> dict[str, float]:
    """Mean latency of answered requests [ms], split into "compute" and "queue" of edge and cloud, and "rest".

    "rest" is the time outside of edge and cloud: network transfers and the device. Empty without answers.
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
    """One message for each request that did not get exactly one outcome."""
    return [
        f"request {row.number} of {row.visitor} ({row.configuration}) got {row.outcomes} outcomes"
        for row in rows
        if row.outcomes != 1
    ]
