"""The place of a database on disk: what lies beside it, and how another file takes its name.

The names of a database and of its log change together: the log of one must never be read as that of another.
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
    """The write-ahead log of a database: the same file as long as a process has the database open."""
    return beside(path, "-wal")


def beside(path: Path, ending: str) -> Path:
    """A file that lies beside a database."""
    real = real_file(path)
    return real.with_name(real.name + ending)


def real_file(path: Path) -> Path:
    """The database itself where ``path`` is a symbolic link: beside that, SQLite keeps its files."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def free_name(path: Path, ending: str) -> Path:
    """A name beside a file that is not taken: ``cloud.db.v1``, else ``cloud.db.v1-2``."""
    names = (beside(path, f".{ending}{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def set_aside(path: Path, ending: str) -> Path:
    """Give a database that nobody uses another name, with its log; returns the name."""
    aside = free_name(path, ending)
    real_file(path).rename(aside)
    _move_log(path, aside)
    return aside


def put_in_place(new: Path, path: Path) -> Path | None:
    """Give a database the name of another one, which is set aside; returns where that is now.

    ``new`` lies on the same disk and is not in use; it gets the owner and the mode of the other one. Whoever
    opens ``path`` finds either of the two, complete.

    Raises
    ------
    ConfigurationError
        If a process uses the database ``path``, or ``new`` is not one complete file.
    """
    if log_of(new).exists():
        raise ConfigurationError(f"cannot write {new}", advice="check the disk and its free space")
    _fold_log(path)
    with _excluding_others(path):
        there = path.exists()
        aside = free_name(path, "replaced")
        if there:
            shutil.copymode(path, new)
            with suppress(PermissionError):  # only root can
                os.chown(new, path.stat().st_uid, path.stat().st_gid)
            os.link(path, aside)  # first: a disk without links keeps the database with its log
        _move_log(path, aside)
        new.replace(path)
        sync_folder(path.parent)
    return aside if there else None


def _fold_log(path: Path) -> None:
    """Write the log of a sound database into it: an exchange that is cut off then does not part them."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _excluding_others(path: Path) -> Iterator[None]:
    """Hold the bytes that SQLite locks while a database is open (its file format, "lock-byte page")."""
    if not path.exists():
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, 0x4000_0000)
        except OSError as error:
            raise ConfigurationError(
                f"{path} is in use", advice="stop the cloud that serves it, and give the command again"
            ) from error
        yield


def _move_log(path: Path, aside: Path) -> None:
    """The logs of one database must not be read as those of another one of its name."""
    for ending in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            beside(path, ending).rename(beside(aside, ending))
    beside(path, "-shm").unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a change of names survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
