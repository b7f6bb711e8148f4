"""Reads the Azure Functions trace of 2019 in its own schema, and converts its counts to calls.

A day has three files: calls per minute of each function, their durations, and the memory of each application
(https://github.com/Azure/AzurePublicDataset). The trace is not included. Columns are found by name, in any
order. Other columns are ignored, except minutes that a day does not have. The conversion is that of the
papers.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.tables import Row, read_rows

MINUTES = 1_440
_MINUTE_S = 60.0
_FUNCTION = ("HashOwner", "HashApp", "HashFunction")
_DURATIONS = (*_FUNCTION, "Average", "Count", "Minimum", "Maximum")
_MEMORY = ("HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb")
_PERCENTILES = (0, 1, 25, 50, 75, 99, 100)
_EXPECTED = "expected HashOwner,HashApp,HashFunction,Trigger,1,2, … 1440"


class Function(NamedTuple):
    """A function of an application of an owner; all three are hashes."""

    owner: str
    application: str
    name: str


@dataclass(frozen=True, slots=True)
class Invocations:
    """Calls of functions in each minute of a day."""

    functions: tuple[Function, ...]
    """The F functions, in the order of the file."""
    counts: NDArray[np.int32]
    """(F, 1440)."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Run time of a function [ms], without its cold starts."""

    average_ms: float
    minimum_ms: float
    maximum_ms: float
    count: int
    """Number of calls in the average; differs slightly from the sum of `Invocations`."""
    percentiles_ms: Mapping[int, float]
    """Percentiles 0, 1, 25, 50, 75, 99 and 100, of averages over 30 seconds."""


def read_invocations(
    path: str | os.PathLike[str], trigger: str = "http", advance: Callable[[int], None] = lambda _: None
) -> Invocations:
    """Read the functions with this trigger (empty: all triggers); rows of the same function are added.

    ``advance`` is called with the number of characters of each line.

    Raises
    ------
    NotFound
        If the file does not exist.
    InvalidArgument
        If the header lacks a column or a minute, or has a minute that a day does not have; or if a row does
        not have a number of calls for each minute. The message names the file and the line.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFound(f"there is no file {path}", advice="check the path")
    found: dict[Function, NDArray[np.int32]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(_lines(file, advance), strict=True)
            header = next(reader, [])
            keys, trigger_place, minutes = _columns(path, header)
            for row in reader:
                if len(row) != len(header):
                    raise InvalidArgument(
                        f"{path}, line {reader.line_num}: {len(row)} fields, the header has {len(header)}",
                        advice=_EXPECTED,
                    )
                if trigger and row[trigger_place] != trigger:
                    continue
                function = Function(*(row[place] for place in keys))
                counts = _counts(path, reader.line_num, [row[place] for place in minutes])
                found[function] = found[function] + counts if function in found else counts
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path} is not a CSV table in UTF-8: {error}", advice=_EXPECTED) from error
    return Invocations(tuple(found), np.array([*found.values()], dtype=np.int32).reshape(-1, MINUTES))


def read_durations(path: str | os.PathLike[str]) -> dict[Function, Duration]:
    """Read the durations by function; the percentile columns are optional.

    Raises
    ------
    NotFound, InvalidArgument
        As `read_invocations`.
    """
    return {
        Function(*(row.text(column) for column in _FUNCTION)): Duration(
            row.number("Average"),
            row.number("Minimum"),
            row.number("Maximum"),
            int(row.number("Count")),
            {at: row.number(column) for at, column in _percentiles(row)},
        )
        for row in read_rows(path, (_DURATIONS,))
    }


def read_memory(path: str | os.PathLike[str]) -> dict[tuple[str, str], float]:
    """Read the average allocated memory [MB] of applications, by owner and application.

    Raises
    ------
    NotFound, InvalidArgument
        As `read_invocations`.
    """
    return {
        (row.text("HashOwner"), row.text("HashApp")): row.number("AverageAllocatedMb")
        for row in read_rows(path, (_MEMORY,))
    }


def rarely_called(counts: NDArray[np.int32], quantile: float = 0.9) -> NDArray[np.intp]:
    """Select functions: not among the most called (both papers), and called more than once (CremeBrulee).

    The text of CremeBrulee uses the 90th percentile, without saying of which functions (here: all that are
    called); its scripts use the 95th.

    Parameters
    ----------
    counts : ndarray, shape (F, 1440)
    quantile : float
        Functions with more calls a day than this quantile are left out.

    Returns
    -------
    ndarray, shape (G,)
        Indices of the functions.
    """
    calls = counts.sum(axis=1, dtype=np.int64)
    if not calls.any():
        return np.empty(0, dtype=np.intp)
    most = np.quantile(calls[calls > 0], quantile)
    return np.flatnonzero((calls > 1) & (calls <= most))


def events(
    counts: NDArray[np.int32], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Generate calls from counts per minute: evenly spaced, in random order (CremeBrulee, VI-A).

    Parameters
    ----------
    counts : ndarray, shape (F, T)
        Calls of F functions in T minutes.

    Returns
    -------
    times_s, functions : ndarray, shapes (M,)
        In ascending order of time; the clock starts with the first minute.
    """
    functions = np.arange(len(counts), dtype=np.int32)
    times: list[NDArray[np.float64]] = [np.empty(0)]
    called: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    for minute, column in enumerate(counts.T):
        calls = rng.permutation(np.repeat(functions, column))
        times.append((minute + np.arange(len(calls)) / max(1, len(calls))) * _MINUTE_S)
        called.append(calls)
    return np.concatenate(times), np.concatenate(called)


def _lines(file: TextIO, advance: Callable[[int], None]) -> Iterator[str]:
    for line in file:
        advance(len(line))
        yield line


def _columns(path: Path, header: list[str]) -> tuple[list[int], int, list[int]]:
    """Positions of the columns: hashes of the function, trigger and minutes."""
    places = {column: place for place, column in enumerate(header)}
    wanted = (*_FUNCTION, "Trigger", *map(str, range(1, MINUTES + 1)))
    missing = [column for column in wanted if column not in places]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InvalidArgument(f"{path}, line 1: no column {missing[0]!r}{more}", advice=_EXPECTED)
    if foreign := [column for column in header if column.isdecimal() and column not in wanted]:
        raise InvalidArgument(f"{path}, line 1: a day has no minute {foreign[0]}", advice=_EXPECTED)
    if len(places) < len(header):
        raise InvalidArgument(f"{path}, line 1: a column occurs twice", advice=_EXPECTED)
    return (
        [places[column] for column in _FUNCTION],
        places["Trigger"],
        [places[column] for column in wanted[4:]],
    )


def _counts(path: Path, line: int, fields: list[str]) -> NDArray[np.int32]:
    try:
        counts = np.array(fields, dtype=np.int32)
        if counts.min() >= 0:
            return counts
    except (ValueError, OverflowError):
        pass
    minute, field = next(
        (minute, field)
        for minute, field in enumerate(fields, 1)
        if not field.isdecimal() or int(field) > np.iinfo(np.int32).max
    )
    raise InvalidArgument(
        f"{path}, line {line}: minute {minute} is {field!r}", advice="expected a number of calls"
    )


def _percentiles(row: Row) -> list[tuple[int, str]]:
    columns = ((at, f"percentile_Average_{at}") for at in _PERCENTILES)
    return [(at, column) for at, column in columns if column in row.values]
