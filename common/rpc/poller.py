"""Waiting for file descriptors, so that of several waiting threads one wakes per event."""

from __future__ import annotations

import select
from collections.abc import Iterable


class Poller:
    """What one thread waits for.

    Linux wakes a single one of the threads that wait on an exclusive descriptor. Elsewhere all wake, and all
    but one find nothing to do: correct, but slower.

    Parameters
    ----------
    exclusive : iterable of int
        Descriptors that several threads wait on, one of which is enough for an event.
    shared : iterable of int
        Descriptors whose events are for every thread.
    """

    def __init__(self, exclusive: Iterable[int], shared: Iterable[int]) -> None:
        linux = hasattr(select, "epoll")
        self._poller: select.epoll | select.poll = select.epoll() if linux else select.poll()
        readable = select.EPOLLIN if linux else select.POLLIN
        for fileno in exclusive:
            self._poller.register(fileno, readable | select.EPOLLEXCLUSIVE if linux else readable)
        for fileno in shared:
            self._poller.register(fileno, readable)

    def wait(self) -> list[int]:
        """The descriptors that are readable, once some are."""
        return [fileno for fileno, _ in self._poller.poll()]

    def close(self) -> None:
        """Give the descriptor back."""
        close = getattr(self._poller, "close", None)
        if close is not None:
            close()
