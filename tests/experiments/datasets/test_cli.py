"""``nearsight evaluate``: table, JSON and errors."""

import json
import shutil
from pathlib import Path

import pytest

from nearsight.__main__ import main


def test_evaluate_prints_json(small_museum: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(small_museum), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == ["recall", "precision", "wrong", "queries", "extract_ms", "match_ms", "verify_ms"]
    assert figures["queries"] == 9
    assert figures["wrong"] == 0


def test_evaluate_accepts_a_backend_and_a_number_of_features(
    small_museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["evaluate", str(small_museum), "--backend", "exact", "--query-features", "300", "--failures"])
        == 0
    )
    assert "small" in capsys.readouterr().out


def test_evaluate_measures_the_settings_of_a_daemon_on_request(
    small_museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(small_museum), "--serving", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == 0


def test_an_unknown_backend_is_refused_before_any_work(
    small_museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(small_museum), "--backend", "magic"]) != 0
    error = capsys.readouterr().err
    assert "no classifier backend 'magic'" in error
    assert "recognising" not in error


@pytest.mark.parametrize("command", [["evaluate"], ["bench", "classifier", "--photos"]])
def test_more_features_than_a_photo_may_have_are_refused(
    small_museum: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([*command, str(small_museum), "--query-features", "10001"]) == 2
    assert "--query-features" in capsys.readouterr().err


def test_without_labels_a_note_is_printed_to_standard_error_and_the_table_fits_80_columns(
    small_museum: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsight.common.command_line.terminal.PIPED_WIDTH", 80)
    alone = tmp_path / "references"
    shutil.copytree(small_museum / "references", alone)
    assert main(["evaluate", str(alone)]) == 0
    shown = capsys.readouterr()
    assert "note: " in shown.err
    assert "labels.csv" in shown.err
    for heading in ("objects", "photos", "recall", "precision", "wrong", "extract"):
        assert heading in shown.out


def test_a_missing_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: there is no folder")
