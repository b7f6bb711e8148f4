"""``nearsight replay``: options are checked first, and rows are written also after an interruption."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import INTERRUPTED, Cancelled, DeadlineExceeded
from nearsight.experiments.rig import replay
from nearsight.experiments.rig.replay import Ledger
from nearsight.experiments.rig.rows import read_request_rows
from support.pictures import picture_jpeg


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "a.jpg").write_bytes(picture_jpeg(1))
    trace = tmp_path / "trace.csv"
    trace.write_text("objectID,imagePath,time_ms\na,a.jpg,0\na,a.jpg,1000\na,a.jpg,2000\n")
    (tmp_path / "empty.toml").touch()
    config = ["--config", str(tmp_path / "empty.toml"), "--edge", "tcp://127.0.0.1:1", "--timeout", "0.1"]
    return ["replay", str(trace), "--photos", str(tmp_path), *config]


@pytest.mark.parametrize(
    "wrong",
    [["--seconds", "0"], ["--timeout", "inf"], ["--seed", "-1"], ["--start-after", "-1"], ["--out", "/tmp"]],
)
def test_invalid_options_are_refused(command: list[str], wrong: list[str]) -> None:
    assert main([*command, *wrong]) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--unknown-share", "0.5", "--seed", "0"], "--unknown-share and --seed: nothing is chosen"),
        (["--start-after", "inf"], "the last photo is due after inf s"),
        (["--out", "trace.csv"], "trace.csv is the trace"),
    ],
)
def test_an_option_that_does_not_fit_the_trace_is_refused(
    command: list[str],
    wrong: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = (tmp_path / "trace.csv").read_text()
    assert main([*command, *wrong]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "trace.csv").read_text() == trace


def test_rows_below_a_file_are_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--out", f"{command[1]}/rows.csv"]) == 5
    assert "a file has this name" in capsys.readouterr().err


def test_a_replay_without_any_answer_is_an_error_after_its_rows_are_written(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "monday" / "rows.csv"
    assert main([*command, "--seconds", "0.5", "--out", str(out)]) == 4  # there is no edge
    assert "none of the 1 requests was answered" in capsys.readouterr().err
    assert [row.outcomes for row in read_request_rows(out)] == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_writes_its_rows(
    command: list[str],
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(_options: Any, _settings: Any, plan: Any, on_row: Any) -> None:
        ledger = Ledger("replay", "me", on_row)
        for photo in plan:
            ledger.sent(photo, photo.at_s, 0.0)
        for request in (1, 0):
            ledger.completed(request, DeadlineExceeded("late"), 3.0)
        ledger.completed(2, Cancelled("the recognizer was closed"), 3.0)
        signal.raise_signal(number)

    monkeypatch.setattr(replay, "run_device", interrupted)
    out = tmp_path / "rows.csv"
    assert main([*command, "--out", str(out)]) == INTERRUPTED
    assert [row.number for row in read_request_rows(out)] == [0, 1]
    assert f"stopped: {out} has 2 of 3 rows" in capsys.readouterr().err.replace("\n", " ")
