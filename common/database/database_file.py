"""A database file that is in use: transactions from several threads, and only where they would last.

Before each change it is checked that the file is still there and can be written: what is acknowledged must be
found by the next start (decision 035).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from nearsight.common.errors import ConfigurationError, CorruptStore, NearsightError, Unavailable


class DatabaseFile:
    """A database of ours that is open. Safe to use from several threads, one at a time.

    Parameters
    ----------
    path, form, create
        As `open_database`.
    or_read_only : bool
        A file that cannot be written now, as the disk is full or read-only, is opened to be read. The first
        transaction after the disk has room again can write.
    or_empty : bool
        The same where the file cannot even be read or begun now: it is taken as one without rows.

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
        or_empty: bool = False,
    ) -> None:
        self.path = path
        self.form = form
        self._lock = threading.RLock()
        self.read_only = ""
        """Why the file can only be read now; empty if it can be written."""
        self._copy_of_deleted: Path | None = None
        try:
            self._connection = open_database(path, form, create=create)
        except (ConfigurationError, Unavailable) as error:
            reading = open_to_read(path, form) if or_read_only else None
            if reading is not None and version_of(reading) != form.version:
                reading.close()
                reading = None
            if (
                reading is None
                and or_empty
                and path.parent.is_dir()
                and (not path.exists() or path.is_file())
            ):
                reading = empty_database(form)
            if reading is None:
                raise
            self._connection, self.read_only = reading, str(error)
        self._files = self._files_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless if repeated."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or nothing, also when interrupted in the middle.

        Raises
        ------
        Unavailable
            If it is to write and `check_writable` refuses.
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
        """The connection for one thread, outside of a transaction of its own; errors in our words."""
        with self._lock, translated_errors(self.path, self.form):
            yield self._connection

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.reading() as connection:
            return connection.execute(query, values).fetchall()

    def check_writable(self) -> None:
        """Raise unless a change that is committed now would be found by the next start.

        Raises
        ------
        Unavailable
            If the file was deleted, replaced or upgraded, or cannot be written. What a deleted file held is
            in a copy beside it then.
        """
        with self._lock, translated_errors(self.path, self.form):
            if (files := self._files_now()) != self._files:
                raise self._deleted(files)
            if self.read_only:
                self._become_writable()
            if (version := version_of(self._connection)) != self.form.version:
                raise Unavailable(
                    f"{self.path} has been upgraded to schema version {version}",
                    advice="restart this process with the nearsight that did it",
                )

    def _become_writable(self) -> None:
        try:
            connection = open_to_write(self.path, self.form)
        except NearsightError as error:
            self.read_only = str(error)
            raise Unavailable(f"no changes are taken: {error.message}", advice=error.advice) from error
        self._connection.close()
        self._connection, self.read_only = connection, ""
        self._files = self._files_now()

    def _files_now(self) -> tuple[_Identity, ...]:
        """Which files have the names of the database and, if this process writes it, of its log."""
        log = () if self.read_only else (_identity(log_of(self.path)),)
        return (_identity(self.path), *log)

    def _deleted(self, files: Sequence[_Identity]) -> Unavailable:
        """The error for a file that is gone. Its content is still open here: it is saved once, beside it."""
        file = self.path if files[0] != self._files[0] else log_of(self.path)
        what = "replaced by another file" if file.exists() else "deleted"
        try:
            if self._copy_of_deleted is None:
                copy = free_name(self.path, "rescued")
                write_copy(self._connection, copy, self.form)
                self._copy_of_deleted = copy
            log = log_of(self.path).name
            advice = (
                f"what it held is in {self._copy_of_deleted}: stop, put a file in place without {log}, start"
            )
        except NearsightError as error:
            advice = f"what it held could not be saved: {error}"
        return Unavailable(f"{file} was {what} while it is in use: no changes are taken", advice=advice)

    def corrupt(self, reason: str) -> CorruptStore:
        """The error for content that cannot be."""
        return corrupt(self.path, self.form, reason)


_Identity = tuple[int, int] | None


def _identity(path: Path) -> _Identity:
    """Which file this is, whatever its name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
