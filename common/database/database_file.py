"""A database file in use: transactions from several threads, only while they are durable.

Before each change, the file is checked: it must still exist and be writable. An acknowledged change must be
found after the next start (decision 035).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Self

from nearsight.common.database.files import (
    DatabaseFormat,
    corrupt,
    empty_database,
    open_database,
    open_to_read,
    open_to_write,
    translated_errors,
    version_of,
    write_copy,
)
from nearsight.common.database.places import free_name, log_of
from nearsight.common.errors import (
    ConfigurationError,
    CorruptStore,
    DiskUnavailable,
    NearsightError,
    SetupError,
    Unavailable,
)


class DatabaseFile:
    """An open database of this project. Safe to use from several threads; a lock serialises them.

    Parameters
    ----------
    path, form, create
        As `open_database`.
    or_read_only : bool
        If the file cannot be written now, because the disk is full or read-only, open it for reading. The
        first transaction after the disk is writable again can write. If its content can be learnt again (see
        ``exclusive`` in `DatabaseFormat`) and it cannot even be read or created now, use a database without
        rows in its place.

    Raises
    ------
    CorruptStore, NotFound, ConfigurationError
        As `open_database`.
    """

    def __init__(
        self,
        path: Path,
        form: DatabaseFormat,
        *,
        create: bool,
        or_read_only: bool = False,
    ) -> None:
        self.path = path
        self.form = form
        self._lock = threading.RLock()
        self.read_only = ""
        """Reason why the file can only be read now; empty if it can be written."""
        self._copy_of_deleted: Path | None = None
        self._header: FileIO | None = None
        try:
            self._connection = open_database(path, form, create=create)
        except (ConfigurationError, Unavailable) as error:
            reading = open_to_read(path, form) if or_read_only else None
            if reading is not None and version_of(reading) != form.version:
                reading.close()
                reading = None
            usable = path.parent.is_dir() and (not path.exists() or path.is_file())
            if reading is None and or_read_only and form.exclusive and usable:
                reading = empty_database(form)
            if reading is None:
                raise
            self._connection, self.read_only = reading, str(error)
        self._note_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._connection.close()
            if self._header is not None:
                self._header.close()  # only now: closing a file ends SQLite's locks on it

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """A transaction: all changes or none, also after an interruption.

        Raises
        ------
        Unavailable
            If it may write and `check_writable` refuses.
        """
        with self._lock, translated_errors(self.path, self.form):
            if kind != "DEFERRED":
                self.check_writable()
            connection = self._connection
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection for one thread, outside of a transaction, with SQLite's errors translated."""
        with self._lock, translated_errors(self.path, self.form):
            yield self._connection

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.reading() as connection:
            return connection.execute(query, values).fetchall()

    def check_writable(self) -> None:
        """Raise unless a change that is committed now would be found after the next start.

        Raises
        ------
        Unavailable
            If the file was deleted, replaced, overwritten by a backup or upgraded, or cannot be reached or
            written. The content of a deleted or replaced file is then in a copy beside it.
        """
        with self._lock, translated_errors(self.path, self.form):
            try:
                files, journal_mode = self._files_now(), self._journal_mode_now()
            except OSError as error:  # such as a lost network disk
                raise DiskUnavailable(
                    f"cannot reach {self.path}: {error.strerror}",
                    advice="check the disk, and the rights of the folder",
                ) from error
            if files != self._files:
                raise self._deleted(files)
            if journal_mode != self._journal_mode:
                raise Unavailable(
                    f"{self.path} was overwritten while in use: changes are refused",
                    advice=self._remedy,
                )
            if self.read_only:
                self._become_writable()
            if (version := version_of(self._connection)) != self.form.version:
                raise Unavailable(
                    f"{self.path} has been upgraded to schema version {version}",
                    advice="restart this process with the newer nearsight",
                )

    def _become_writable(self) -> None:
        try:
            connection = open_to_write(self.path, self.form)
        except NearsightError as error:
            self.read_only = str(error)
            refused = DiskUnavailable if isinstance(error, DiskUnavailable | SetupError) else Unavailable
            raise refused(f"changes are refused: {error.message}", advice=error.advice) from error
        self._connection.close()
        self._connection, self.read_only = connection, ""
        self._note_files()

    def _note_files(self) -> None:
        self._files = self._files_now()
        if not self.read_only:
            self._header = self.path.open("rb", buffering=0)
        self._journal_mode = self._journal_mode_now()

    def _journal_mode_now(self) -> bytes:
        """Bytes in the header that differ between a database in use and a backup; empty if read-only."""
        return os.pread(self._header.fileno(), 2, 18) if self._header is not None else b""

    def _files_now(self) -> tuple[_Identity, ...]:
        """Identities of the files with the names of the database and, if this process writes, of its log."""
        log = () if self.read_only else (_identity(log_of(self.path)),)
        return (_identity(self.path), *log)

    def _deleted(self, files: Sequence[_Identity]) -> Unavailable:
        """The error for a file that is gone; its content, still open here, is saved once beside it."""
        file = self.path if files[0] != self._files[0] else log_of(self.path)
        what = "replaced by another file" if file.exists() else "deleted"
        try:
            if self._copy_of_deleted is None:
                copy = free_name(self.path, "rescued")
                write_copy(self._connection, copy, self.form)
                self._copy_of_deleted = copy
            advice = f"its content is in {self._copy_of_deleted}: {self._remedy}"
        except NearsightError as error:
            advice = f"its content could not be saved: {error}"
        return Unavailable(f"{file} was {what} while in use: changes are refused", advice=advice)

    @property
    def _remedy(self) -> str:
        log = log_of(self.path).name
        return f"stop this process, put a database in this place without {log}, and start it again"

    def corrupt(self, reason: str) -> CorruptStore:
        """The error for invalid content."""
        return corrupt(self.path, self.form, reason)


_Identity = tuple[int, int] | None


def _identity(path: Path) -> _Identity:
    """Identity of the file at this path, independent of its name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
