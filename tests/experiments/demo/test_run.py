"""The result files of a demo that does not reach its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import INTERRUPTED, SetupError
from nearsight.common.folder_lock import locked
from nearsight.experiments.demo import run
from nearsight.experiments.demo.picture import PICTURE, ROWS, SUMMARY
from nearsight.experiments.demo.report import ConfigurationResult
from nearsight.experiments.demo.scenario import CONFIGURATIONS, QUICK
from nearsight.experiments.rig.rows import RequestRow

Interrupted = Callable[[int], None]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Interrupted:
    """Run a demo in ``tmp_path`` that is interrupted after a number of configurations."""

    def run_some(completed: int) -> None:
        def play(name: str, *_: object) -> list[ConfigurationResult]:
            if name not in CONFIGURATIONS[:completed]:
                raise KeyboardInterrupt
            row = RequestRow(name, "v1", 0, 0.0, 0.1, "a", "a", "recognized", 1, "cloud", 100.0)
            return [ConfigurationResult(name, (row,), {}, {}, {}, timeout_s=5.0)]

        monkeypatch.setattr(run, "prepare", lambda *_: SimpleNamespace())
        monkeypatch.setattr(run, "_run_configuration", play)
        assert main(["demo", "--out", str(tmp_path)]) == INTERRUPTED

    return run_some


def test_an_interrupted_demo_keeps_the_results_of_completed_configurations(
    interrupted: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(1)
    assert list(json.loads((tmp_path / SUMMARY).read_text())["configurations"]) == [CONFIGURATIONS[0]]
    assert (tmp_path / PICTURE).exists()
    assert f"results of the completed configurations are in {tmp_path}" in " ".join(
        capsys.readouterr().err.split()
    )


def test_an_interrupted_demo_leaves_no_results_of_an_earlier_one(
    interrupted: Interrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (ROWS, SUMMARY, PICTURE):
        (tmp_path / name).touch()
    interrupted(0)
    assert list(tmp_path.iterdir()) == []
    assert "results" not in capsys.readouterr().err


def test_settings_of_the_user_do_not_change_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nearsight.toml").write_text("[edge]\nstandby_mb = 0\n")
    played = []
    monkeypatch.setattr(run, "_run", lambda scenario, _folder: played.append(scenario))
    run.run_demo(QUICK, tmp_path / "demo")
    (tmp_path / "nearsight.toml").unlink()
    monkeypatch.setenv("NEARSIGHT_EDGE__STANDBY_MB", "0")
    run.run_demo(QUICK, tmp_path / "demo")
    assert [scenario.alone for scenario in played] == [QUICK.alone] * 2
    assert QUICK.alone > 0


def test_a_second_demo_in_one_folder_is_refused_and_leaves_the_results(tmp_path: Path) -> None:
    for name in (ROWS, SUMMARY, PICTURE):
        (tmp_path / name).write_text("of an earlier demo")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with locked(tmp_path), pytest.raises(SetupError, match="another command works in"):
        run.run_demo(QUICK, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
