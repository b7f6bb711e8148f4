"""Interrupts a thread that waits in ``poll``: a pipe that one side writes to and the other polls."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref


class Waker:
    """A file descriptor that becomes readable when another thread calls `wake`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # As with a file: a server that was built but never started gives its descriptors back as well.
        self._give_back = weakref.finalize(self, _close_all, self._read, self._write)
        # A process that ends gives all back itself; its threads may still wait.
        self._give_back.atexit = False
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Interrupt the waiting thread, now or at its next wait; nothing to do once it has closed this."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            if not self._closed:  # or the write would go to whatever got the descriptor since
                os.write(self._write, b"\0")

    def clear(self) -> None:
        """Forget what woke the thread."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Give the descriptors back; called by the thread that waits, while others may still `wake`."""
        with self._lock:
            self._closed = True
            self._give_back()


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
