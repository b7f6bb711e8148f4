"""The bounded queue of a server, without threads: which requests wait, for how long, and whose turn it is.

Fair: peers are served in turn, and the clients that a peer speaks for in turn again, so that whoever sends
much waits behind his own requests. A peer of which nothing waited comes first, once in a round (sparse flows
of FQ-CoDel, RFC 8290). Early: a request is refused as soon as the measured time per request says
that it would wait for too long. Nothing is dropped silently: a request that leaves the queue without being
served is handed back with the error to answer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded
from nearsight.common.rpc.settings import ServerSettings

T = TypeVar("T")

_CAUTION = 1.2
"""How much longer the wait of a new request is assumed to be than foreseen. One that was let in is judged
without it: it should be refused early or not at all, and the time per request varies."""
_NEW_IN_A_ROW = 3
"""Turns of new peers before one of an old one: somebody might connect anew for each request."""

_MEASURED = 64
"""Requests over which the time per request is averaged: a shorter mean, once too high, refuses too many."""


class Sender(NamedTuple):
    """Whose turn a request takes."""

    peer: Hashable = None
    """Who proved to own a key, or else a connection. Turns go round peers, since these cannot be invented."""
    client: str = ""
    """Who asks, as the peer says: an edge asks for many devices, which take its turns in turn."""


_NOBODY = Sender()


class Refused(NamedTuple, Generic[T]):
    """A request that will not be served, what to answer, and for how long a further one would fare alike."""

    item: T
    error: NearsightError
    retry_after_s: float = 0.0


class _Waiting(NamedTuple, Generic[T]):
    item: T
    sender: Sender
    since_s: float
    deadline_s: float


@dataclass(slots=True)
class _Peer(Generic[T]):
    """What waits of one peer, by client, the one to be served next first."""

    clients: dict[str, deque[_Waiting[T]]] = field(default_factory=dict)
    turns_left: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.clients.values()))

    def copy(self) -> _Peer[T]:
        return _Peer({client: deque(queue) for client, queue in self.clients.items()}, self.turns_left)


class AdmissionQueue(Generic[T]):
    """Requests that wait for one of some workers.

    `sweep` must be called every now and then while something waits, as refusals are found there: a client
    that sends again whenever it is refused is thereby slowed down to that pace.

    Parameters
    ----------
    settings : ServerSettings
        Limits, and the turns that one peer may take in a row.
    workers : int
        Requests that are served at once.
    """

    def __init__(self, settings: ServerSettings, workers: int) -> None:
        self._settings = settings
        self._workers = workers
        # The first peer is served next: of the new ones, or else of the old ones. Who was served goes behind
        # the old ones, also if nothing more of it waits: until its turn comes it is not new again.
        self._new: dict[Hashable, _Peer[T]] = {}
        self._old: dict[Hashable, _Peer[T]] = {}
        self._new_in_a_row = 0
        self.size = 0
        """Requests that wait."""
        self.unfit: list[Refused[T]] = []
        """Requests that left a full queue; the next `sweep` hands them back."""
        self._service_s = 0.0
        self._served = 0
        self._wait_s = 0.0
        self._swept_s = -math.inf

    def offer(
        self, item: T, *, now_s: float, deadline_s: float, sender: Sender = _NOBODY, idle: int = 0
    ) -> list[Refused[T]]:
        """Take in a request, or not.

        Parameters
        ----------
        item : T
            The request.
        now_s, deadline_s : float
            The time, and when nobody waits for the answer any more.
        sender : Sender
            Whose turn it takes.
        idle : int
            Workers that have nothing to do: as many requests more may enter, since they leave at once.

        Returns
        -------
        list of Refused
            Requests to answer with an error now. Where the queue is full, the last request of whoever has
            most of them leaves it, and is handed back by `sweep`.
        """
        if deadline_s <= now_s:
            return [Refused(item, DeadlineExceeded("the time was over when the request arrived"))]
        ring = self._old if sender.peer in self._old else self._new
        clients = ring.setdefault(sender.peer, _Peer()).clients
        clients.setdefault(sender.client, deque()).append(_Waiting(item, sender, now_s, deadline_s))
        self.size += 1
        if self.size > self._settings.queue_limit + idle:
            limit = self._settings.queue_limit
            error = Overloaded(f"the queue is full: {limit} requests wait", advice="try again later")
            self.unfit.append(self._turned_away(self._drop_last(sender), error, limit))
            if len(self.unfit) > limit:
                refused, self.unfit = self.unfit, []
                return refused
        return []

    def take(self, now_s: float) -> tuple[T | None, list[Refused[T]]]:
        """The next request to serve, if any, and those before it that nobody waits for any more."""
        refused: list[Refused[T]] = []
        while self.size:
            waiting = self._pop()
            error = self._hopeless(waiting, now_s, 0)
            if error is None:
                return waiting.item, refused
            refused.append(Refused(waiting.item, error))
        return None, refused

    def served(self, service_s: float) -> None:
        """A worker took so long for a request."""
        self._served = min(self._served + 1, _MEASURED)
        self._service_s += (service_s - self._service_s) / self._served
        self._wait_s = self._service_s / self._workers

    def sweep(self, now_s: float) -> list[Refused[T]]:
        """Remove all requests that waited for too long, or will have when it is their turn."""
        refused, self.unfit = self.unfit, []
        swept_s, self._swept_s = self._swept_s, now_s
        kept = 0
        for waiting in self._in_order():
            caution = _CAUTION if waiting.since_s >= swept_s else 1.0
            error = self._hopeless(waiting, now_s, kept, caution)
            if error is None:
                kept += 1
            else:
                self._remove(waiting)
                refused.append(self._turned_away(waiting.item, error, kept + len(refused)))
        return refused

    def _pop(self) -> _Waiting[T]:
        """Remove the request whose turn it is."""
        ring = self._new
        if not ring or self._new_in_a_row >= _NEW_IN_A_ROW:
            while self._old and not next(iter(self._old.values())).clients:
                del self._old[next(iter(self._old))]
            ring = self._old or self._new
        self._new_in_a_row = self._new_in_a_row + 1 if ring is self._new else 0
        name, peer = next(iter(ring.items()))
        client, queue = next(iter(peer.clients.items()))
        peer.turns_left = (peer.turns_left or min(len(peer.clients), self._settings.shares_per_peer)) - 1
        self.size -= 1
        waiting = queue.popleft()
        del peer.clients[client]
        if queue:
            peer.clients[client] = queue
        else:
            peer.turns_left = min(peer.turns_left, len(peer.clients))
        if not peer.turns_left:
            del ring[name]
            self._old[name] = peer
        if not self.size:
            self._old.clear()
        return waiting

    def _remove(self, waiting: _Waiting[T]) -> None:
        name, client = waiting.sender
        peer = self._peer(name)
        peer.clients[client].remove(waiting)
        if not peer.clients[client]:
            del peer.clients[client]
        if not peer.clients:
            peer.turns_left = 0
            self._new.pop(name, None)
        self.size -= 1

    def _peer(self, name: Hashable) -> _Peer[T]:
        return self._new.get(name) or self._old.get(name) or _Peer()

    def _in_order(self) -> list[_Waiting[T]]:
        """All that wait, as they will be served if no others come."""
        before = self._new, self._old, self._new_in_a_row, self.size
        self._new, self._old = ({name: peer.copy() for name, peer in one.items()} for one in before[:2])
        order = [self._pop() for _ in range(self.size)]
        self._new, self._old, self._new_in_a_row, self.size = before
        return order

    def _drop_last(self, newest: Sender) -> T:
        """Remove the last request of the client with most requests of the peer with most.

        Of several peers with equally many it is the sender of the newest request, if it is among them.
        """
        peer = self._peer(newest.peer)
        for other in (*self._new.values(), *self._old.values()):
            if other.size > peer.size:
                peer = other
        client = max(reversed(peer.clients), key=lambda name: len(peer.clients[name]))
        last = peer.clients[client][-1]
        self._remove(last)
        return last.item

    def _hopeless(
        self, waiting: _Waiting[T], now_s: float, ahead: int, caution: float = 1.0
    ) -> NearsightError | None:
        """Why a request with so many before it will not be served; None if it may be.

        Of the first in line no prediction is needed, so that a wrong one never keeps all requests out.
        """
        limit_s = self._settings.queue_timeout_s
        if waiting.deadline_s <= now_s:
            return DeadlineExceeded("the time was over before a worker was free")
        if waiting.since_s + limit_s <= now_s:
            return Overloaded(f"waited for {limit_s:g} s without a free worker", advice="try again later")
        starts_s = now_s + ahead * self._wait_s * caution
        if starts_s < min(waiting.deadline_s, waiting.since_s + limit_s):
            return None
        text = f"too busy: {ahead} requests are before this one, which would wait for longer than "
        patience_s = min(limit_s, waiting.deadline_s - waiting.since_s)
        return Overloaded(f"{text}{patience_s:.3g} s", advice="try again later")

    def _turned_away(self, item: T, error: NearsightError, ahead: int) -> Refused[T]:
        """A refused request that had so many before it.

        The next would be let in when as many were served as were too many; half of the longest wait at most,
        so that the queue is never empty meanwhile.
        """
        limit_s = self._settings.queue_timeout_s
        return Refused(item, error, min(max(0.0, ahead * self._wait_s - limit_s), limit_s / 2))
