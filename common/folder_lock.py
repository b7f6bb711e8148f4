"""A lock on a folder, so that one process works in it at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearsight.common.errors import SetupError
from nearsight.common.logging import get_logger

_log = get_logger("folder")


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a folder while the block runs; other processes that lock it wait.

    If the folder cannot be opened or its file system has no locks, the block runs at once, without a lock.

    Raises
    ------
    SetupError
        If another process holds the lock, and ``wait`` is False.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        _log.debug("the folder cannot be opened", folder=str(folder), error=str(error))
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not wait:
                raise SetupError(
                    f"another command works in {folder}", advice="wait until it ends, or use another folder"
                ) from error
            _log.info("another process works in this folder: waiting for it", folder=str(folder))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:  # on some network file systems
            _log.debug("the folder cannot be locked", folder=str(folder), error=str(error))
        yield
    finally:
        os.close(descriptor)
