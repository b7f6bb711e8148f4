"""``nearsight bench`` as a person or a script uses it."""

from __future__ import annotations

import json
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


def test_bench_cache_size_prints_rows_with_their_spread_and_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "cache-size", "--quick", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"exact", "python loop"} <= {row["method"] for row in result["rows"]}
    assert all(row["p25_ms"] <= row["median_ms"] <= row["p75_ms"] for row in result["rows"])
    assert {"machine", "cores", "commit", "versions", "created"} <= set(result["environment"])


def test_bench_markov_prints_memory_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "markov", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"PDF, top 50", "PDF, all objects", "observe"} <= {row["operation"] for row in rows}
    assert all(row["transitions"] == 20_000 and 0 < row["model_mib"] < 200 for row in rows)


def test_bench_classifier_writes_its_file_and_table(
    museum: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "classifier", "--objects", "6", "--backend", "exact", "--photos", str(museum)]
    assert main([*arguments, "--quick", "--json", "--out", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "classifier.json").read_text()) == printed
    (row,) = printed["rows"]
    assert {"backend", "objects", "build_ms", "match_ms", "recall", "precision"} <= set(row)
    assert "exact" in (tmp_path / "tables.txt").read_text()
