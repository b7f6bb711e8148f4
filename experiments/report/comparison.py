"""Compares testbed and twin of one figure row by row: both values and the error of the twin.

The inputs are the tables that experiments print. A row is identified by its leading columns: the smallest
number of columns that makes all rows of a table distinct. The other columns are compared where both cells are
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nearsight.experiments.framework.running import Table
from nearsight.experiments.report.settings_of_runs import COSTS, MARK, ON, TESTBED, TWIN

_NUMBER = re.compile(r"[+\-\u2212]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_PERCENT = re.compile(r"\d\s*%")
_FAR_OFF, _FAR_OFF_POINTS = 0.15, 3.0
"""Limits of the twin's relative error, and of its error of shares in points; larger errors are marked."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One number on the testbed and on the twin."""

    testbed: str
    twin: str
    """Both as printed in the tables."""
    error: float | None
    """Error of the twin, relative or in percentage points; None if it is undefined."""
    points: bool
    """Whether the error is in percentage points; used for shares, which may be zero."""

    @property
    def same(self) -> bool:
        """Whether both tables print the same text."""
        return self.testbed == self.twin

    @property
    def far_off(self) -> bool:
        """Whether the error exceeds its limit."""
        most = _FAR_OFF_POINTS if self.points else _FAR_OFF
        return self.error is not None and abs(self.error) > most

    def error_in_words(self, sign: str = "+") -> str:
        """Format the error, such as "+4 %" or "-2 points"; empty if there is none."""
        if self.error is None:
            return ""
        return f"{self.error:{sign}.0f} points" if self.points else f"{100 * self.error:{sign}.0f} %"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that both tables have."""

    names: tuple[str, ...]
    """Columns that identify a row."""
    columns: tuple[str, ...]
    """Columns that are compared."""
    rows: tuple[tuple[tuple[str, ...], tuple[Pair, ...]], ...]
    """For each row: its identifying cells, and a pair per compared column."""
    only: Mapping[str, int]
    """Testbed or twin → number of its rows that the other lacks."""

    def errors(self) -> list[str]:
        """Median and largest absolute error per column, as "3 % to 12 %"; empty if the column has none."""
        found = []
        for pairs in zip(*(pairs for _, pairs in self.rows), strict=True):
            sizes = [abs(pair.error) for pair in pairs if pair.error is not None]
            both = (median(sizes), max(sizes)) if sizes else ()
            points = any(pair.points for pair in pairs)  # cells without a number are no shares
            found.append(" to ".join(Pair("", "", size, points).error_in_words("") for size in both))
        return found

    @property
    def lacking(self) -> str:
        """Number of rows that only one of them has, in words."""
        return ", ".join(f"{count} rows of the {which}" for which, count in self.only.items() if count)


def paired(configurations: Sequence[Mapping[str, object]]) -> list[tuple[int, int]]:
    """Index pairs (testbed, twin) of runs with equal options, where the twin has the testbed's machines.

    A twin of other machines, such as those of table 6.1, would show how the machines differ.
    """
    return [
        (real, twin)
        for real, first in enumerate(configurations)
        for twin, second in enumerate(configurations)
        if first.get(ON) == TESTBED
        and second.get(ON) == TWIN
        and second.get(COSTS) == TESTBED
        and _shared(first) == _shared(second)
    ]


def compare(testbed: Table, twin: Table) -> Comparison | None:
    """Compare two tables; None if their columns differ or they share no row with numbers."""
    columns = tuple(map(str, testbed[0]))
    if columns != tuple(map(str, twin[0])):
        return None
    real, simulated = _cells(testbed), _cells(twin)
    for width in range(1, len(columns)):
        names = [[row[:width] for row in rows] for rows in (real, simulated)]
        if all(len(set(one)) == len(one) for one in names):
            break
    else:
        return None
    by_name = {row[:width]: row for row in simulated}
    both = [(row, by_name[row[:width]]) for row in real if row[:width] in by_name]
    places = [
        place
        for place in range(width, len(columns))
        if any(_numbers(one[place], two[place]) for one, two in both)
    ]
    if not places:
        return None
    return Comparison(
        columns[:width],
        tuple(columns[place] for place in places),
        tuple((one[:width], tuple(_pair(one[place], two[place]) for place in places)) for one, two in both),
        {TESTBED: len(real) - len(both), TWIN: len(simulated) - len(both)},
    )


def number(cell: str) -> float | None:
    """The number at the start of a cell, as in "12.3 ± 0.4" or "45 %"; None if there is none."""
    found = _NUMBER.match(cell.strip().lstrip("≥≤<>~ "))
    return None if found is None else float(found[0].replace(",", "").replace("\u2212", "-"))


def _shared(configuration: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in configuration.items() if key not in {ON, COSTS, MARK}}


def _cells(table: Table) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in table[1]]


def _numbers(*cells: str) -> bool:
    return all(number(cell) is not None for cell in cells)


def _pair(testbed: str, twin: str) -> Pair:
    points = any(_PERCENT.search(cell) for cell in (testbed, twin))
    return Pair(testbed, twin, _error(number(testbed), number(twin), points), points)


def _error(real: float | None, simulated: float | None, points: bool) -> float | None:
    if real is None or simulated is None:
        return None
    if points:
        return simulated - real
    if real == simulated:
        return 0.0
    return simulated / real - 1.0 if real else None
