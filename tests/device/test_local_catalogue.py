"""The index of a folder: only changed objects are trained; faults of the index file."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nearsight.common.catalogue.store import CatalogueStore, PutOutcome
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import ConfigurationError, ForeignStore, InvalidArgument, NotFound, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.device.local_catalogue import INDEX_NAME, LocalCatalogue, from_database, from_folder
from nearsight.device.recognizer_settings import LocalSettings
from support.cloud import SMALL_RECOGNITION
from support.disks import refuse_writes, small_disk
from support.pictures import picture_jpeg
from support.waiting import LONG_S


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A museum of three pictures."""
    images = tmp_path / "museum"
    images.mkdir()
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        (images / f"{name}.jpg").write_bytes(picture_jpeg(seed))
    return images


SETTINGS = LocalSettings(recognition=SMALL_RECOGNITION)


def load(folder: Path, index: Path | None = None, settings: LocalSettings = SETTINGS) -> LocalCatalogue:
    return from_folder(folder, index, settings, SYSTEM_CLOCK, None)


def versions(catalogue: LocalCatalogue) -> dict[str, int]:
    """Versions by id; each training increments them."""
    return {name: model.version for name, model in catalogue.recognizer.models.items()}


def test_only_changed_objects_are_trained_and_deleted_ones_removed(folder: Path) -> None:
    assert versions(load(folder)) == {"a": 1, "b": 1, "c": 1}
    (folder / "b.jpg").write_bytes(picture_jpeg(22))
    (folder / "c.jpg").unlink()
    (folder / "d.jpg").write_bytes(picture_jpeg(4))
    with capture_logs() as logs:
        changed = load(folder)
    assert versions(changed) == {"a": 1, "b": 2, "d": 1}
    (ready,) = (line for line in logs if line["event"] == "the catalogue is ready")
    assert (ready["objects"], ready["trained"], ready["removed"]) == (3, 2, 1)


def test_an_unchanged_folder_is_loaded_without_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder)
    monkeypatch.setattr("nearsight.common.catalogue.training.train_view", None)
    assert versions(load(folder)) == {"a": 1, "b": 1, "c": 1}


def test_after_changed_settings_all_objects_are_trained_again(folder: Path) -> None:
    load(folder)
    more = RecognitionSettings(training_features=400, query_features=300)
    assert versions(load(folder, settings=LocalSettings(recognition=more))) == {"a": 2, "b": 2, "c": 2}


def test_a_duplicate_replaces_its_deleted_original(folder: Path) -> None:
    (folder / "same.jpg").write_bytes(picture_jpeg(1))
    with capture_logs() as logs:
        (kept,) = {"a", "same"} & versions(load(folder)).keys()
    assert any(line["event"] == "an object is rejected" for line in logs)
    (folder / f"{kept}.jpg").unlink()
    assert {"a", "same"} & versions(load(folder)).keys() == {"a", "same"} - {kept}


def test_twins_are_taken_if_that_is_wanted(folder: Path) -> None:
    (folder / "same.jpg").write_bytes(picture_jpeg(1))
    both = load(folder, settings=SETTINGS.model_copy(update={"allow_similar": True}))
    assert versions(both).keys() == {"a", "b", "c", "same"}


def test_an_unusable_image_is_reported_and_others_are_trained(folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"no image")
    with capture_logs() as logs:
        assert versions(load(folder)).keys() == {"a", "b", "c"}
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert (line["object_id"], line["path"]) == ("broken", str(folder / "broken.jpg"))


def test_a_folder_without_any_usable_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(InvalidArgument, match=r"no image in .* can be used: .*a\.jpg: .*; send a JPEG"):
        load(tmp_path)


def test_a_folder_whose_usable_images_were_all_deleted_is_refused(folder: Path) -> None:
    load(folder)
    for name in "abc":
        (folder / f"{name}.jpg").unlink()
    (folder / "d.jpg").write_bytes(b"no image")
    with pytest.raises(InvalidArgument, match=r"no image in .* can be used: .*d\.jpg: .*; send a JPEG"):
        load(folder)


def test_without_a_folder_of_images_no_index_is_created(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder"):
        load(tmp_path / "museum")
    with pytest.raises(NotFound, match="no images"):
        load(tmp_path)
    assert not list(tmp_path.iterdir())


def test_progress_is_reported_in_the_calling_thread(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    from_folder(folder, None, SETTINGS, SYSTEM_CLOCK, lambda *done: seen.append(done))
    assert (seen[0], seen[-1]) == ((0, 3), (3, 3))


def test_an_interruption_is_raised_and_trained_objects_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        from_folder(folder, None, SETTINGS, SYSTEM_CLOCK, interrupt)
    monkeypatch.setattr("nearsight.common.catalogue.training.train_view", None)
    assert versions(load(folder)) == {"a": 1, "b": 1, "c": 1}


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": lambda index: os.truncate(index, 5000),
    "no database": lambda index: index.write_text("hello"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_moved_aside_and_rebuilt(folder: Path, damage: str) -> None:
    load(folder)
    DAMAGE[damage](folder / INDEX_NAME)
    with capture_logs() as logs:
        assert versions(load(folder)) == {"a": 1, "b": 1, "c": 1}
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "the index cannot be used and is created again"
    ]
    assert (folder / f"{INDEX_NAME}.damaged").exists()


def test_an_unreadable_model_is_trained_again(folder: Path) -> None:
    load(folder)
    with sqlite3.connect(folder / INDEX_NAME) as connection:
        connection.execute("UPDATE objects SET model = x'00' WHERE object_id = 'b'")
    connection.close()
    assert versions(load(folder)) == {"a": 1, "b": 2, "c": 1}


def test_a_file_of_somebody_else_that_was_named_as_index_stays(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep me")
    with pytest.raises(ForeignStore):
        load(folder, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "keep me"


def test_an_index_may_be_stored_elsewhere(folder: Path, tmp_path: Path) -> None:
    load(folder, tmp_path / "index.db")
    assert not (folder / INDEX_NAME).exists()
    with pytest.raises(ConfigurationError, match="mkdir -p"):
        load(folder, tmp_path / "none" / "index.db")


@pytest.mark.parametrize("place", [".", "inner"])
def test_a_folder_is_no_index(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(folder)
    Path("inner").mkdir()
    with pytest.raises(ConfigurationError, match=f"^{re.escape(place)} is a folder; name a file"):
        from_folder(folder, Path(place), SETTINGS, SYSTEM_CLOCK, None)


@pytest.mark.parametrize("known", ["nothing", "an older index"])
def test_with_an_unwritable_index_a_copy_is_used(
    folder: Path, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if known != "nothing":
        load(folder)
    (folder / "d.jpg").write_bytes(picture_jpeg(4))
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    opened = CatalogueStore.__init__

    def read_only(store: CatalogueStore, path: Path, **options: object) -> None:
        if path.parent == folder:
            raise ConfigurationError(f"cannot open {path}: attempt to write a readonly database")
        opened(store, path, **options)

    monkeypatch.setattr(CatalogueStore, "__init__", read_only)
    with capture_logs() as logs:
        assert versions(load(folder)).keys() == {"a", "b", "c", "d"}
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert "index=PATH" in line["advice"]
    (ready,) = (line for line in logs if line["event"] == "the catalogue is ready")
    assert ready["trained"] == (4 if known == "nothing" else 1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / INDEX_NAME).exists() == (known != "nothing")


def test_if_the_disk_becomes_full_during_training_a_copy_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder)
    for name in "de":
        (folder / f"{name}.jpg").write_bytes(picture_jpeg(ord(name)))
    put = CatalogueStore.put

    def full(store: CatalogueStore, *objects: Any, **options: Any) -> PutOutcome:
        if store.path.parent == folder:
            raise Unavailable(f"cannot write {store.path}: database or disk is full")
        return put(store, *objects, **options)

    monkeypatch.setattr(CatalogueStore, "put", full)
    with capture_logs() as logs:
        assert versions(load(folder)).keys() == {*"abcde"}
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert "disk is full" in line["error"]
    (ready,) = (line for line in logs if line["event"] == "the catalogue is ready")
    assert ready["trained"] == 2


@pytest.mark.system
@pytest.mark.needs("mounts")
@pytest.mark.parametrize("known", ["nothing", "an index", "a damaged index"])
def test_a_folder_on_a_read_only_disk_is_loaded(tmp_path: Path, folder: Path, known: str) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place):
        museum = shutil.copytree(folder, place / "museum")
        if known != "nothing":
            load(museum)
        if known == "a damaged index":
            os.truncate(museum / INDEX_NAME, 5000)
        refuse_writes(place, "read-only")
        with capture_logs() as logs:
            assert versions(load(museum)).keys() == {"a", "b", "c"}
    (ready,) = (line for line in logs if line["event"] == "the catalogue is ready")
    assert ready["trained"] == (0 if known == "an index" else 3)


PROCESS = """
import logging, sys
from nearsight import LocalRecognizer, LocalSettings
from nearsight.common.recognition.settings import RecognitionSettings
logging.basicConfig(level="INFO", stream=sys.stdout)
settings = LocalSettings(recognition=RecognitionSettings(training_features=300, query_features=300))
with LocalRecognizer(sys.argv[1], settings=settings) as recognizer:
    print(sorted(recognizer.object_ids))
"""


@pytest.mark.system  # two applications start, which takes seconds
def test_of_two_processes_one_trains_and_both_serve_all_objects(folder: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(folder)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = [process.communicate(timeout=LONG_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all("['a', 'b', 'c']" in text for text in seen)
    assert sorted("trained=3" in text for text in seen) == [False, True]


def test_a_database_of_a_cloud_is_loaded_as_it_is(folder: Path, tmp_path: Path) -> None:
    database = tmp_path / "cloud.db"
    load(folder, database)
    loaded = from_database(database, "", SMALL_RECOGNITION)
    assert versions(loaded) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(NotFound, match="there are: references"):
        from_database(database, "museum", SMALL_RECOGNITION)
    with pytest.raises(ForeignStore):
        from_database(folder / "a.jpg", "", SMALL_RECOGNITION)
