"""Writes files atomically: a reader, or a full disk, never leaves a part of a file under its name."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file through a temporary file in the same folder; a device, such as /dev/stdout, directly.

    The new file has the owner of the replaced one. A symbolic link stays, and its target is replaced.

    Parameters
    ----------
    path : Path
        The file; its folder is created if necessary.
    content : bytes
        The whole content.
    mode : int, optional
        Rights of the file; others never have more, not even for a moment. None: as the umask permits.

    Raises
    ------
    OSError
        If it cannot be written, with the file's name. A file that existed is unchanged.
    """
    with _naming(path):
        if _is_device(path):
            path.write_bytes(content)
            return
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode) as aside:
        aside.write_bytes(content)


def write_json(path: Path, value: object, mode: int | None = None) -> None:
    """Write a value as indented JSON; parameters and errors as for `write_atomically`."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(), mode)


def check_writable(path: Path) -> None:
    """Raise the error of `write_atomically` now, before the work whose result the file will have."""
    with _naming(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_device(path):
            folder = Path(os.path.realpath(path)).parent
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Provide an empty file in the same folder, which replaces ``path`` at the end of the block.

    It has the same suffix. It is deleted if the block raises an error. For programs and libraries that write
    to a name. Rights, owner, links and errors are as for `write_atomically`.
    """
    target = Path(os.path.realpath(path))
    # A name with the longest permitted length must not become longer.
    aside = target.with_name(f".{target.stem[:40]}.{token_hex(4)}.new{target.suffix}")
    with _naming(path):
        try:
            aside.touch(mode=0o666 if mode is None else mode, exist_ok=False)
            yield aside
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            if mode is not None:
                aside.chmod(mode)  # touch() obeys the umask
            with suppress(FileNotFoundError, PermissionError):  # the file is new, or the process is not root
                os.chown(aside, target.stat().st_uid, target.stat().st_gid)
            aside.replace(target)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors name only this file, and not the temporary one."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2
        raise
