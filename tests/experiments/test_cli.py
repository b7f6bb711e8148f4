"""``nearsight experiment run``: interruption, continuation, and the printed targets."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearsight.__main__ import INTERRUPTED, main
from nearsight.common.folder_lock import locked
from nearsight.experiments import cli as experiment_cli
from nearsight.experiments.framework.experiment import Row, RunOptions, Target
from nearsight.experiments.framework.registry import experiments
from nearsight.experiments.studies.cachier import fig6_3


def run(folder: Path, *more: str) -> int:
    return main(["experiment", "run", "fig6.3", "--out", str(folder), "--smoke", *more])


@pytest.mark.system
def test_an_interrupted_run_continues_after_its_finished_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure, measured = fig6_3.Figure.run, []

    def stopped(figure: fig6_3.Figure, options: RunOptions, **parameters: Any) -> Iterator[Row]:
        if measured:
            raise KeyboardInterrupt
        measured.append(parameters)
        return measure(figure, options, **parameters)

    with monkeypatch.context() as patch:
        patch.setattr(fig6_3.Figure, "run", stopped)
        assert run(tmp_path) == INTERRUPTED
    shown = capsys.readouterr().err
    assert "fig6.3: 1/2, generated-0" in shown
    assert "completed parts are kept" in shown
    assert run(tmp_path) == 0
    shown = capsys.readouterr()
    assert "1 of 2 parts were measured before" in shown.err
    assert "fig6.3: 2/2, generated-1" in shown.err
    assert "generated-0" not in shown.err
    assert run(tmp_path) == 0
    assert "parts were measured before; --fresh replaces them" in capsys.readouterr().err


TARGETS = (Target("recall", 0.25, reached=False), Target("speed", 2.0, reached=True))


@pytest.mark.parametrize(
    ("rows", "said"),
    [("v,e,0\n", "line 2: not 4 fields"), ("v,e,0,1\n", "has 0 visitors of more than one exhibit")],
)
def test_a_run_with_unusable_visits_does_not_promise_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rows: str, said: str
) -> None:
    visits = tmp_path / "visits.csv"
    visits.write_text(f"visitor,exhibit,start_s,end_s\n{rows}")
    cells = [{"trace": fig6_3.RAW, "number": 0}]
    monkeypatch.setattr(fig6_3.Figure, "cells", lambda *_: cells)
    assert run(tmp_path / "out", "--visits", str(visits)) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert "continues" not in shown


@pytest.mark.parametrize("rows", ["v,e,0\n", "v,e,0,1\n"], ids=["malformed", "too few visitors"])
def test_an_unusable_file_of_visits_replaces_no_results(tmp_path: Path, rows: str) -> None:
    (tmp_path / "out").mkdir()
    earlier = tmp_path / "out" / "rows.csv"
    earlier.write_text("")
    visits = tmp_path / "visits.csv"
    visits.write_text(f"visitor,exhibit,start_s,end_s\n{rows}")
    assert run(tmp_path / "out", "--fresh", "--visits", str(visits)) == 2
    assert earlier.exists()


def test_a_second_run_into_a_folder_in_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "rows.csv"
    earlier.write_text("")
    with locked(tmp_path):
        assert run(tmp_path, "--fresh") == 5
    assert f"another command works in {tmp_path}" in capsys.readouterr().err.replace("\n", " ")
    assert earlier.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [((), "the same command continues"), (("--fresh",), "the same command without --fresh continues")],
)
def test_a_stopped_run_names_the_command_that_continues_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: Sequence[str],
    said: str,
) -> None:
    def stopped(*_: object, **_parameters: object) -> Sequence[Row]:
        raise KeyboardInterrupt

    monkeypatch.setattr(fig6_3.Figure, "run", stopped)
    assert run(tmp_path, *flags) == INTERRUPTED
    assert said in " ".join(capsys.readouterr().err.split())


def test_missed_targets_are_printed_last(capsys: pytest.CaptureFixture[str]) -> None:
    experiment_cli._show_targets(TARGETS)
    assert capsys.readouterr().out.splitlines() == [
        "reached  speed: 2.000",
        "MISSED   recall: 0.250",
        "Targets: 1 of 2 reached",
    ]


def test_a_target_without_a_value_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    experiment_cli._show_targets([Target.at_most("age", math.nan, 150.0)])
    assert capsys.readouterr().out.splitlines()[0] == "MISSED   age: none"


@pytest.mark.system
def test_targets_of_a_smoke_run_are_not_judged(
    smoke_runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def targets(_figure: fig6_3.Figure, _summary: Mapping[str, Any]) -> tuple[Target, ...]:
        return TARGETS

    folder = smoke_runs.copy("fig6.3", tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(fig6_3.Figure, "targets", targets)
    assert main(["experiment", "plot", "fig6.3", "--out", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "MISSED" not in "".join(lines)
    assert lines[-2] == "Targets: 2, not judged (smoke run)"
    stored = json.loads((folder / "summary.json").read_text())["targets"]
    assert [target["reached"] for target in stored] == [None, None]


@pytest.mark.parametrize(
    ("rows", "keys"),
    [([("10", "only cloud", 3.5), ("20", "only cloud", "-")], 2), ([("a", "b")], 1), ([], 1)],
    ids=["a number and a name", "nothing but words", "nothing"],
)
def test_the_leading_columns_without_numbers_are_the_keys_of_a_table(
    rows: Sequence[Sequence[object]], keys: int
) -> None:
    assert experiment_cli._keys(rows) == keys


def test_list_prints_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "list"]) == 0
    printed = capsys.readouterr().out.split()
    assert set(experiments()) <= set(printed)
