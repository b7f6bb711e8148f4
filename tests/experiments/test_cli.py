"""``nearsight experiment run`` as a person uses it: stop it, start it again, read what was reached."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearsight.__main__ import INTERRUPTED, main
from nearsight.experiments import cli as experiment_cli
from nearsight.experiments.framework.experiment import Cell, Row, RunOptions, Target
from nearsight.experiments.studies.cachier import fig6_3


def run(folder: Path, *more: str) -> int:
    return main(["experiment", "run", "fig6.3", "--out", str(folder), "--smoke", *more])


@pytest.mark.system
def test_a_stopped_run_goes_on_after_its_finished_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure, measured = fig6_3.Figure.run, []

    def stopped(figure: fig6_3.Figure, cell: Cell, options: RunOptions) -> Sequence[Row]:
        if measured:
            raise KeyboardInterrupt
        measured.append(cell.key)
        return measure(figure, cell, options)

    with monkeypatch.context() as patch:
        patch.setattr(fig6_3.Figure, "run", stopped)
        assert run(tmp_path) == INTERRUPTED
    shown = capsys.readouterr().err
    assert "fig6.3: 1/2, generated-00" in shown
    assert "completed parts are kept" in shown
    assert run(tmp_path) == 0
    shown = capsys.readouterr()
    assert "1 of 2 parts were measured before" in shown.err
    assert "fig6.3: 2/2, generated-01" in shown.err
    assert "generated-00" not in shown.err
    assert run(tmp_path) == 0
    assert "already has all measurements" in capsys.readouterr().err


TARGETS = (Target("the moon", 0.25, reached=False), Target("the hill", 2.0, reached=True))


def test_what_was_missed_stands_last(capsys: pytest.CaptureFixture[str]) -> None:
    experiment_cli._show_targets(TARGETS)
    assert capsys.readouterr().out.splitlines() == [
        "reached  the hill: 2.000",
        "MISSED   the moon: 0.250",
        "Targets: 1 of 2 reached",
    ]


@pytest.mark.system
def test_a_smoke_run_is_not_judged(
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
def test_a_table_repeats_what_its_rows_are_called(rows: Sequence[Sequence[object]], keys: int) -> None:
    assert experiment_cli._keys(rows) == keys
