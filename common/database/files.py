"""Database files on disk: identified, examined, upgraded and copied, with SQLite's errors translated.

A file that is damaged, or belongs to another application or to a newer version, is refused and not changed:
it is examined through a read-only connection before anything could be written. A file of an older version is
copied to a file beside it, then upgraded in place.
"""

from __future__ import annotations

import glob
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nearsight.common.database.places import beside, free_name, log_of, sync_folder
from nearsight.common.errors import (
    ConfigurationError,
    CorruptStore,
    DatabaseInUse,
    DiskUnavailable,
    ForeignStore,
    InvalidArgument,
    NotFound,
    Overloaded,
    Unavailable,
)
from nearsight.common.logging import get_logger

_MAGIC = b"SQLite format 3\0"  # the first bytes of each database
_HEADER_BYTES = 100
_SWITCH_RETRY_S = 0.005


@dataclass(frozen=True, slots=True)
class DatabaseFormat:
    """Identification and schema of a database of this project."""

    application_id: int
    """In the header of the file."""
    versions: tuple[str, ...]
    """SQL from each version of the schema to the next, the first one from an empty file. Each statement ends
    with ";" and a line break. Released SQL is never edited: a change is a further version."""
    example: str
    """An example of a file name."""
    begin_advice: str
    recover_advice: str
    """Advice if there is no file, and if it is damaged."""
    busy_timeout_s: float = 15.0
    """Maximum wait for another process that is writing."""
    exclusive: bool = False
    """For one process at a time, which can learn the content again: a second process is refused, and a commit
    survives a killed process, but not a power failure."""
    named_by_user: bool = True
    """Whether the user names the file, perhaps by mistake one of another program. Otherwise a file without
    SQLite's first bytes is damaged."""

    @property
    def version(self) -> int:
        """Version of the schema, stored as ``PRAGMA user_version``."""
        return len(self.versions)


def open_database(path: Path, form: DatabaseFormat, *, create: bool) -> sqlite3.Connection:
    """Open a database of this project, or create one.

    Parameters
    ----------
    path : Path
        The file.
    form : DatabaseFormat
        Its required format.
    create : bool
        Create the file if there is none.

    Returns
    -------
    sqlite3.Connection
        In autocommit mode, usable from any thread, with write-ahead logging.

    Raises
    ------
    CorruptStore
        If the file is damaged; `ForeignStore` if it belongs to another application or a newer version. It is
        not modified.
    NotFound
        If there is no such file and ``create`` is false.
    ConfigurationError
        If the file cannot be opened or created there.
    Overloaded
        If another process uses the file for too long.
    Unavailable
        If the disk is full or fails.
    """
    _check_place(path, form, create=create)
    with translated_errors(path, form):
        # A file of 0 bytes holds no data: SQLite creates it before its first commit.
        if path.exists() and path.stat().st_size > 0:
            _examine(path, form)
    return open_to_write(path, form)


def open_to_write(path: Path, form: DatabaseFormat) -> sqlite3.Connection:
    """Open an intact database, upgrade it, or create one; see `open_database`."""
    with translated_errors(path, form):
        connection = _connect(path, form)
        try:
            _set_up(connection, form)
        except BaseException:
            connection.close()
            raise
    return connection


def open_to_read(path: Path, form: DatabaseFormat) -> sqlite3.Connection | None:
    """Open an intact database for reading; None if the disk does not allow it.

    SQLite reads the write-ahead log through an index file beside it. If that file cannot be created, the
    database file alone is read, provided that there is no log or an empty one.
    """
    log = log_of(path)
    logged = log.exists() and log.stat().st_size > 0
    for mode in ("ro", "ro&immutable=1"):
        if not path.is_file() or (logged and "immutable" in mode):
            return None
        connection = _connect(path, form, mode)
        try:
            with translated_errors(path, form):
                _examine_content(path, form, connection)
            return connection
        except (ConfigurationError, Unavailable):
            connection.close()
        except BaseException:
            connection.close()
            raise
    return None


def empty_database(form: DatabaseFormat) -> sqlite3.Connection:
    """A database without rows, in memory: it replaces a file that cannot be created or read now."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for script in form.versions:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {form.version}")
    return connection


def _set_up(connection: sqlite3.Connection, form: DatabaseFormat) -> None:
    if form.exclusive:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if form.exclusive else 'FULL'}")
    connection.execute("PRAGMA foreign_keys = ON")
    # The schema is committed before write-ahead logging starts: the header in the main file is then complete,
    # even if the log is lost.
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection)
        if version < form.version:
            connection.execute(f"PRAGMA application_id = {form.application_id}")
            connection.execute(f"PRAGMA user_version = {form.version}")
            for script in form.versions[version:]:
                for statement in script.split(";\n"):
                    connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    _begin_write_ahead_log(connection, time.monotonic() + form.busy_timeout_s)


def _begin_write_ahead_log(connection: sqlite3.Connection, deadline: float) -> None:
    # SQLite does not wait if two connections switch at the same moment: each would wait for the other.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_SWITCH_RETRY_S)
        else:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # creates the log
            return


def _check_place(path: Path, form: DatabaseFormat, *, create: bool) -> None:
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ConfigurationError(f"{path} is {what}", advice=f"name a database file, such as {form.example}")
    if path.exists():
        return
    if not create:
        raise NotFound(f"there is no database {path}", advice=form.begin_advice)
    if not path.parent.is_dir():
        raise ConfigurationError(f"there is no folder {path.parent}", advice=f"mkdir -p {path.parent}")


def _connect(path: Path, form: DatabaseFormat, mode: str = "rwc") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=form.busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    # The reader of a row handles damaged text: it must not end the query.
    connection.text_factory = lambda text: str(text, "utf-8", "replace")
    return connection


def _examine(path: Path, form: DatabaseFormat) -> None:
    """Raise unless the file is an intact database of this project; foreign files are only read."""
    _examine_header(path, form)
    if beside(path, "-journal").exists():
        # SQLite rolls back an interrupted set-up: a rollback journal exists only during that.
        with closing(_connect(path, form, mode="rw")) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    with closing(_connect(path, form, mode="ro")) as connection:
        connection.execute("BEGIN")  # the copy has the state that was examined
        _examine_content(path, form, connection)
        if 0 < (version := version_of(connection)) < form.version:
            copy = free_name(path, f"v{version}")
            write_copy(connection, copy, form)
            get_logger("database").info(
                "upgrading", database=str(path), of=version, to=form.version, copy=str(copy)
            )


def _examine_header(path: Path, form: DatabaseFormat) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}", advice="check its permissions"
        ) from error
    other = "nothing was changed: name another file"
    if not header.strip(b"\0"):
        raise corrupt(
            path, form, "it is empty or begins with zeros"
        )  # file systems leave such files after a power failure
    if len(header) < _HEADER_BYTES and _MAGIC.startswith(header[: len(_MAGIC)]):
        raise corrupt(path, form, f"it has only {len(header)} bytes")
    if not header.startswith(_MAGIC):
        if not form.named_by_user:
            raise corrupt(path, form, "its first bytes are not those of a database")
        raise _foreign(path, "it is not a database", other)
    if int.from_bytes(header[68:72], "big") != form.application_id:
        raise _foreign(path, "it belongs to another application", other)


def version_of(connection: sqlite3.Connection) -> int:
    """Version of the schema; 0 if there is none yet."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _examine_content(path: Path, form: DatabaseFormat, connection: sqlite3.Connection) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if not pages:
        return
    if (version := version_of(connection)) > form.version:
        raise _foreign(
            path,
            f"it has schema version {version}, this nearsight reads versions up to {form.version}",
            f"nothing was changed: `pip install --upgrade nearsight`, or restore {_copies_of(path)}",
        )
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise corrupt(path, form, " ".join(problem.split()))
    stated, found = _columns_of(form, version), _columns_in(connection)
    if lost := sorted(stated - found):
        raise corrupt(path, form, f"table {lost[0][0]} has no column {lost[0][1]}")
    more = found - stated
    if more and (later := sorted(more & _columns_of(form, form.version))):
        table, column = later[0]
        raise corrupt(path, form, f"its schema version is {version}, but table {table} has column {column}")
    if orphan := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise corrupt(path, form, f"a row of {orphan[0]} refers to a missing row")


def _copies_of(path: Path) -> str:
    """The copies that upgrades left beside a database, as text for the user."""
    copies = sorted(copy.name for copy in path.parent.glob(f"{glob.escape(path.name)}.v*"))
    return f"the copy from before the upgrade, {' or '.join(copies)}" if copies else "a backup"


def _columns_of(form: DatabaseFormat, version: int) -> frozenset[tuple[str, str]]:
    """Table and name of each column in a database of this version."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in form.versions[:version]:
            connection.executescript(script)
        return _columns_in(connection)


def _columns_in(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    query = "SELECT one.name, each.name FROM sqlite_schema AS one, pragma_table_info(one.name) AS each"
    return frozenset(connection.execute(query))


def write_copy(source: sqlite3.Connection, target: Path, form: DatabaseFormat) -> None:
    """Copy a database, also while others write to it: the target is written atomically, after a check.

    The copy is one file, without a write-ahead log.

    Raises
    ------
    CorruptStore
        If the copy is not intact; the source is then damaged.
    NearsightError
        If the target cannot be written.
    """
    try:
        with (
            translated_errors(target, form),
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder,
        ):
            aside = Path(folder) / target.name
            with closing(sqlite3.connect(aside)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
                _examine_content(target, form, copy)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.replace(target)
            sync_folder(target.parent)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {target}: {error.strerror}", advice="check the path, its rights and the free space"
        ) from error


def copy_database(source: Path, target: Path, form: DatabaseFormat) -> None:
    """Copy a database with all committed changes, also while other processes use it; the copy is checked.

    Raises
    ------
    NotFound
        If there is no such source.
    CorruptStore
        If it is damaged, or `ForeignStore`.
    InvalidArgument
        If the target exists: no file is overwritten.
    ConfigurationError
        If the source cannot be read, or the target cannot be written.
    """
    _check_place(source, form, create=False)
    if target.exists():
        raise InvalidArgument(f"{target} exists, and is not overwritten", advice="name another file")
    _examine_header(source, form)
    connection = open_to_read(source, form)
    if connection is None:
        raise ConfigurationError(
            f"{source} cannot be read where it is: its newest changes are in {source.name}-wal",
            advice="copy both files to a disk that can be written, and name the copy",
        )
    with closing(connection):
        write_copy(connection, target, form)


def corrupt(path: Path, form: DatabaseFormat, reason: str) -> CorruptStore:
    """The error for a damaged file."""
    return CorruptStore(f"cannot use the database {path}: {reason}", advice=form.recover_advice)


def _foreign(path: Path, reason: str, advice: str) -> ForeignStore:
    return ForeignStore(f"cannot use the database {path}: {reason}", advice=advice)


@contextmanager
def translated_errors(path: Path, form: DatabaseFormat) -> Iterator[None]:
    """Convert SQLite's errors to errors of this project, except errors that only a bug can cause."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # The low byte is the primary code.
        match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                raise corrupt(path, form, str(error)) from error
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                if form.exclusive:
                    text, advice = f"{path} is in use by another process", "name another file for this one"
                    raise DatabaseInUse(text, advice=advice) from error
                text, advice = f"{path} is being written by another process", "try again later"
                raise Overloaded(text, advice=advice) from error
            case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
                text, advice = f"cannot write {path}: {error}", "check the disk and its free space"
                raise DiskUnavailable(text, advice=advice) from error
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                text, advice = f"cannot open {path}: {error}", "check the path and its permissions"
                raise ConfigurationError(text, advice=advice) from error
        raise
    except UnicodeDecodeError as error:  # SQLite's message quotes damaged text
        raise corrupt(path, form, "it holds invalid text") from error
