"""Opening database files while others do the same; what daemons make of it is tested with their stores."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nearsight.common.errors import Overloaded
from nearsight.common.operation.database import DatabaseFormat, open_database

FORMAT = DatabaseFormat(
    application_id=1,
    schema_version=1,
    schema="CREATE TABLE things (name TEXT);\n",
    example="things.db",
    begin_advice="begin one",
    recover_advice="restore it",
    busy_timeout_s=0.05,
)


class ContestedConnection(sqlite3.Connection):
    """Refuses the switch to write-ahead logging, as where another connection switches as well."""

    refusals = 0

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in statement and type(self).refusals > 0:
            type(self).refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(statement, *values)


def contested(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    monkeypatch.setattr(ContestedConnection, "refusals", refusals)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=ContestedConnection))


def test_a_switch_to_write_ahead_logging_that_another_one_contests_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contested(monkeypatch, refusals=2)
    connection = open_database(tmp_path / "things.db", FORMAT, create=True)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_switch_that_stays_contested_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contested(monkeypatch, refusals=10**6)
    with pytest.raises(Overloaded, match="another process"):
        open_database(tmp_path / "things.db", FORMAT, create=True)
