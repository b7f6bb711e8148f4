"""The location of a database on disk: the files beside it, and how another file takes its name.

A database and its log are renamed together: SQLite must never read the log of one database as that of
another.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from nearsight.common.errors import ConfigurationError


def log_of(path: Path) -> Path:
    """The write-ahead log of a database; its identity is constant while a process has the database open."""
    return beside(path, "-wal")


def beside(path: Path, ending: str) -> Path:
    """The path of a file beside a database: its name with an ending."""
    real = real_file(path)
    return real.parent / f"{real.name}{ending}"  # with_name() refuses a path without a name, such as "."


def real_file(path: Path) -> Path:
    """The database itself if ``path`` is a symbolic link: SQLite keeps its files beside the target."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def free_name(path: Path, ending: str) -> Path:
    """An unused name beside a file: ``cloud.db.v1``, else ``cloud.db.v1-2``."""
    names = (beside(path, f".{ending}{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def set_aside(path: Path, ending: str) -> Path:
    """Rename an unused database and its log; returns the new path."""
    aside = free_name(path, ending)
    real_file(path).rename(aside)
    _move_log(path, aside)
    return aside


def put_in_place(new: Path, path: Path) -> Path | None:
    """Give a database the name of another one, which is renamed; returns the new path of the other one.

    ``new`` is on the same disk and not in use; it gets the owner and the mode of the other one. A process
    that opens ``path`` finds either of the two, complete.

    Raises
    ------
    ConfigurationError
        If a process uses the database ``path``, or ``new`` is not one complete file.
    """
    if log_of(new).exists():
        raise ConfigurationError(f"cannot write {new}", advice="check the disk and its free space")
    _fold_log(path)
    with _locked(path):
        there = path.exists()
        aside = free_name(path, "replaced")
        if there:
            shutil.copymode(path, new)
            with suppress(PermissionError):  # only root may do this
                os.chown(new, path.stat().st_uid, path.stat().st_gid)
            os.link(path, aside)  # first: on a disk without hard links, this fails before the log is moved
        _move_log(path, aside)
        new.replace(path)
        sync_folder(path.parent)
    return aside if there else None


def _fold_log(path: Path) -> None:
    """Write the log of an intact database into it, so that an interrupted exchange cannot separate them."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the bytes that SQLite locks while a database is open (its file format, "lock-byte page")."""
    if not path.exists():
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, 0x4000_0000)
        except OSError as error:
            raise ConfigurationError(
                f"{path} is in use", advice="stop the cloud that serves it, and run the command again"
            ) from error
        yield


def _move_log(path: Path, aside: Path) -> None:
    """Move the log with its database, so that it is not read as the log of another one with the same name."""
    for ending in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            beside(path, ending).rename(beside(aside, ending))
    beside(path, "-shm").unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renamed files survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
