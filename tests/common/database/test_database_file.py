"""A database in use accepts a change only if the next start would read it."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.common.database.database_file import DatabaseFile
from nearsight.common.database.files import copy_database
from nearsight.common.errors import ConfigurationError, DiskUnavailable, Unavailable
from support.databases import FORMAT


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DatabaseFile]:
    with DatabaseFile(tmp_path / "things.db", FORMAT, create=True) as opened:
        yield opened


def add(file: DatabaseFile, name: str) -> None:
    with file.transaction() as connection:
        connection.execute("INSERT INTO things VALUES (?)", (name,))


def test_the_content_of_a_deleted_file_is_saved_once_and_still_readable(file: DatabaseFile) -> None:
    add(file, "lamp")
    file.path.unlink()
    for _ in range(2):
        with pytest.raises(Unavailable, match="was deleted") as caught:
            add(file, "chair")
    assert "things.db.rescued" in caught.value.advice
    assert file.rows("SELECT name FROM things") == [("lamp",)]
    assert len([*file.path.parent.glob("*.rescued*")]) == 1
    with DatabaseFile(file.path.with_name("things.db.rescued"), FORMAT, create=False) as rescued:
        assert rescued.rows("SELECT name FROM things") == [("lamp",)]


def test_after_a_copy_was_written_over_the_file_changes_are_refused(
    file: DatabaseFile, tmp_path: Path
) -> None:
    copy_database(file.path, tmp_path / "monday.db", FORMAT)
    add(file, "lamp")
    file.path.write_bytes((tmp_path / "monday.db").read_bytes())
    with pytest.raises(Unavailable, match="was overwritten while in use") as caught:
        add(file, "chair")
    assert "without things.db-wal" in caught.value.advice


def test_no_acknowledged_change_is_lost_with_a_deleted_log(file: DatabaseFile) -> None:
    add(file, "lamp")
    file.path.with_name("things.db-wal").unlink()
    with pytest.raises(Unavailable, match=r"things\.db-wal was deleted"):
        add(file, "chair")
    with DatabaseFile(file.path.with_name("things.db.rescued"), FORMAT, create=False) as rescued:
        assert rescued.rows("SELECT name FROM things") == [("lamp",)]


def test_a_deleted_log_is_noticed_through_a_symbolic_link(file: DatabaseFile, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to("things.db")
    with DatabaseFile(link, FORMAT, create=False) as linked:
        add(linked, "lamp")
        file.path.with_name("things.db-wal").unlink()
        with pytest.raises(Unavailable, match=r"things\.db-wal was deleted"):
            add(linked, "chair")


def test_a_path_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        renewable = dataclasses.replace(FORMAT, exclusive=True)
        DatabaseFile(tmp_path / "pipe", renewable, create=True, or_read_only=True)


def test_the_error_after_the_folder_was_deleted_says_that_nothing_was_saved(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with DatabaseFile(folder / "things.db", FORMAT, create=True) as file:
        add(file, "lamp")
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        with pytest.raises(Unavailable, match="was deleted") as caught:
            add(file, "chair")
        assert "could not be saved" in caught.value.advice


def test_while_the_folder_cannot_be_reached_changes_are_refused(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    folder.mkdir()
    with DatabaseFile(folder / "things.db", FORMAT, create=True) as file:
        folder.rename(elsewhere)
        folder.write_bytes(b"")
        with pytest.raises(DiskUnavailable, match=r"cannot reach .*things\.db: Not a directory") as caught:
            add(file, "lamp")
        assert "check the disk" in caught.value.advice
        folder.unlink()
        elsewhere.rename(folder)
        add(file, "lamp")
        assert file.rows("SELECT name FROM things") == [("lamp",)]


def test_a_file_that_was_renamed_and_restored_accepts_changes_again(file: DatabaseFile) -> None:
    elsewhere = file.path.with_name("elsewhere.db")
    file.path.rename(elsewhere)
    with pytest.raises(Unavailable, match="was deleted"):
        add(file, "lamp")
    elsewhere.rename(file.path)
    add(file, "lamp")
    assert file.rows("SELECT name FROM things") == [("lamp",)]


def test_a_file_that_a_newer_version_upgraded_accepts_no_changes(file: DatabaseFile) -> None:
    newer = dataclasses.replace(FORMAT, versions=(*FORMAT.versions, "CREATE TABLE owners (name TEXT);\n"))
    DatabaseFile(file.path, newer, create=False).close()
    with pytest.raises(Unavailable, match="upgraded to schema version 2") as caught:
        add(file, "lamp")
    assert "restart" in caught.value.advice
