"""The raw rows of a run as a CSV inside the page, bounded in size.

Columns with the same value in every row, such as machine and versions, are shown once instead; they are most
of the file. If it is still too long, every n-th row is kept, so that each part of the run is represented.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from nearsight.common.errors import CorruptStore

MOST_CHARACTERS = 1_300_000
"""Of the link; browsers do not follow links of over two million."""


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """Rows as a link."""

    link: str
    """``data:`` URL of a CSV file."""
    rows: int
    kept: int
    """How many rows the file has, and how many are in the link."""
    step: int
    """Every step-th row was kept; 1: all."""
    size_bytes: int
    """Of the CSV in the link."""
    constant: dict[str, str]
    """Columns that are left out: name and the value of all rows."""


def embed_rows(path: Path, most_characters: int = MOST_CHARACTERS) -> EmbeddedRows:
    """Read ``rows.csv``.

    Raises
    ------
    CorruptStore
        If it is no CSV with columns and rows of one length.
    """
    columns, rows = _read(path)
    constant = {
        column: rows[0][place]
        for place, column in enumerate(columns)
        if len(rows) > 1 and all(row[place] == rows[0][place] for row in rows)
    }
    places = [place for place, column in enumerate(columns) if column not in constant]
    header, varying = [columns[place] for place in places], [[row[place] for place in places] for row in rows]
    step = 1
    text = _csv(header, varying)
    link = _link(text)
    while len(link) > most_characters and step < len(rows):
        step = max(step + 1, round(step * len(link) / most_characters))
        text = _csv(header, varying[::step])
        link = _link(text)
    return EmbeddedRows(link, len(rows), len(varying[::step]), step, len(text.encode()), constant)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            columns, *rows = csv.reader(file, strict=True)
    except (csv.Error, ValueError, OSError) as error:
        raise CorruptStore(f"{path.name} cannot be read") from error
    if not rows or any(len(row) != len(columns) for row in rows):
        raise CorruptStore(f"{path.name} has no rows, or rows of different lengths")
    return columns, rows


def _csv(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _link(text: str) -> str:
    return "data:text/csv;charset=utf-8," + quote(text, safe=",;:/+-._~()*!$@")
