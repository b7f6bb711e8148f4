"""The bounded queue of a server, without threads: which requests may wait for a worker, and for how long.

Of a client that sends camera frames faster than they can be recognised, the newest frame is worth more than
those before it: where more than ``newest_limit`` of its requests wait, the oldest is superseded. Nothing is
dropped silently: a request that leaves the queue without being served is handed back with the error to
answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded

T = TypeVar("T")


class Refused(NamedTuple, Generic[T]):
    """A request that will not be served, and what to answer."""

    item: T
    error: NearsightError


class _Waiting(NamedTuple, Generic[T]):
    item: T
    since_s: float
    deadline_s: float
    stream: Hashable


class AdmissionQueue(Generic[T]):
    """First in, first out, with limits.

    Parameters
    ----------
    limit : int
        Requests that may wait.
    timeout_s : float
        How long each may wait.
    newest_limit : int
        Requests of one stream that may wait before its oldest is superseded.
    """

    def __init__(self, *, limit: int, timeout_s: float, newest_limit: int) -> None:
        self._limit = limit
        self._timeout_s = timeout_s
        self._newest_limit = newest_limit
        self._waiting: deque[_Waiting[T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(
        self, item: T, *, now_s: float, deadline_s: float, stream: Hashable = None, idle: int = 0
    ) -> list[Refused[T]]:
        """Admit a request, or not.

        Parameters
        ----------
        item : T
            The request.
        now_s, deadline_s : float
            The time, and when nobody waits for the answer any more.
        stream : hashable
            Requests of one stream supersede each other; None: of no stream.
        idle : int
            Workers that have nothing to do: as many requests more may enter, since they leave at once.

        Returns
        -------
        list of Refused
            Requests to answer with an error now: this one, or those that it supersedes.
        """
        if deadline_s <= now_s:
            return [Refused(item, DeadlineExceeded("the time was over when the request arrived"))]
        refused = [] if stream is None else self._supersede(stream)
        if len(self._waiting) >= self._limit + idle:
            refused += self.sweep(now_s)
        if len(self._waiting) >= self._limit + idle:
            error = Overloaded(f"the queue is full: {self._limit} requests wait", advice="try again later")
            return [*refused, Refused(item, error)]
        self._waiting.append(_Waiting(item, now_s, deadline_s, stream))
        return refused

    def take(self, now_s: float) -> tuple[T | None, list[Refused[T]]]:
        """The next request to serve, if any, and those before it that nobody waits for any more."""
        refused: list[Refused[T]] = []
        while self._waiting:
            waiting = self._waiting.popleft()
            error = self._overdue(waiting, now_s)
            if error is None:
                return waiting.item, refused
            refused.append(Refused(waiting.item, error))
        return None, refused

    def sweep(self, now_s: float) -> list[Refused[T]]:
        """Remove all requests that have waited for too long."""
        judged = [(waiting, self._overdue(waiting, now_s)) for waiting in self._waiting]
        self._waiting = deque(waiting for waiting, error in judged if error is None)
        return [Refused(waiting.item, error) for waiting, error in judged if error is not None]

    def _supersede(self, stream: Hashable) -> list[Refused[T]]:
        mine = [waiting for waiting in self._waiting if waiting.stream == stream]
        excess = mine[: max(0, len(mine) + 1 - self._newest_limit)]
        for waiting in excess:
            self._waiting.remove(waiting)
        error = Overloaded("superseded by a newer frame of the same client", advice="send fewer frames")
        return [Refused(waiting.item, error) for waiting in excess]

    def _overdue(self, waiting: _Waiting[T], now_s: float) -> NearsightError | None:
        if waiting.deadline_s <= now_s:
            return DeadlineExceeded("the time was over before a worker was free")
        if waiting.since_s + self._timeout_s <= now_s:
            return Overloaded(
                f"waited for {self._timeout_s:g} s without a free worker", advice="try again later"
            )
        return None
