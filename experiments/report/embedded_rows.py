"""The raw rows of a run as a CSV file inside the page, with a size limit.

Columns with the same value in every row, such as machine and versions, make up most of the file; they are
left out and shown once. If the file is still too long, only every n-th row is kept, so that each part of the
run is represented.
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
"""Maximum length of the link [characters]; browsers reject links of more than about two million."""


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """Rows of a run as a link."""

    link: str
    """``data:`` URL of a CSV file."""
    rows: int
    kept: int
    """Number of rows in ``rows.csv``, and number of rows in the link."""
    step: int
    """Every step-th row is kept; 1: all rows."""
    size_bytes: int
    """Size of the CSV in the link."""
    constant: dict[str, str]
    """Columns that are left out: name → the common value."""


def embed_rows(path: Path, most_characters: int = MOST_CHARACTERS) -> EmbeddedRows:
    """Read ``rows.csv`` and encode it as a link.

    Raises
    ------
    CorruptStore
        If it is not a CSV file whose rows all have as many fields as its header.
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
