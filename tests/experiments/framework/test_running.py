"""Runs of experiments: finished cells are kept, and numbers and pictures are computed from the files.

Cells that several experiments share are measured once. Processes that run cells end with their parent.
"""

import csv
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearsight.common.errors import CorruptStore, InternalError, InvalidArgument, NotFound, Unavailable
from nearsight.experiments.framework import running
from nearsight.experiments.framework.experiment import Experiment, Row, RunOptions, StoredRow
from nearsight.experiments.framework.numbers import mean_and_spread
from nearsight.experiments.framework.registry import find_experiment
from nearsight.experiments.framework.result_files import PROVENANCE, ResultFolder
from nearsight.experiments.framework.running import (
    adopt_cells,
    cells_of,
    check,
    conclude,
    missing_cells,
    mixed_provenance,
    prepare,
    run_cell,
    run_cells,
)
from support.leash import ended, leashed
from support.squares import Killed, Squares, SquaresAtOnce
from support.waiting import wait_until

FEW, ALL = RunOptions(smoke=True), RunOptions()

_PROGRAM = """
import sys
from pathlib import Path
from nearsight.experiments.framework.running import cells_of, run_in_processes
from nearsight.experiments.framework.experiment import RunOptions
from support.squares import Endless
if __name__ == "__main__":
    endless = Endless(Path(sys.argv[1]))
    list(run_in_processes(endless, RunOptions(), cells_of(endless, RunOptions()), 2))
"""


def run(experiment: Squares, out: Path, options: RunOptions | None = None, *, fresh: bool = False) -> int:
    options = options or RunOptions()
    steps = count()
    prepare(experiment, options, out, fresh=fresh)
    run_cells(experiment, options, out, lambda: next(steps))
    conclude(experiment, out)
    return next(steps)


def test_a_run_writes_rows_summary_and_picture_with_their_provenance(tmp_path: Path) -> None:
    assert run(Squares(), tmp_path, RunOptions(seed=7)) == 4
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["square"] for row in rows] == ["0", "1", "4", "9"]
    assert all(row["seed"] == "7" and set(PROVENANCE) <= set(row) for row in rows)
    assert "numpy=" in rows[0]["versions"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["metrics"] == {"sum": 14}
    assert summary["targets"] == [{"text": "sum over 10", "value": 14, "reached": True, "note": ""}]
    assert summary["environment"]["python"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rows.csv",
        "run.json",
        "squares.png",
        "summary.json",
    ]


def test_an_interrupted_run_continues_and_gives_the_rows_of_an_uninterrupted_one(tmp_path: Path) -> None:
    experiment, broken = Squares(), tmp_path / "broken"
    experiment.fails_at = "n-2"
    with pytest.raises(Unavailable):
        run(experiment, broken)
    assert not (broken / "rows.csv").exists()
    again = Squares()
    assert [*missing_cells(again, RunOptions(), broken)] == ["n-2", "n-3"]
    assert run(again, broken) == 2
    assert again.measured == ["n-2", "n-3"]
    run(Squares(), tmp_path / "whole")
    assert ResultFolder(broken).rows() == ResultFolder(tmp_path / "whole").rows()


def test_each_row_has_the_provenance_of_the_run_that_measured_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = running.describe_environment()
    for commit, fails_at in (("before", "n-2"), ("after", "")):
        experiment = Squares()
        experiment.fails_at = fails_at
        monkeypatch.setattr(
            running, "describe_environment", lambda found=commit: {**environment, "commit": found}
        )
        with pytest.raises(Unavailable) if fails_at else nullcontext():
            run(experiment, tmp_path)
    assert [row["commit"] for row in ResultFolder(tmp_path).rows()] == ["before", "before", "after", "after"]
    assert ResultFolder(tmp_path).summary()["mixed"] == ["commit: before (2 rows), after (2 rows)"]


def test_rows_of_one_run_are_of_its_environment(tmp_path: Path) -> None:
    run(Squares(), tmp_path)
    assert ResultFolder(tmp_path).summary()["mixed"] == []


def test_of_several_versions_only_those_that_differ_are_named() -> None:
    information = {
        "configuration": RunOptions().configuration(),
        "environment": running.describe_environment(),
    }
    environment = {**information["environment"], "versions": {"numpy": "2.1", "scipy": "1.1"}}
    same = {name: str(environment[name]) for name in ("commit", "machine", "python")}
    rows = [{**same, "versions": one} for one in ("numpy=2.1 scipy=1.1", "numpy=2.2 scipy=1.1", "scipy=1.1")]
    information = {**information, "environment": environment}
    assert mixed_provenance(rows, information) == [
        "versions: numpy=2.1 (1 row), numpy=2.2 (1 row), others (1 row)"
    ]
    assert mixed_provenance(rows[:1], information) == []
    assert mixed_provenance([{**rows[0], "commit": "older"}], information) == ["commit: older (1 row)"]


def test_a_run_whose_finished_cells_disappear_leaves_the_rows_of_another_run(tmp_path: Path) -> None:
    class Overtaken(Squares):
        def run(self, options: RunOptions, name: str, n: int) -> Iterable[Row]:
            if n == 3:
                measure(Squares(), tmp_path)
            return super().run(options, name, n)

    with pytest.raises(CorruptStore, match=r"n-0 disappeared from .* let no other run use this folder"):
        run(Overtaken(), tmp_path)
    assert len(ResultFolder(tmp_path).rows()) == 4


def test_cells_with_one_name_are_refused_before_earlier_results_are_deleted(tmp_path: Path) -> None:
    class Clips(Squares):
        def cells(self, options: RunOptions) -> list[dict[str, Any]]:
            return [{"name": name, "n": 1} for name in ("walk (1)", "walk 1")]

    run(Squares(), tmp_path)
    with pytest.raises(InvalidArgument, match="would have the name walk-1-1; give the files of --data names"):
        prepare(Clips(), RunOptions(), tmp_path, fresh=True)
    assert len(ResultFolder(tmp_path).rows()) == 4


@pytest.mark.system
def test_cells_in_several_processes_give_rows_in_the_order_of_the_cells(tmp_path: Path) -> None:
    assert run(SquaresAtOnce(), tmp_path) == 4
    rows = ResultFolder(tmp_path).rows()
    assert [row["square"] for row in rows] == ["0", "1", "4", "9"]
    assert str(os.getpid()) not in {row["noise"] for row in rows}


@pytest.mark.system
def test_cells_that_finished_before_another_process_failed_are_kept(tmp_path: Path) -> None:
    experiment = SquaresAtOnce()
    experiment.fails_at = "n-3"
    with pytest.raises(Unavailable, match="the edge went away"):
        run(experiment, tmp_path)
    missing = missing_cells(SquaresAtOnce(), RunOptions(), tmp_path)
    assert "n-3" in missing
    wait_until(lambda: not multiprocessing.active_children(), what="the end of all workers")
    assert run(SquaresAtOnce(), tmp_path) == len(missing)


def test_a_finished_run_is_measured_again_only_on_request(tmp_path: Path) -> None:
    run(Squares(), tmp_path)
    assert missing_cells(Squares(), RunOptions(), tmp_path) == {}
    assert run(Squares(), tmp_path) == 0
    assert run(Squares(), tmp_path, fresh=True) == 4


@pytest.mark.parametrize("other", [RunOptions(seed=2), RunOptions(smoke=True)])
def test_results_of_different_settings_are_never_mixed(tmp_path: Path, other: RunOptions) -> None:
    run(Squares(), tmp_path)
    with pytest.raises(InvalidArgument, match="other settings"):
        run(Squares(), tmp_path, other)
    run(Squares(), tmp_path, other, fresh=True)


def test_files_of_a_data_set_count_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "queries").symlink_to(tmp_path / "disk")
    for number in range(20):  # followed without end, these would be more paths than anybody can read
        (tmp_path / "disk" / f"back-{number}").symlink_to(tmp_path / "data")
    options = RunOptions(data=tmp_path / "data")
    found = set()
    for content in ("one photo", "another"):
        (tmp_path / "disk" / "photo.jpg").write_text(content)
        found.add(options.configuration()["data"])
    assert len(found) == 2


def test_replacing_results_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run(Squares(), tmp_path)
    prepare(Squares(), ALL, tmp_path, fresh=True)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "run.json"}


def test_missing_visits_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        prepare(find_experiment("fig6.3"), RunOptions(visits=tmp_path / "gone.csv"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument):
        run(Squares(), tmp_path / "file" / "out")


def test_damaged_and_missing_files_are_different_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        conclude(Squares(), tmp_path)
    run(Squares(), tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CorruptStore):
        conclude(Squares(), tmp_path)


def test_only_damaged_and_deleted_cells_are_measured_again(tmp_path: Path) -> None:
    squares = Squares()
    prepare(squares, ALL, tmp_path)
    cells, folder = cells_of(squares, ALL), ResultFolder(tmp_path)
    for key, parameters in cells.items():
        folder.keep_cell(key, run_cell(squares, ALL, parameters))
    damaged = [*cells][1]
    (tmp_path / "cells" / f"{damaged}.json").write_bytes(b"")  # as after a power failure
    assert [*missing_cells(squares, ALL, tmp_path)] == [damaged]
    shutil.rmtree(tmp_path / "cells")
    assert run(squares, tmp_path) == len(cells)


@pytest.mark.parametrize("end", [b"", b"\xff"], ids=["cut off", "no text"])
def test_damaged_rows_are_refused(tmp_path: Path, end: bytes) -> None:
    run(Squares(), tmp_path)
    rows = tmp_path / "rows.csv"
    rows.write_bytes(rows.read_bytes().rpartition(b",")[0] + end)
    with pytest.raises(CorruptStore, match=r"rows\.csv is damaged; run the experiment again"):
        conclude(Squares(), tmp_path)


def test_rows_of_another_version_are_refused(tmp_path: Path) -> None:
    run(Squares(), tmp_path)
    for content, problem in (("root\n3\n", "lacks 'square'"), ("square\nx\n", "cannot be read: .*'x'")):
        (tmp_path / "rows.csv").write_text(content)
        message = f"{problem}; it is damaged, or from another version of squares.*fresh"
        with pytest.raises(CorruptStore, match=message):
            conclude(Squares(), tmp_path)


def test_random_numbers_depend_on_seed_and_name_alone() -> None:
    options = RunOptions(seed=3)
    assert options.rng("a", 1).random() == options.rng("a", 1).random()
    drawn = {
        options.rng("a", 1).random(),
        options.rng("a", 2).random(),
        options.rng("b", 1).random(),
        RunOptions(seed=4).rng("a", 1).random(),
    }
    assert len(drawn) == 4


def test_the_spread_of_repetitions_is_computed() -> None:
    assert mean_and_spread([1.0, 3.0]) == {"mean": 2.0, "std": 1.414214, "min": 1.0, "max": 3.0, "runs": 2}
    assert mean_and_spread([1.0])["std"] == 0.0


class SquaresWithFewer(Squares):
    """An experiment whose cells other experiments share."""

    def cell_of(self, row: StoredRow) -> dict[str, Any]:
        return {"name": "n", "n": row["n"]}


class FewSquares(SquaresWithFewer):
    """The first two."""

    def cells(self, options: RunOptions):
        return super().cells(options)[:2]


def measure(experiment: Experiment, out: Path, options: RunOptions = ALL) -> None:
    prepare(experiment, options, out)
    run_cells(experiment, options, out, lambda: None)


def test_cells_that_another_experiment_measured_are_adopted(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    all_of_them = SquaresWithFewer()
    prepare(all_of_them, ALL, tmp_path / "all")
    assert adopt_cells(all_of_them, ALL, tmp_path / "all", tmp_path / "few") == 2
    run_cells(all_of_them, ALL, tmp_path / "all", lambda: None)
    assert all_of_them.measured == ["n-2", "n-3"]


def rewrite(folder: Path, changed: Callable[[StoredRow], StoredRow]) -> None:
    """Change the stored rows, to simulate those of an earlier run."""
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
    """All rows of a run that adopted those of the run with fewer cells."""
    experiment = SquaresWithFewer()
    prepare(experiment, ALL, folder / "all")
    adopt_cells(experiment, ALL, folder / "all", folder / "few")
    run_cells(experiment, ALL, folder / "all", lambda: None)
    return stored_rows(folder / "all" / "rows.csv")


def test_adopted_rows_keep_their_provenance(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    rewrite(tmp_path / "few", lambda row: {**row, "machine": "another"})
    machines = [row["machine"] for row in adopted(tmp_path)]
    assert machines[:2] == ["another", "another"]
    assert "another" not in machines[2:]


def test_adopted_rows_may_lack_new_columns(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few")
    rewrite(tmp_path / "few", lambda row: {name: row[name] for name in row if name != "square"})
    squares = [row["square"] for row in adopted(tmp_path)]
    assert squares == ["", "", "4", "9"]


def test_cells_of_other_settings_are_not_adopted(tmp_path: Path) -> None:
    measure(FewSquares(), tmp_path / "few", replace(ALL, seed=2))
    experiment = SquaresWithFewer()
    prepare(experiment, ALL, tmp_path / "all")
    assert adopt_cells(experiment, ALL, tmp_path / "all", tmp_path / "few") == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on", "testbed"),
        ("costs", "paper"),
        ("runs", 2),
        ("clients", 2),
        ("data", Path()),
        ("visits", Path("stays.csv")),
    ],
)
def test_an_option_that_the_experiment_does_not_use_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"squares does not use --{name}; leave out --{name}"):
        check(Squares(), replace(FEW, **{name: value}))


def test_the_sudden_end_of_a_process_is_named(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="process that measured a part ended suddenly"):
        measure(Killed(), tmp_path)


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has this signal")
def test_cells_end_with_the_process_that_runs_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    tests = str(Path(__file__).parents[2])
    with subprocess.Popen(
        leashed(str(program), str(tmp_path)), env={**os.environ, "PYTHONPATH": tests}
    ) as process:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, timeout_s=100, what="two running cells")
        process.kill()
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_until(lambda: all(map(ended, workers)), what="the end of the workers")
