"""Interrupts a thread that waits in ``poll``: a pipe that one side writes to and the other polls."""

from __future__ import annotations

import contextlib
import os


class Waker:
    """A file descriptor that becomes readable when another thread calls `wake`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Interrupt the waiting thread, now or at its next wait."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Forget what woke the thread."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Give the descriptors back; `wake` must not be called any more."""
        os.close(self._read)
        os.close(self._write)
