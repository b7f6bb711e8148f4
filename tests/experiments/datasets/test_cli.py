"""``nearsight evaluate`` as a person or a script uses it."""

import json
import shutil
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.experiments.museum.generation import generate_museum
from nearsight.experiments.museum.settings import MuseumSettings


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("museums") / "small"
    generate_museum(folder, MuseumSettings(objects=6, photos_per_object=1, unknown_photos=3))
    return folder


def test_evaluate_prints_the_figures_as_json(museum: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(museum), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == ["recall", "precision", "wrong", "queries", "extract_ms", "match_ms", "verify_ms"]
    assert figures["queries"] == 9
    assert figures["wrong"] == 0


def test_evaluate_takes_a_backend_and_a_number_of_features(
    museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(museum), "--backend", "exact", "--query-features", "300", "--failures"]) == 0
    assert "small" in capsys.readouterr().out


def test_evaluate_measures_what_a_daemon_does_on_request(
    museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(museum), "--serving", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == 0


def test_an_unknown_backend_is_refused_before_any_work(
    museum: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(museum), "--backend", "magic"]) != 0
    error = capsys.readouterr().err
    assert "no classifier backend 'magic'" in error
    assert "recognising" not in error


def test_without_labels_there_is_a_note_apart_from_the_table_which_fits_80_columns(
    museum: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearsight.common.command_line.terminal.PIPED_WIDTH", 80)
    alone = tmp_path / "references"
    shutil.copytree(museum / "references", alone)
    assert main(["evaluate", str(alone)]) == 0
    shown = capsys.readouterr()
    assert "note: " in shown.err
    assert "labels.csv" in shown.err
    for heading in ("objects", "photos", "recall", "precision", "wrong", "extract"):
        assert heading in shown.out


def test_a_folder_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: there is no folder")
