"""Reading CSV tables that people bring along: complaints name the file, the line and what was expected."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound


@dataclass(frozen=True, slots=True)
class Row:
    """One data row: its values by column, and where it stands."""

    path: Path
    line: int
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """A value that must not be empty."""
        value = self.values[column]
        if not value.strip():
            raise self.error(f"{column} is empty", "a name")
        return value

    def number(self, column: str) -> float:
        """A finite number."""
        value = self.values[column]
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{column} is {value!r}", "a finite number")
        return number

    def integer(self, column: str) -> int:
        """A whole number."""
        value = self.values[column]
        try:
            return int(value)
        except ValueError:
            raise self.error(f"{column} is {value!r}", "a whole number") from None

    def error(self, problem: str, expected: str) -> InvalidArgument:
        """The error to raise about this row."""
        return InvalidArgument(f"{self.path}, line {self.line}: {problem}", advice=f"expected {expected}")


def read_rows(path: str | os.PathLike[str], layouts: tuple[tuple[str, ...], ...]) -> Iterator[Row]:
    """Rows of a table whose header has all the columns of one of ``layouts``; further columns are allowed.

    Raises
    ------
    NotFound
        If there is no such file.
    InvalidArgument
        If it is not a table of UTF-8 text, or a row has too few or too many fields.
    """
    path = Path(path)
    expected = "expected the columns " + " or ".join(",".join(layout) for layout in layouts)
    if not path.is_file():
        raise NotFound(f"there is no file {path}", advice="check the path")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            header = tuple(reader.fieldnames or ())
            if not any(set(layout) <= set(header) for layout in layouts):
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
    """Write a table that `read_rows` reads back unchanged."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        # Where lines end in "\n" alone the writer leaves "\r" bare, and a reader takes that for an end.
        quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(header)
        for row in rows:
            bare = any(isinstance(value, str) and "\r" in value for value in row)
            (quoting if bare else writer).writerow(row)
