"""``nearsight bench``: JSON, and files of results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import Unavailable
from nearsight.experiments.bench import cli
from nearsight.experiments.bench.cli import _logs
from nearsight.experiments.framework import extra


def test_an_error_keeps_the_temporary_folder_of_the_log_that_it_names() -> None:
    with pytest.raises(Unavailable), _logs(None) as folder:
        (folder / "edge.log").touch()
        raise Unavailable(f"the edge ended; its log is {folder}/edge.log")
    assert (folder / "edge.log").exists()
    shutil.rmtree(folder)

    with pytest.raises(Unavailable), _logs(None) as without:
        raise Unavailable("no photos")
    with pytest.raises(KeyboardInterrupt), _logs(None) as interrupted:
        (interrupted / "edge.log").touch()
        raise KeyboardInterrupt
    with _logs(None) as finished:
        (finished / "edge.log").touch()
    assert not any(one.exists() for one in (without, interrupted, finished))


def test_bench_cache_size_prints_rows_and_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "cache-size", "--quick", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"exact", "python loop"} <= {row["method"] for row in result["rows"]}
    environment = result["environment"]
    assert {"machine", "cores", "commit", "versions", "created"} <= set(environment)
    assert environment["versions"]["nearsight"]
    assert environment["python"].count(".") == 2


@pytest.mark.parametrize("benchmark", ["cache-size", "all"])
def test_a_file_instead_of_a_folder_is_refused_before_the_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], benchmark: str
) -> None:
    (tmp_path / "file").touch()
    assert main(["bench", benchmark, "--out", str(tmp_path / "file")]) == 2
    assert "is a file" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_bench_classifier_writes_its_file_and_table(
    small_museum: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "classifier", "--objects", "6", "--backend", "exact", "--photos", str(small_museum)]
    assert main([*arguments, "--quick", "--json", "--out", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "classifier.json").read_text()) == printed
    assert "exact" in (tmp_path / "tables.txt").read_text()


@pytest.mark.parametrize("missing", ["photos", "onnx"])
def test_what_a_benchmark_of_all_lacks_is_named_before_the_first_measurement(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(cli, "_benchmark", lambda name, _quick: lambda _tell: begun.append(name))
    options = ["--photos", str(tmp_path / "photos")] if missing == "photos" else []
    if missing == "onnx":
        monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "onnx" else name)
    assert main(["bench", "all", "--out", str(tmp_path / "out"), *options]) != 0
    assert missing in " ".join(capsys.readouterr().err.split())
    assert begun == []
