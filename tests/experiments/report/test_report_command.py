"""``nearsight experiment report``."""

from pathlib import Path

import pytest

from nearsight.__main__ import main


def test_the_report_of_an_empty_folder_lists_missing_experiments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "report", "--results", str(tmp_path)]) == 0
    out = tmp_path / "report.html"
    assert f"Report: {out}" in capsys.readouterr().out
    assert "nearsight experiment run fig6.3" in out.read_text(encoding="utf-8")
    assert sorted(tmp_path.iterdir()) == [out]


def test_a_missing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "report", "--results", str(tmp_path / "gone")]) != 0
    assert "there is no folder" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken.html").mkdir()
    out = str(tmp_path / "taken.html")
    assert main(["experiment", "report", "--results", str(tmp_path), "--out", out]) != 0
    assert "--out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken.html"]
