"""Reads CSV tables of users; error messages name the file, the line and the expected content."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.files import write_atomically


@dataclass(frozen=True, slots=True)
class Row:
    """One data row: its values by column, its file and its line."""

    path: Path
    line: int
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """The value of a column as text.

        Raises
        ------
        InvalidArgument
            If it is empty.
        """
        value = self.values[column]
        if not value.strip():
            raise self.error(f"{column} is empty", "a name")
        return value

    def number(self, column: str) -> float:
        """The value of a column as a finite number.

        Raises
        ------
        InvalidArgument
            If it is not a finite number.
        """
        value = self.values[column]
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{column} is {value!r}", "a finite number")
        return number

    def integer(self, column: str) -> int:
        """The value of a column as an integer.

        Raises
        ------
        InvalidArgument
            If it is not an integer.
        """
        value = self.values[column]
        try:
            return int(value)
        except ValueError:
            raise self.error(f"{column} is {value!r}", "a whole number") from None

    def error(self, problem: str, expected: str) -> InvalidArgument:
        """Create an error about this row."""
        return InvalidArgument(f"{self.path}, line {self.line}: {problem}", advice=f"expected {expected}")


def read_rows(path: str | os.PathLike[str], layouts: tuple[tuple[str, ...], ...]) -> Iterator[Row]:
    """Read the rows of a table whose header has the columns of one of ``layouts`` once; others are allowed.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If it is not a CSV table in UTF-8, the header matches no layout, or a row has too few or too many
        fields.
    """
    path = Path(path)
    expected = "expected the columns " + " or ".join(",".join(layout) for layout in layouts)
    if not path.is_file():
        raise NotFound(f"there is no file {path}", advice="check the path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            header = tuple(reader.fieldnames or ())
            if not any(all(header.count(column) == 1 for column in layout) for layout in layouts):
                raise InvalidArgument(f"{path}, line 1: the header is {','.join(header)!r}", advice=expected)
            for values in reader:
                if None in values or None in values.values():
                    raise InvalidArgument(
                        f"{path}, line {reader.line_num}: not {len(header)} fields",
                        advice=f"expected {','.join(header)}",
                    )
                yield Row(path, reader.line_num, values)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path} is not a CSV table in UTF-8: {error}", advice=expected) from error


def write_rows(
    path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[str | float]]
) -> None:
    """Write a table atomically that `read_rows` reads back unchanged."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    # With "\n" as line terminator the writer does not quote "\r", which a reader takes for the end of a line.
    quoting = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(header)
    for row in rows:
        bare = any(isinstance(value, str) and "\r" in value for value in row)
        (quoting if bare else writer).writerow(row)
    write_atomically(Path(path), text.getvalue().encode())
