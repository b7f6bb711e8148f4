"""Visits: visitor, exhibit, start and end of each stay; generated or logged, in memory and as CSV.

The table has the columns ``visitor,exhibit,start_s,end_s``. Logs whose exhibit column is called ``poi``
(point of interest) can be read as well. Other columns are ignored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.datasets.tables import read_rows, write_rows

COLUMNS = ("visitor", "exhibit", "start_s", "end_s")
_LONGEST_STAY_S = 10 * 86_400.0
FARTHEST_S = 1e16
"""Limit for times in traces, before and after zero [s]."""
LOG_COLUMNS = ("visitor", "poi", "start_s", "end_s")


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor's stay before one exhibit.

    Raises
    ------
    InvalidArgument
        If a name is empty, a time is not finite, or the end is before the start.
    """

    visitor: str
    exhibit: str
    """Names, not empty."""
    start_s: float
    end_s: float
    """Seconds on a clock that all visits of a trace share."""

    def __post_init__(self) -> None:
        if not self.visitor.strip() or not self.exhibit.strip():
            raise InvalidArgument("a visit needs a visitor and an exhibit")
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s)):
            raise InvalidArgument(f"times of a visit must be finite, got {self.start_s} and {self.end_s}")
        if self.end_s < self.start_s:
            raise InvalidArgument(
                f"a visit cannot end at {self.end_s} s, before its start at {self.start_s} s"
            )

    @property
    def duration_s(self) -> float:
        """Duration of the stay."""
        return self.end_s - self.start_s


def read_visits_csv(path: str | os.PathLike[str]) -> tuple[Visit, ...]:
    """Read visits, in the order of the file.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If a row is malformed. The message names the file, the line and the expected content.
    """
    visits = []
    for row in read_rows(path, (COLUMNS, LOG_COLUMNS)):
        exhibit = row.text("exhibit" if "exhibit" in row.values else "poi")
        start_s, end_s = row.number("start_s"), row.number("end_s")
        if end_s < start_s:
            raise row.error(f"end_s {end_s:g} is before start_s {start_s:g}", "end_s >= start_s")
        if end_s - start_s > _LONGEST_STAY_S:  # one photo per second would exhaust the memory
            raise row.error(
                f"a stay of {end_s - start_s:g} s", "times in seconds, and stays of at most 10 days"
            )
        if max(abs(start_s), abs(end_s)) > FARTHEST_S:
            raise row.error(f"a visit from {start_s:g} to {end_s:g} s", "times in seconds")
        visits.append(Visit(row.text("visitor"), exhibit, start_s, end_s))
    return tuple(visits)


def write_visits_csv(path: str | os.PathLike[str], visits: Iterable[Visit]) -> None:
    """Write visits to a table that `read_visits_csv` reads back unchanged."""
    rows = ((visit.visitor, visit.exhibit, visit.start_s, visit.end_s) for visit in visits)
    write_rows(path, COLUMNS, rows)


def sequences(visits: Iterable[Visit]) -> dict[str, tuple[str, ...]]:
    """Exhibits of each visitor in the order of the visits, without consecutive duplicates (6.2.5.2)."""
    seen: dict[str, list[str]] = {}
    for visit in sorted(visits, key=lambda visit: (visit.visitor, visit.start_s)):
        exhibits = seen.setdefault(visit.visitor, [])
        if not exhibits or exhibits[-1] != visit.exhibit:
            exhibits.append(visit.exhibit)
    return {visitor: tuple(exhibits) for visitor, exhibits in seen.items()}
