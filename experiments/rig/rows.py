"""One row per request of a replay: what was asked, what came back, where the time went; CSV in and out."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.tables import Row, read_rows

RECOGNIZED = "recognized"
UNKNOWN = "unknown"
LOST = "lost"
ANSWERS = (RECOGNIZED, UNKNOWN)


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request and its outcome.

    Attributes
    ----------
    configuration : str
        Which set-up of tiers answered, such as "edge-cache".
    visitor : str
        Who asked: one device.
    number : int
        Position in the visitor's trace, from 0.
    time_s : float
        When the photo was due, from the start of the replay [s].
    late_ms : float
        How much later it was really sent [ms]: large values mean that this machine could not keep up.
    expected : str
        Object on the photo; empty if it is not in the catalogue.
    answered : str
        Object of the answer; empty if unknown or failed.
    outcome : str
        "recognized", "unknown", the name of an error such as "DeadlineExceeded", or "lost".
    outcomes : int
        How often the callback was called: 1, or the SDK is broken.
    answered_by : str
        Tier that answered; empty if none did.
    latency_ms : float
        From the call to the callback [ms]; NaN if there was none.
    sent_bytes, received_bytes : int
        Between the device and the tier that it asked.
    edge_queue_ms, edge_compute_ms, edge_next_tier_ms, cloud_queue_ms, cloud_compute_ms : float
        What each tier spent [ms]; 0 for a tier that took no part.
    """

    configuration: str
    visitor: str
    number: int
    time_s: float
    late_ms: float
    expected: str
    answered: str
    outcome: str
    outcomes: int
    answered_by: str
    latency_ms: float
    sent_bytes: int = 0
    received_bytes: int = 0
    edge_queue_ms: float = 0.0
    edge_compute_ms: float = 0.0
    edge_next_tier_ms: float = 0.0
    cloud_queue_ms: float = 0.0
    cloud_compute_ms: float = 0.0

    @property
    def is_answered(self) -> bool:
        """Whether it got exactly one outcome and that is an answer; unknown is one."""
        return self.outcomes == 1 and self.outcome in ANSWERS

    @property
    def is_correct(self) -> bool:
        """Whether the right object was named."""
        return self.outcome == RECOGNIZED and self.answered == self.expected


COLUMNS = tuple(field.name for field in fields(RequestRow))
_DIGITS = 4


def write_rows(path: str | os.PathLike[str], rows: Iterable[RequestRow]) -> None:
    """Write rows as CSV; times keep four decimals."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_rounded(value) for value in astuple(row)] for row in rows)


def _rounded(value: object) -> object:
    return round(value, _DIGITS) if isinstance(value, float) else value


def read_request_rows(path: str | os.PathLike[str]) -> tuple[RequestRow, ...]:
    """Rows in the order of the file.

    Raises
    ------
    NotFound
        If there is no such file.
    InvalidArgument
        If it is no such table; names the line.
    """
    return tuple(_parse(row) for row in read_rows(path, (COLUMNS,)))


def _parse(row: Row) -> RequestRow:
    values = {name: row.values[name] for name in COLUMNS}
    numbers = {name: _number(row, name) for name in COLUMNS if name.endswith(("_ms", "_s"))}
    counts = {name: row.integer(name) for name in COLUMNS if name.endswith("_bytes")}
    counts |= {name: row.integer(name) for name in ("number", "outcomes")}
    texts = {name: text for name, text in values.items() if name not in numbers and name not in counts}
    return RequestRow(**texts, **numbers, **counts)  # type: ignore[arg-type]


def _number(row: Row, name: str) -> float:
    try:
        return float(row.values[name])
    except ValueError:
        raise InvalidArgument(
            f"{row.path}, line {row.line}: {name} is {row.values[name]!r}", advice="expected a number"
        ) from None
