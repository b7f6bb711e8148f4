"""Writes files atomically: a reader, or a full disk, never leaves a part of a file under its name."""

from __future__ import annotations

import os
from contextlib import suppress
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
    aside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        aside.touch(mode=0o666 if mode is None else mode, exist_ok=False)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            aside.chmod(mode)  # touch() obeys the umask
        with suppress(FileNotFoundError, PermissionError):  # the file is new, or the process is not root
            os.chown(aside, target.stat().st_uid, target.stat().st_gid)
        aside.replace(target)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        error.filename, error.filename2 = str(path), None
        raise
