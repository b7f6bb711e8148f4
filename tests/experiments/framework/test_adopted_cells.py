"""Cells that several experiments have in common are measured once."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.framework.experiment import Experiment, RunOptions, StoredRow
from nearsight.experiments.framework.running import adopt_cells, check, prepare, run_cells
from support.squares import Squares

FEW, ALL = RunOptions(smoke=True), RunOptions()


class SquaresWithFewer(Squares):
    """Its cells are among those of others with the same options."""

    def cell_of(self, row: StoredRow) -> str:
        return f"n-{row['n']}"


class FewSquares(SquaresWithFewer):
    """The first two."""

    def cells(self, options: RunOptions):
        return super().cells(options)[:2]


def measure(experiment: Experiment, out: Path, options: RunOptions = ALL) -> None:
    prepare(experiment, options, out)
    run_cells(experiment, options, out, lambda _cells: None)


def test_only_what_others_did_not_measure_is_measured(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    all_of_them = SquaresWithFewer()
    prepare(all_of_them, ALL, tmp_path / "all")
    assert adopt_cells(all_of_them, ALL, tmp_path / "all", tmp_path / "few") == 2
    run_cells(all_of_them, ALL, tmp_path / "all", lambda _cells: None)
    assert all_of_them.measured == ["n-2", "n-3"]


def rewrite(folder: Path, changed: Callable[[StoredRow], StoredRow]) -> None:
    """As if an earlier run had left other rows."""
    path = folder / "rows.csv"
    rows = [changed(row) for row in stored_rows(path)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def stored_rows(path: Path) -> list[StoredRow]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def adopted(folder: Path) -> list[StoredRow]:
    """All rows, those of the run with fewer cells among them."""
    experiment = SquaresWithFewer()
    prepare(experiment, ALL, folder / "all")
    adopt_cells(experiment, ALL, folder / "all", folder / "few")
    run_cells(experiment, ALL, folder / "all", lambda _cells: None)
    return stored_rows(folder / "all" / "rows.csv")


def test_adopted_rows_keep_where_they_were_measured(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    rewrite(tmp_path / "few", lambda row: {**row, "machine": "another"})
    machines = [row["machine"] for row in adopted(tmp_path)]
    assert machines[:2] == ["another", "another"]
    assert "another" not in machines[2:]


def test_adopted_rows_may_lack_what_is_measured_by_now(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    rewrite(tmp_path / "few", lambda row: {name: row[name] for name in row if name != "square"})
    squares = [row["square"] for row in adopted(tmp_path)]
    assert squares == ["", "", "4", "9"]


def test_cells_of_other_settings_are_not_used(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few", replace(ALL, seed=2))
    experiment = SquaresWithFewer()
    prepare(experiment, ALL, tmp_path / "all")
    assert adopt_cells(experiment, ALL, tmp_path / "all", tmp_path / "few") == 0


@pytest.mark.parametrize(
    "options", [replace(FEW, on="testbed"), replace(FEW, costs="paper"), replace(FEW, runs=2)]
)
def test_an_experiment_that_runs_in_one_way_refuses_to_be_told_how(options: RunOptions) -> None:
    with pytest.raises(InvalidArgument, match="one way"):
        check(Squares(), options)
