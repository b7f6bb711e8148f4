"""The files of the Azure Functions trace: reading, errors, and calls from counts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.traces.functions import (
    MINUTES,
    Function,
    events,
    rarely_called,
    read_durations,
    read_invocations,
    read_memory,
)

HEADER = ["HashOwner", "HashApp", "HashFunction", "Trigger", *map(str, range(1, MINUTES + 1))]
Table = list[list[str]]


def line(name: str, trigger: str = "http", **minutes: int) -> list[str]:
    counts = {int(minute[1:]): str(count) for minute, count in minutes.items()}
    return ["o", "a", name, trigger, *(counts.get(minute, "0") for minute in range(1, MINUTES + 1))]


def written(folder: Path, rows: Table) -> Path:
    path = folder / "invocations_per_function_md.anon.d01.csv"
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    return path


def test_calls_are_read_by_minute_and_trigger(tmp_path: Path) -> None:
    path = written(tmp_path, [HEADER, line("f", m1=3, m1440=1), line("g", "timer", m2=9), line("h")])
    found = read_invocations(path)
    assert found.functions == (Function("o", "a", "f"), Function("o", "a", "h"))
    assert found.counts.sum(axis=1).tolist() == [4, 0]
    assert found.counts[0, [0, 1, -1]].tolist() == [3, 0, 1]
    assert len(read_invocations(path, trigger="").functions) == 3
    assert read_invocations(path, trigger="queue").counts.shape == (0, MINUTES)


def test_columns_are_found_by_name_and_rows_of_one_function_are_summed(tmp_path: Path) -> None:
    rows = [[*HEADER, "Comment"], [*line("f", m2=1), "x"], [*line("f", m2=4), "y"]]
    turned = [row[::-1] for row in rows]
    assert read_invocations(written(tmp_path, turned)).counts[:, :3].tolist() == [[0, 5, 0]]


def _without(column: str) -> Callable[[Table], Table]:
    place = HEADER.index(column)
    return lambda rows: [row[:place] + row[place + 1 :] for row in rows]


def _changed(text: str) -> Callable[[Table], Table]:
    return lambda rows: [rows[0], [*rows[1][:10], text, *rows[1][11:]]]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_without("17"), "line 1: no column '17'"),
        (_without("Trigger"), "no column 'Trigger'"),
        (lambda rows: [row[:1] for row in rows], "no column 'HashApp' and 1442 more"),
        (lambda rows: [[*rows[0], "1441"], [*rows[1], "0"]], "a day has no minute 1441"),
        (lambda rows: [[*rows[0], "17"], [*rows[1], "0"]], "a column occurs twice"),
        (lambda rows: [rows[0], rows[1][:-1]], "line 2: 1443 fields, the header has 1444"),
        (_changed(""), "line 2: minute 7 is ''"),
        (_changed("many"), "line 2: minute 7 is 'many'"),
        (_changed("-1"), "line 2: minute 7 is '-1'"),
        (_changed("1.5"), "line 2: minute 7 is '1.5'"),
        (_changed("99999999999"), "line 2: minute 7 is .99999999999."),
    ],
)
def test_a_damaged_day_is_refused_with_its_place(
    tmp_path: Path, damage: Callable[[Table], Table], complaint: str
) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        read_invocations(written(tmp_path, damage([HEADER, line("f")])))


def test_a_missing_day_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"d02\.csv"):
        read_invocations(tmp_path / "invocations.d02.csv")


def test_durations_and_memory_are_read(tmp_path: Path) -> None:
    durations = tmp_path / "durations.csv"
    durations.write_text(
        "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,percentile_Average_50,percentile_Average_99\n"
        "o,a,f,100.5,57523,99.0,101.0,100.0,101.0\n"
    )
    found = read_durations(durations)[Function("o", "a", "f")]
    assert (found.average_ms, found.minimum_ms, found.maximum_ms, found.count) == (100.5, 99.0, 101.0, 57523)
    assert found.percentiles_ms == {50: 100.0, 99: 101.0}
    memory = tmp_path / "memory.csv"
    memory.write_text(
        "HashOwner,HashApp,SampleCount,AverageAllocatedMb,AverageAllocatedMb_pct1\no,a,7,120,99\n"
    )
    assert read_memory(memory) == {("o", "a"): 120.0}


@pytest.mark.parametrize("read", [read_durations, read_memory])
def test_other_tables_are_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "table.csv"
    path.write_text("HashOwner,HashApp\no,a\n")
    with pytest.raises(InvalidArgument, match="expected the columns HashOwner,HashApp"):
        read(path)


def test_popular_functions_and_those_called_once_are_removed() -> None:
    calls = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1_000]
    counts = np.zeros((len(calls), MINUTES), dtype=np.int32)
    counts[:, 5] = calls
    assert rarely_called(counts).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert rarely_called(counts[:1]).tolist() == []


def test_calls_are_spaced_evenly_over_their_minute_in_random_order() -> None:
    counts = np.array([[2, 0, 1], [1, 0, 3]], dtype=np.int32)
    times, functions = events(counts, np.random.default_rng(1))
    assert times.tolist() == [0.0, 20.0, 40.0, 120.0, 135.0, 150.0, 165.0]
    assert sorted(functions[:3]) == [0, 0, 1]
    assert sorted(functions[3:]) == [0, 1, 1, 1]
    orders = {tuple(events(counts, np.random.default_rng(seed))[1]) for seed in range(30)}
    assert len(orders) > 5
