"""A finished benchmark: its figures as JSON, as a table, and where they were measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from nearsight.experiments.framework.environment import describe_environment

Tell = Callable[[str], None]
"""Called with the current step, in words."""

_Argument = TypeVar("_Argument")
_TABLE_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One finished benchmark."""

    name: str
    """Of the file: ``NAME.json``."""
    title: str
    """Of the table."""
    columns: Mapping[str, str]
    """Heading of each column of the table → format of its cells, such as ``"{median_ms:.3f}"``."""
    rows: Sequence[Mapping[str, Any]]
    """What was measured."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What goes into the file; may have an ``environment`` of its own. Empty: the rows."""
    environment: Mapping[str, Any] = field(default_factory=describe_environment)
    """Machine, versions, commit and time."""

    def content(self) -> dict[str, Any]:
        """What goes into the file."""
        figures = self.figures or {"rows": self.rows}
        return {**figures, "environment": {**self.environment, **figures.get("environment", {})}}

    def table(self) -> Table:
        """The rows as a table: names to the left, numbers to the right."""
        table = Table(title=self.title)
        cells = [[text.format_map(row) for text in self.columns.values()] for row in self.rows]
        for column, values in zip(self.columns, zip(*cells, strict=True), strict=True):
            named = any(value[:1].isalpha() for value in values)
            table.add_column(column, justify="left" if named else "right")
        for row in cells:
            table.add_row(*row)
        return table


def keep(benchmarks: Sequence[Benchmark], folder: Path) -> None:
    """Write ``NAME.json`` of each, and all tables to ``tables.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in benchmarks:
        (folder / f"{one.name}.json").write_text(json.dumps(one.content(), indent=2) + "\n")
    with (folder / "tables.txt").open("w", encoding="utf-8") as file:
        console = Console(file=file, width=_TABLE_WIDTH)
        for one in benchmarks:
            console.print(one.table())


def times_ms(operation: Callable[[_Argument], object], arguments: Iterable[_Argument]) -> list[float]:
    """Time of a call with each argument."""
    found = []
    for argument in arguments:
        started_s = time.perf_counter()
        operation(argument)
        found.append((time.perf_counter() - started_s) * 1e3)
    return found


def percentiles(values: Sequence[float], *ranks: float) -> tuple[float, ...]:
    """Plain numbers, for JSON."""
    return tuple(float(value) for value in np.percentile(values, ranks))
