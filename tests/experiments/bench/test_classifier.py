"""The classifier benchmark: its rows, table and JSON."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from nearsight.common.errors import InvalidArgument, MissingDependency
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.experiments.bench.benchmark import Benchmark
from nearsight.experiments.bench.classifier import run
from support.gallery import numbered, write_data_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_set(tmp_path_factory.mktemp("bench"), numbered(range(6)))


def measured(folder: Path, **changes: object) -> Benchmark:
    options = {"objects": (3, 5), "backends": ("multihash", "flann-lsh"), "photos": 3, "unknown_photos": 2}
    return run(lambda _line: None, folder=folder, **{**options, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(folder: Path) -> Benchmark:
    return measured(folder)


def test_there_is_a_row_per_backend_and_number_of_objects(result: Benchmark) -> None:
    assert [(row["objects"], row["backend"]) for row in result.rows] == [
        (3, "multihash"),
        (3, "flann-lsh"),
        (5, "multihash"),
        (5, "flann-lsh"),
    ]
    assert all(row["build_ms"] > 0 and row["match_ms"] > 0 for row in result.rows)
    assert all((row["recall"], row["precision"]) == (1.0, 1.0) for row in result.rows)


def test_the_json_has_rows_and_environment(result: Benchmark) -> None:
    content = result.content()
    assert json.loads(json.dumps(content)) == content
    assert list(content) == ["rows", "environment"]
    names = {"backend", "objects", "photos", "unknown_photos", "build_ms", "match_ms", "recall", "precision"}
    assert set(content["rows"][0]) == names


def test_the_photos_that_were_measured_are_counted(folder: Path) -> None:
    rows = measured(folder, backends=("exact",), objects=(2, 6), photos=40, unknown_photos=3).rows
    assert [(row["photos"], row["unknown_photos"]) for row in rows] == [(2, 3), (6, 0)]


def test_the_ratio_to_flann_has_quartiles(result: Benchmark) -> None:
    ratios = result.content()["environment"]["faster_than_flann_lsh_matching"]
    assert [(ratio["backend"], ratio["objects"]) for ratio in ratios] == [("multihash", 3), ("multihash", 5)]
    for ratio in ratios:
        low, high = ratio["quartiles"]
        assert low <= ratio["times_faster"] <= high


def test_the_table_has_every_row(result: Benchmark) -> None:
    console = Console(record=True, width=120)
    console.print(result.table())
    assert console.export_text().count("multihash") == 2


@pytest.fixture
def _without_falconn(monkeypatch: pytest.MonkeyPatch) -> None:
    build = ObjectRecognizer.build

    def refuse(models: object, settings: object) -> ObjectRecognizer:
        if settings.backend == "falconn":  # type: ignore[attr-defined]
            raise MissingDependency("no falconn", advice="make falconn")
        return build(models, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(ObjectRecognizer, "build", refuse)


@pytest.mark.usefixtures("_without_falconn")
def test_without_any_of_the_backends_nothing_is_measured(folder: Path) -> None:
    with pytest.raises(MissingDependency, match="no falconn") as caught:
        measured(folder, backends=("falconn",))
    assert caught.value.advice == "make falconn"


@pytest.mark.usefixtures("_without_falconn")
def test_a_backend_that_is_not_installed_is_skipped_and_named(folder: Path) -> None:
    result = measured(folder, objects=(3,), backends=("multihash", "falconn"))
    assert [row["backend"] for row in result.rows] == ["multihash"]
    assert "make falconn" in result.content()["environment"]["not_installed"]["falconn"]


def test_without_a_data_set_a_museum_is_generated() -> None:
    steps: list[str] = []
    result = run(steps.append, objects=(2,), backends=("exact",), photos=2, unknown_photos=1)
    assert result.rows[0]["objects"] == 2
    assert "museum" in str(result.content()["environment"]["data"])
    assert any("painting" in line for line in steps)


@pytest.mark.parametrize(
    "wrong", [{"backends": ("magic",)}, {"objects": ()}, {"objects": (0,)}, {"photos": 0}]
)
def test_invalid_options_are_refused(wrong: dict[str, tuple[object, ...]]) -> None:
    with pytest.raises(InvalidArgument):
        run(lambda _line: None, **wrong)  # type: ignore[arg-type]


def test_a_data_set_with_too_few_objects_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="6 objects, but 50 are needed"):
        measured(folder, objects=(50,))
