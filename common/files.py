"""Writes files atomically: a reader, or a full disk, never leaves a part of a file under its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _name(error, path)
        raise
    with replacing(path, mode) as aside:
        aside.write_bytes(content)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Provide an empty file in the same folder, which replaces ``path`` at the end of the block.

    It has the same suffix. It is deleted if the block raises an error. For programs and libraries that write
    to a name. Rights, owner, links and errors are as for `write_atomically`.
    """
    target = Path(os.path.realpath(path))
    aside = target.with_name(f".{target.stem}.{os.getpid()}.new{target.suffix}")
    try:
        aside.unlink(missing_ok=True)
        aside.touch(mode=0o666 if mode is None else mode, exist_ok=False)
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            aside.chmod(mode)  # touch() obeys the umask
        with suppress(FileNotFoundError, PermissionError):  # the file is new, or the process is not root
            os.chown(aside, target.stat().st_uid, target.stat().st_gid)
        aside.replace(target)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError):
            _name(error, path)
        raise


def _name(error: OSError, path: Path) -> None:
    """Let an error name only this file, and not the temporary one."""
    error.filename = str(path)
    del error.filename2
