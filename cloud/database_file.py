"""The database file of the cloud: opened with care, its errors told in our words.

A file that is damaged, belongs to another application or to a newer version is refused and left as it is: it
is examined through a read-only connection before anything could be written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearsight.common.errors import (
    ConfigurationError,
    CorruptStore,
    NearsightError,
    NotFound,
    Overloaded,
    Unavailable,
)

APPLICATION_ID = 0x4E53_4344
"""'NSCD' in the header of the file: tells our databases from those of other applications."""

SCHEMA_VERSION = 1

BUSY_TIMEOUT_S = 15.0
"""How long to wait for another process that is writing."""

_SCHEMA = """
CREATE TABLE catalogues (
    name TEXT PRIMARY KEY NOT NULL,
    revision INTEGER NOT NULL            -- grows by one with every committed change
) WITHOUT ROWID;
CREATE TABLE objects (
    catalogue TEXT NOT NULL REFERENCES catalogues (name),
    object_id TEXT NOT NULL,
    revision INTEGER NOT NULL,           -- of the catalogue, when this object was last written
    version INTEGER NOT NULL,
    label TEXT NOT NULL,
    views INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    training TEXT NOT NULL,
    model BLOB NOT NULL,
    PRIMARY KEY (catalogue, object_id)
);
CREATE INDEX objects_by_revision ON objects (catalogue, revision);
CREATE TABLE removed_objects (           -- so that an id that comes back gets a new version
    catalogue TEXT NOT NULL REFERENCES catalogues (name),
    object_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (catalogue, object_id)
) WITHOUT ROWID;
"""


def open_database(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a database of ours, or begin one.

    Parameters
    ----------
    path : Path
        The file.
    create : bool
        Begin one if there is no file.

    Returns
    -------
    sqlite3.Connection
        In autocommit mode, usable from any thread, with write-ahead logging.

    Raises
    ------
    CorruptStore
        If the file is damaged, no database of this application, or of a newer version. It is not modified.
    NotFound
        If there is no such file and ``create`` is false.
    ConfigurationError
        If the file cannot be opened or created there.
    """
    _check_place(path, create=create)
    with translated_errors(path):
        if _holds_data(path):
            _examine(path)
        connection = _connect(path)
        try:
            _set_up(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # The schema is committed before write-ahead logging starts: the header in the main file is then
    # complete, whatever happens to the log.
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    connection.execute("PRAGMA journal_mode = WAL")


def _check_place(path: Path, *, create: bool) -> None:
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder", advice="name a database file, such as cloud.db")
    if path.exists():
        return
    if not create:
        raise NotFound(
            f"there is no database {path}", advice="check the path, or ingest a folder of images first"
        )
    if not path.parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent}", advice=f"mkdir -p {path.parent}")


def _holds_data(path: Path) -> bool:
    # SQLite creates a file of 0 bytes before its first commit: whoever died there left nothing to lose.
    return path.exists() and path.stat().st_size > 0


def _connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _examine(path: Path) -> None:
    """Raise unless the file is a sound database of ours; what is not ours is only read."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}", advice="check its permissions"
        ) from error
    if not header.startswith(b"SQLite format 3\0"):
        raise corrupt(path, "it is not a database", advice="nothing was changed: name another file")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise corrupt(
            path, "it belongs to another application", advice="nothing was changed: name another file"
        )
    if path.with_name(path.name + "-journal").exists():
        _finish_creation(path)
    connection = _connect(path, mode="ro")
    try:
        _examine_content(path, connection)
    finally:
        connection.close()


def _finish_creation(path: Path) -> None:
    """Let SQLite undo the set-up that was cut off: a rollback journal exists only during that."""
    connection = _connect(path, mode="rw")
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    finally:
        connection.close()


def _examine_content(path: Path, connection: sqlite3.Connection) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if not pages:
        return
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise corrupt(
            path,
            f"it has schema version {version}, this nearsight reads version {SCHEMA_VERSION}",
            advice="nothing was changed: use the nearsight that wrote it, or name another file",
        )
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise corrupt(path, " ".join(problem.split()))
    if orphan := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise corrupt(path, f"a row of {orphan[0]} belongs to no catalogue")


def corrupt(path: Path, reason: str, advice: str = "") -> CorruptStore:
    """The error for a file that cannot be used; ``advice`` if it is not simply damaged."""
    return CorruptStore(
        f"cannot use the database {path}: {reason}",
        advice=advice or "nothing was changed: restore a backup, or move it away and ingest again",
    )


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours; what only a bug can cause passes through."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = _as_ours(path, error)
        if known is None:
            raise
        raise known from error


def _as_ours(path: Path, error: sqlite3.DatabaseError) -> NearsightError | None:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the low byte is the primary code
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return corrupt(path, str(error))
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return Overloaded(f"{path} is being written by another process", advice="try again when it is done")
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return Unavailable(f"cannot write {path}: {error}", advice="check the disk and its free space")
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return ConfigurationError(f"cannot open {path}: {error}", advice="check the path and its permissions")
    return None
