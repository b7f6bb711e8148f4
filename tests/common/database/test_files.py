"""Opening database files at the same time as others, upgrading and copying them.

Stores of daemons have their own tests.
"""

import dataclasses
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nearsight.common.database.files import DatabaseFormat, copy_database, open_database
from nearsight.common.errors import CorruptStore, ForeignStore, InvalidArgument, Overloaded
from support.databases import FORMAT, database_with_a_row, rows, used_by_another_process


class ContestedConnection(sqlite3.Connection):
    """Refuses the switch to write-ahead logging, as during a switch by another connection."""

    refusals = 0

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in statement and type(self).refusals > 0:
            type(self).refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(statement, *values)


def contested(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    """Refuse the switch this number of times."""
    monkeypatch.setattr(ContestedConnection, "refusals", refusals)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=ContestedConnection))


def test_a_contested_switch_to_write_ahead_logging_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contested(monkeypatch, refusals=2)
    patient = dataclasses.replace(FORMAT, busy_timeout_s=60.0)
    connection = open_database(tmp_path / "things.db", patient, create=True)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_switch_that_stays_contested_fails_after_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contested(monkeypatch, refusals=10**6)
    with pytest.raises(Overloaded, match="another process"):
        open_database(tmp_path / "things.db", FORMAT, create=True)


SECOND = "ALTER TABLE things ADD COLUMN weight_g REAL NOT NULL DEFAULT 1;\n"
THIRD = "CREATE TABLE owners (name TEXT);\nINSERT INTO owners SELECT DISTINCT name FROM things;\n"


def versions(*more: str) -> DatabaseFormat:
    return dataclasses.replace(FORMAT, versions=(*FORMAT.versions, *more))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return database_with_a_row(tmp_path)


def schema(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_an_older_database_is_upgraded_in_place_and_copied_before(old: Path) -> None:
    with closing(open_database(old, versions(SECOND, THIRD), create=False)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert rows(old, "things") == [("lamp", 1.0)]
    assert rows(old, "owners") == [("lamp",)]
    copy = old.with_name("things.db.v1")
    assert rows(copy, "things") == [("lamp",)]
    with closing(open_database(copy, FORMAT, create=False)):
        pass  # the older version still reads it
    assert sorted(path.name for path in old.parent.iterdir()) == ["things.db", "things.db.v1"]


def test_an_upgraded_database_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    new, form = tmp_path / "new.db", versions(SECOND, THIRD)
    for path in (old, new):
        open_database(path, form, create=True).close()
    assert schema(old) == schema(new)
    assert not list(tmp_path.glob("new.db.*"))


def test_changes_in_the_log_of_a_killed_writer_are_copied_and_upgraded(old: Path, tmp_path: Path) -> None:
    with closing(open_database(old, FORMAT, create=False)) as writer:
        writer.execute("INSERT INTO things VALUES ('chair')")
        killed = tmp_path / "killed"
        killed.mkdir()
        for file in tmp_path.glob("things.db*"):
            (killed / file.name).write_bytes(file.read_bytes())
    open_database(killed / "things.db", versions(SECOND), create=False).close()
    assert rows(killed / "things.db.v1", "things") == [("lamp",), ("chair",)]
    assert rows(killed / "things.db", "things") == [("lamp", 1.0), ("chair", 1.0)]


def test_an_upgrade_that_fails_changes_nothing(old: Path) -> None:
    before = old.read_bytes()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        open_database(old, versions(SECOND, "DELETE FROM missing;\n"), create=False)
    assert rows(old, "things") == [("lamp",)]
    assert schema(old) == schema(old.with_name("things.db.v1"))
    assert old.read_bytes() == before


def test_an_earlier_copy_is_never_overwritten(old: Path) -> None:
    copy = old.with_name("things.db.v1")
    copy.write_text("of last year")
    open_database(old, versions(SECOND), create=False).close()
    assert copy.read_text() == "of last year"
    assert rows(old.with_name("things.db.v1-2"), "things") == [("lamp",)]


def test_a_newer_database_is_refused_with_a_command_and_not_changed(old: Path) -> None:
    open_database(old, versions(SECOND), create=False).close()
    before = old.read_bytes()
    with pytest.raises(ForeignStore, match=r"version 2.* up to 1") as caught:
        open_database(old, FORMAT, create=False)
    assert "pip install --upgrade nearsight" in caught.value.advice
    assert "things.db.v1" in caught.value.advice
    assert old.read_bytes() == before


def test_a_copy_includes_the_log_of_a_database_in_use(old: Path, tmp_path: Path) -> None:
    copy, plain = tmp_path / "copy.db", tmp_path / "plain.db"
    with used_by_another_process(old):
        plain.write_bytes(old.read_bytes())
        copy_database(old, copy, FORMAT)
    assert rows(copy, "things") == [("lamp",), ("chair",)]
    assert rows(plain, "things") == [("lamp",)], "a plain copy lacks the log"


def test_a_copy_is_one_file_of_the_original_version(old: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    copy_database(old, folder / "copy.db", versions(SECOND))
    assert [path.name for path in folder.iterdir()] == ["copy.db"]
    assert rows(folder / "copy.db", "things") == [("lamp",)]


def test_a_copy_overwrites_no_file(old: Path, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("dear")
    with pytest.raises(InvalidArgument, match="exists"):
        copy_database(old, tmp_path / "photo.jpg", FORMAT)
    assert (tmp_path / "photo.jpg").read_text() == "dear"


def test_a_damaged_or_foreign_database_is_not_copied(old: Path, tmp_path: Path) -> None:
    old.write_bytes(old.read_bytes()[:5000])
    with pytest.raises(CorruptStore):
        copy_database(old, tmp_path / "copy.db", FORMAT)
    old.write_bytes(b"dear diary " * 1000)
    with pytest.raises(ForeignStore):
        copy_database(old, tmp_path / "copy.db", FORMAT)
    assert not (tmp_path / "copy.db").exists()
