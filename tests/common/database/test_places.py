"""Replacement of a database by another one."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nearsight.common.database.files import copy_database
from nearsight.common.database.places import put_in_place, set_aside
from nearsight.common.errors import ConfigurationError
from support.databases import FORMAT, database_with_a_row, rows, used_by_another_process

NOBODY = 65534


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return database_with_a_row(tmp_path)


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    """A copy of the old database, before a further row was written to its log."""
    copy_database(old, tmp_path / "new.db", FORMAT)
    return tmp_path / "new.db"


@pytest.fixture
def logged(old: Path, new: Path) -> Path:
    """The old database with its newest row in the log, as after a kill."""
    with used_by_another_process(old):
        pass
    assert old.with_name("things.db-wal").stat().st_size > 0
    return old


def test_the_replaced_database_is_kept_with_its_log(logged: Path, new: Path) -> None:
    assert put_in_place(new, logged) == logged.with_name("things.db.replaced")
    assert rows(logged, "things") == [("lamp",)], "the log of the replaced database is not read"
    assert rows(logged.with_name("things.db.replaced"), "things") == [("lamp",), ("chair",)]


def test_a_database_gets_owner_and_mode_of_the_replaced_one(old: Path, new: Path) -> None:
    if os.geteuid() == 0:  # as with sudo: the daemon's user must be able to write it
        os.chown(old, NOBODY, NOBODY)
    old.chmod(0o640)
    before = old.stat()
    put_in_place(new, old)
    after = old.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_a_database_that_cannot_be_set_aside_keeps_its_log(
    logged: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", no_links)
    with pytest.raises(PermissionError):
        put_in_place(new, logged)
    assert rows(logged, "things") == [("lamp",), ("chair",)]


def test_an_interrupted_replacement_leaves_a_complete_database(logged: Path, new: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", interrupt)
        put_in_place(new, logged)
    assert rows(logged, "things") == [("lamp",), ("chair",)]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_database_in_use_is_not_replaced(old: Path, new: Path) -> None:
    with used_by_another_process(old):
        with pytest.raises(ConfigurationError, match="in use"):
            put_in_place(new, old)
        assert rows(old, "things") == [("lamp",), ("chair",)]
    put_in_place(new, old)
    assert rows(old, "things") == [("lamp",)]


def test_a_database_may_be_moved_to_a_free_place(old: Path, tmp_path: Path) -> None:
    assert put_in_place(old, tmp_path / "other.db") is None
    assert rows(tmp_path / "other.db", "things") == [("lamp",)]


def test_the_rollback_journal_of_a_deleted_database_is_not_applied_to_the_next_one(tmp_path: Path) -> None:
    place, journal = tmp_path / "other.db", tmp_path / "other.db-journal"
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE others (name TEXT)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO others VALUES ('chair')")
        left = journal.read_bytes()  # as after a kill
    place.unlink()
    journal.write_bytes(left)
    put_in_place(database_with_a_row(tmp_path), place)
    assert rows(place, "things") == [("lamp",)]


def test_a_database_behind_a_link_is_set_aside_where_it_is(old: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "things.db"
    link.parent.mkdir()
    link.symlink_to("../things.db")
    assert set_aside(link, "damaged") == old.with_name("things.db.damaged")
    assert rows(old.with_name("things.db.damaged"), "things") == [("lamp",)]
    assert link.is_symlink()
