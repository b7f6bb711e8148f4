"""A museum on disk: complete, reproducible, continued after an interruption, and never mixed with another."""

import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError, InvalidArgument
from nearsight.experiments.datasets.loading import load_dataset
from nearsight.experiments.museum.generation import generate_museum, query_name, read_settings, render_photos
from nearsight.experiments.museum.settings import UNKNOWN_FROM, MuseumSettings
from support.waiting import wait_until

SMALL = MuseumSettings(objects=3, seed=2, photos_per_object=2, unknown_photos=2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("museum")
    generate_museum(folder, SMALL)
    return folder


def test_a_museum_is_a_data_set_with_known_and_unknown_photos(museum: Path) -> None:
    dataset = load_dataset(museum)
    assert [reference.object_id for reference in dataset.references] == ["0001", "0002", "0003"]
    assert [query.object_id for query in dataset.queries] == [
        *("0001", "0001", "0002", "0002", "0003", "0003"),
        *(None, None),
    ]
    assert all(reference.label != reference.object_id for reference in dataset.references)
    assert set(dataset.references[0].metadata) == {"artist", "year", "technique"}


def test_the_folder_contains_only_the_museum(museum: Path) -> None:
    assert sorted(path.name for path in museum.iterdir()) == [
        *("labels.csv", "museum.json", "objects.csv", "queries", "references")
    ]
    assert len(contents(museum)) == 3 + 3 + 6 + 2
    assert read_settings(museum) == SMALL


def test_the_museum_does_not_depend_on_the_number_of_workers(museum: Path, tmp_path: Path) -> None:
    generate_museum(tmp_path / "m", SMALL, workers=2)
    assert contents(tmp_path / "m") == contents(museum)


def test_an_interrupted_generation_continues_and_keeps_its_files(museum: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        generate_museum(tmp_path / "m", SMALL, progress=stop)
    assert not (tmp_path / "m" / "museum.json").exists()
    with pytest.raises(ConfigurationError, match="not a complete museum"):
        read_settings(tmp_path / "m")
    kept = tmp_path / "m" / "references" / "0001.jpg"
    written_ns = kept.stat().st_mtime_ns
    generate_museum(tmp_path / "m", SMALL)
    assert kept.stat().st_mtime_ns == written_ns
    assert contents(tmp_path / "m") == contents(museum)


def test_a_worker_that_starts_after_the_end_of_its_parent_ends() -> None:
    code = "import os, nearsight.experiments.museum.generation as it; it._start_worker(os.getpid()); print(1)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


def test_all_processes_of_a_killed_generation_end(tmp_path: Path) -> None:
    command = ("-m", "nearsight", "museum", "generate", "--objects", "500", "--workers", "2")
    with subprocess.Popen(
        [sys.executable, *command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        wait_until(lambda: any(tmp_path.glob("references/*.jpg")), timeout_s=100, what="an exhibit")
        process.kill()
        process.communicate(timeout=100)  # ends when no process has its output open


def test_progress_counts_exhibits(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    settings = MuseumSettings(objects=1, seed=2, photos_per_object=1, unknown_photos=1)
    generate_museum(tmp_path / "m", settings, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_a_museum_can_grow_and_keeps_its_exhibits(museum: Path, tmp_path: Path) -> None:
    generate_museum(tmp_path / "m", MuseumSettings(objects=1, seed=2, photos_per_object=1, unknown_photos=0))
    generate_museum(tmp_path / "m", SMALL)
    assert contents(tmp_path / "m") == contents(museum)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (MuseumSettings(3, 3, 2, 2), "museum with seed 2, not 3"),
        (MuseumSettings(3, 2, 2, 2, difficulty=0.1), "difficulty"),
        (MuseumSettings(2, 2, 2, 2), "more objects: 3 instead of 2"),
        (MuseumSettings(3, 2, 1, 2), "more photos per object: 2 instead of 1"),
    ],
)
def test_a_folder_with_another_museum_is_refused_and_not_changed(
    museum: Path, settings: MuseumSettings, expected: str
) -> None:
    before = contents(museum)
    with pytest.raises(ConfigurationError, match=expected) as caught:
        generate_museum(museum, settings)
    assert "another folder" in caught.value.advice
    assert contents(museum) == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(ConfigurationError, match="is not empty"):
        generate_museum(tmp_path, SMALL)
    with pytest.raises(ConfigurationError, match="is a file"):
        generate_museum(tmp_path / "thesis.tex", SMALL)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}'])
def test_damaged_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "museum.json").write_text(text)
    with pytest.raises(ConfigurationError):
        generate_museum(tmp_path, SMALL)
    with pytest.raises(ConfigurationError):
        read_settings(tmp_path)
    assert (tmp_path / "museum.json").read_text() == text


def test_single_photos_can_be_rendered(museum: Path) -> None:
    ((number, jpeg),) = render_photos(SMALL.seed, 1, [1], SMALL.difficulty)
    assert number == 1
    assert jpeg == (museum / "queries" / query_name(1, 1)).read_bytes()
    assert query_name(1, 1) == "0002_02.jpg"
    ((_, jpeg),) = render_photos(SMALL.seed, UNKNOWN_FROM, [0], SMALL.difficulty)
    assert jpeg == (museum / "queries" / "unknown_0001.jpg").read_bytes()


@pytest.mark.parametrize(
    "wrong", [{"objects": 0}, {"seed": -1}, {"photos_per_object": -1}, {"difficulty": 2.0}]
)
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        MuseumSettings(**wrong)  # type: ignore[arg-type]


def test_at_least_one_worker_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="worker"):
        generate_museum(tmp_path / "m", SMALL, workers=0)
    assert not (tmp_path / "m").exists()
