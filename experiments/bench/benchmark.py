"""Result of a benchmark: its figures as JSON and as a table, and the environment of the measurement."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from nearsight.common.files import write_atomically
from nearsight.experiments.framework.environment import describe_environment

ReportStep = Callable[[str], None]
"""Called with a description of the current step."""

_Argument = TypeVar("_Argument")
_TABLE_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Result of one benchmark."""

    name: str
    """Name of the file, ``NAME.json``."""
    title: str
    """Title of the table."""
    columns: Mapping[str, str]
    """Heading of each column of the table → format of its cells, such as ``"{median_ms:.3f}"``."""
    rows: Sequence[Mapping[str, Any]]
    """The measurements, one row per case."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Content of the file; may have its own ``environment``. If empty, the file contains the rows."""
    environment: Mapping[str, Any] = field(default_factory=describe_environment)
    """Machine, versions, commit and time."""

    def content(self) -> dict[str, Any]:
        """The content of the file."""
        figures = self.figures or {"rows": self.rows}
        return {**figures, "environment": {**self.environment, **figures.get("environment", {})}}

    def table(self) -> Table:
        """The rows as a table; text is left-aligned, numbers are right-aligned."""
        table = Table(title=self.title)
        cells = [  # Python's format of percentages has no space
            [re.sub(r"(?<=\d)%", " %", text.format_map(row)) for text in self.columns.values()]
            for row in self.rows
        ]
        for column, values in zip(self.columns, zip(*cells, strict=True), strict=True):
            named = any(value[:1].isalpha() for value in values)
            table.add_column(column, justify="left" if named else "right")
        for row in cells:
            table.add_row(*row)
        return table


def write_results(benchmarks: Sequence[Benchmark], folder: Path) -> None:
    """Write ``NAME.json`` of each benchmark, and all tables to ``tables.txt``."""
    text = StringIO()
    for one in benchmarks:
        content = json.dumps(one.content(), indent=2) + "\n"
        write_atomically(folder / f"{one.name}.json", content.encode())
        Console(file=text, width=_TABLE_WIDTH).print(one.table())
    write_atomically(folder / "tables.txt", text.getvalue().encode())


def times_ms(operation: Callable[[_Argument], object], arguments: Iterable[_Argument]) -> list[float]:
    """Duration of a call with each argument."""
    found = []
    for argument in arguments:
        started_s = time.perf_counter()
        operation(argument)
        found.append((time.perf_counter() - started_s) * 1e3)
    return found


def percentiles(values: Sequence[float], *ranks: float) -> tuple[float, ...]:
    """Percentiles as Python floats, which JSON can store."""
    return tuple(float(value) for value in np.percentile(values, ranks))
