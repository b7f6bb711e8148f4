"""The bounded queue of a server, without threads: order of service, waiting time and refusals.

The order is fair. Peers are served round-robin, and within a peer its clients are served round-robin, so a
sender of many requests delays its own requests only. A peer that had no waiting request is served before the
others, once per round (sparse flows of FQ-CoDel, RFC 8290).

Refusals are early. A request is refused as soon as the measured service time predicts that it would wait too
long. Every request that leaves the queue unserved is returned with the error to answer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded
from nearsight.common.rpc.settings import ServerSettings

T = TypeVar("T")

_CAUTION = 1.2
"""Factor on the predicted wait of a new request. Requests that have passed one `sweep` are judged without it.
The service time varies, and a request should be refused early or not at all."""
_NEW_IN_A_ROW = 3
"""Consecutive turns of new peers before one turn of an old peer. It limits clients that open a connection per
request."""

_MEASURED = 64
"""Number of requests over which the service time is averaged. After an outlier, a shorter mean refuses too
many."""


class Sender(NamedTuple):
    """Identity that the fair order of a request depends on."""

    peer: Hashable = None
    """The key that the peer proved to own, or else its connection. Turns rotate over peers, because a client
    cannot forge this identity."""
    client: str = ""
    """Client id that the peer states. An edge sends requests for many devices, which share its turns."""


_ANONYMOUS = Sender()


class Refused(NamedTuple, Generic[T]):
    """A refused request, the error to answer, and the predicted time until others are accepted again [s]."""

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
    """Waiting requests of one peer, by client; the first client is served next."""

    clients: dict[str, deque[_Waiting[T]]] = field(default_factory=dict)
    turns_left: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.clients.values()))

    def copy(self) -> _Peer[T]:
        return _Peer({client: deque(queue) for client, queue in self.clients.items()}, self.turns_left)


class AdmissionQueue(Generic[T]):
    """Requests that wait for a free worker.

    Call `sweep` regularly while requests wait: it finds the requests to refuse. A client that repeats each
    refused request at once is thereby slowed down to the interval of the sweeps.

    Parameters
    ----------
    settings : ServerSettings
        Limits, and the consecutive turns of one peer.
    workers : int
        Requests that are served at the same time.
    """

    def __init__(self, settings: ServerSettings, workers: int) -> None:
        self._settings = settings
        self._workers = workers
        # The first peer of a ring is served next; new peers come before old ones. A served peer goes to the
        # end of the old ones even without waiting requests, so it is not new again before its turn.
        self._new: dict[Hashable, _Peer[T]] = {}
        self._old: dict[Hashable, _Peer[T]] = {}
        self._new_in_a_row = 0
        self.size = 0
        """Number of waiting requests."""
        self.displaced: list[Refused[T]] = []
        """Requests that were removed from a full queue; returned by the next `sweep`."""
        self._service_s = 0.0
        self._served = 0
        self._wait_s = 0.0
        self._swept_s = -math.inf

    def offer(
        self, item: T, *, now_s: float, deadline_s: float, sender: Sender = _ANONYMOUS, idle: int = 0
    ) -> list[Refused[T]]:
        """Queue a request, or refuse it.

        Parameters
        ----------
        item : T
            The request.
        now_s, deadline_s : float
            Current time, and the time at which the caller stops waiting for the answer.
        sender : Sender
            Identity for the fair order.
        idle : int
            Number of idle workers. The queue may hold this many more requests, because they leave at once.

        Returns
        -------
        list of Refused
            Requests to answer with an error now. If the queue is full, the last request of the sender with
            the most requests is removed; `sweep` returns it later.
        """
        if deadline_s <= now_s:
            return [Refused(item, DeadlineExceeded("the deadline had passed when the request arrived"))]
        ring = self._old if sender.peer in self._old else self._new
        clients = ring.setdefault(sender.peer, _Peer()).clients
        clients.setdefault(sender.client, deque()).append(_Waiting(item, sender, now_s, deadline_s))
        self.size += 1
        if self.size > self._settings.queue_limit + idle:
            limit = self._settings.queue_limit
            error = Overloaded(f"the queue is full: {limit} requests wait", advice="try again later")
            self.displaced.append(self._refused(self._drop_last(sender), error, limit))
            if len(self.displaced) > limit:
                refused, self.displaced = self.displaced, []
                return refused
        return []

    def take(self, now_s: float) -> tuple[T | None, list[Refused[T]]]:
        """The next request to serve, if any, and the expired requests before it."""
        refused: list[Refused[T]] = []
        while self.size:
            waiting = self._pop()
            error = self._refusal_reason(waiting, now_s, 0)
            if error is None:
                return waiting.item, refused
            refused.append(Refused(waiting.item, error))
        return None, refused

    def served(self, service_s: float) -> None:
        """Record the time that a worker spent on one request [s]."""
        self._served = min(self._served + 1, _MEASURED)
        self._service_s += (service_s - self._service_s) / self._served
        self._wait_s = self._service_s / self._workers

    def sweep(self, now_s: float) -> list[Refused[T]]:
        """Remove all requests that have waited too long, or that are predicted to."""
        refused, self.displaced = self.displaced, []
        swept_s, self._swept_s = self._swept_s, now_s
        kept = 0
        for waiting in self._in_order():
            caution = _CAUTION if waiting.since_s >= swept_s else 1.0
            error = self._refusal_reason(waiting, now_s, kept, caution)
            if error is None:
                kept += 1
            else:
                self._remove(waiting)
                refused.append(self._refused(waiting.item, error, kept + len(refused)))
        return refused

    def _pop(self) -> _Waiting[T]:
        """Remove and return the request whose turn it is."""
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
        """All waiting requests in the order of service if no others arrive."""
        same = copy(self)
        same._new, same._old = (
            {name: peer.copy() for name, peer in ring.items()} for ring in (self._new, self._old)
        )
        return [same._pop() for _ in range(self.size)]

    def _drop_last(self, newest: Sender) -> T:
        """Remove the last request of the peer with the most requests, from its client with the most.

        If several peers have equally many, the sender of the newest request loses one, if it is among them.
        """
        peer = self._peer(newest.peer)
        for other in (*self._new.values(), *self._old.values()):
            if other.size > peer.size:
                peer = other
        client = max(reversed(peer.clients), key=lambda name: len(peer.clients[name]))
        last = peer.clients[client][-1]
        self._remove(last)
        return last.item

    def _refusal_reason(
        self, waiting: _Waiting[T], now_s: float, ahead: int, caution: float = 1.0
    ) -> NearsightError | None:
        """Reason why a request with ``ahead`` requests before it will not be served; None if it may be.

        The first request in the queue is judged without prediction, so that a wrong prediction cannot refuse
        all requests.
        """
        limit_s = self._settings.queue_timeout_s
        if waiting.deadline_s <= now_s:
            return DeadlineExceeded("the deadline passed before a worker was free")
        if waiting.since_s + limit_s <= now_s:
            return Overloaded(f"waited for {limit_s:g} s without a free worker", advice="try again later")
        starts_s = now_s + ahead * self._wait_s * caution
        if starts_s < min(waiting.deadline_s, waiting.since_s + limit_s):
            return None
        text = f"too busy: {ahead} requests are queued before this one, which would wait longer than "
        patience_s = min(limit_s, waiting.deadline_s - waiting.since_s)
        return Overloaded(f"{text}{patience_s:.3g} s", advice="try again later")

    def _refused(self, item: T, error: NearsightError, ahead: int) -> Refused[T]:
        """The refusal of a request that had ``ahead`` requests before it.

        ``retry_after_s`` is the predicted time until a new request would wait less than ``queue_timeout_s``.
        It is at most half of that timeout, so that the queue does not run empty.
        """
        limit_s = self._settings.queue_timeout_s
        return Refused(item, error, min(max(0.0, ahead * self._wait_s - limit_s), limit_s / 2))
