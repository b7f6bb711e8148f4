"""What the reads and writes of a device share: replicas, connections, timers, and checks of answers."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import InternalError, InvalidMessage
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.routing.cluster_view import ClusterView
from nearsight.device.peers.routing.connections import PeerConnections
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.service import NodeAnswer, StoreService
from nearsight.device.peers.store.shared_store import CLAIM_LEASE_S, SharedStore
from nearsight.device.peers.store.values import Entry
from nearsight.protos.peers_pb2 import DESCRIPTOR, ReadResponse, WriteResponse

_STORE = DESCRIPTOR.services_by_name["Store"]
READ = _STORE.methods_by_name["Read"]
WRITE = _STORE.methods_by_name["Write"]
SLOWEST_BYTES_PER_S = 250_000.0
"""Larger values may take longer by what this rate needs."""
LEAST_TIMEOUT_S = 0.05
BUSY_WAIT_S = 0.1
"""Mean wait before a node that was too busy or failed is asked again; doubles with each failure."""


@dataclass(slots=True)
class ClientCounts:
    """Reads and writes of this device so far."""

    reads: int = 0
    own_reads: int = 0
    """Answered by this device itself."""
    hedged_reads: int = 0
    writes: int = 0
    failed: int = 0
    lies: int = 0
    """Answers of peers about something else than was asked, or absurd ones."""


@dataclass(frozen=True, slots=True)
class Own:
    """What this device holds itself."""

    shared: SharedStore
    service: StoreService
    cluster: ClusterView


class StoreCalls:
    """What the reads and writes of one device share. Thread-safe.

    Parameters
    ----------
    route : KRoute
        Who is responsible, and how to reach them.
    links : PeerConnections
        Connections to the others.
    own : Own
        This device's part.
    settings : PeerSettings
        Replicas and patience.
    clock : Clock
        The time.
    timers : BackgroundWorker
        Looks after what takes long; owned by the node.
    rng : random.Random
        Spreads repetitions.
    """

    def __init__(
        self,
        route: KRoute,
        links: PeerConnections,
        own: Own,
        settings: PeerSettings,
        clock: Clock,
        timers: BackgroundWorker,
        rng: random.Random,
    ) -> None:
        self.route = route
        self.links = links
        self.own = own
        self.settings = settings
        self.clock = clock
        self.counts = ClientCounts()
        self.patience = AdaptiveTimeout(settings.hedge_s)
        self._timers = timers
        self._rng = rng
        self._closed = threading.Event()
        self._numbers = itertools.count()
        self._repeated: dict[int, Callable[[], None]] = {}
        self._overdue: list[tuple[float, int, Callable[[], None]]] = []
        self._overdue_lock = threading.Lock()

    def look_later(self, look: Callable[[], None], after_s: float) -> None:
        """Call ``look`` after a while: an answer may still be missing then."""
        with self._overdue_lock:
            heapq.heappush(self._overdue, (self.clock.monotonic() + after_s, next(self._numbers), look))
        self._timers.submit(self._look_at_overdue, name="hedges", after_s=after_s)

    def again_later(self, job: Callable[[], None], times: int = 1) -> None:
        """Call ``job`` after a short while, longer after more times, or when this client is closed."""
        if self._closed.is_set():
            job()
            return
        number = next(self._numbers)
        self._repeated[number] = job
        wait_s = BUSY_WAIT_S * self._rng.uniform(0.5, 1.5) * 2 ** (times - 1)
        self._timers.submit(lambda: self._repeat(number), after_s=wait_s)
        if self._closed.is_set():  # meanwhile
            self._repeat(number)

    def close(self) -> None:
        """End what waits to be repeated; links and timers are closed by then."""
        self._closed.set()
        while self._repeated:
            self._repeat(next(iter(self._repeated)))

    def _repeat(self, number: int) -> None:
        job = self._repeated.pop(number, None)
        if job is not None:
            job()

    def answer_of(self, key: str, reply: Reply) -> NodeAnswer:
        """What a node's reply says about the key.

        Raises
        ------
        InvalidMessage
            If it is about something else, or absurd.
        """
        response = reply.message
        if not isinstance(response, ReadResponse):
            raise InternalError("a read was answered with something else")
        try:
            if set(_keys_in(response.entries, response.claims)) - {key} or len(response.entries) > 1:
                raise InvalidMessage(f"a peer was asked for {key!r} and answered something else")
            entry = self.own.shared.admit(response.entries[0]) if response.entries else None
        except InvalidMessage:
            self.counts.lies += 1
            raise
        wait_ms = max((claim.wait_ms for claim in response.claims), default=0)
        return NodeAnswer(entry, response.synchronised, min(wait_ms, round(1000 * CLAIM_LEASE_S)))

    def newer_of(self, key: str, reply: Reply) -> tuple[list[Entry], str]:
        """What a node knows that the writer of the key did not, and why it refused the write, if it did.

        Raises
        ------
        InvalidMessage
            If its reply is about something else, or absurd.
        """
        response = reply.message
        if not isinstance(response, WriteResponse):
            raise InternalError("a write was answered with something else")
        try:
            if set(_keys_in(response.newer, response.refused)) - {key}:
                raise InvalidMessage(f"a peer was sent {key!r} and answered something else")
            newer = [self.own.shared.admit(message) for message in response.newer[:1]]
        except InvalidMessage:
            self.counts.lies += 1
            raise
        return newer, response.refused[0].reason if response.refused else ""

    def _look_at_overdue(self) -> None:
        now_s = self.clock.monotonic()
        due: list[Callable[[], None]] = []
        with self._overdue_lock:
            while self._overdue and self._overdue[0][0] <= now_s:
                due.append(heapq.heappop(self._overdue)[2])
            next_s = self._overdue[0][0] if self._overdue else None
        for look in due:
            look()
        if next_s is not None:
            self._timers.submit(self._look_at_overdue, name="hedges", after_s=max(0.001, next_s - now_s))


class _Keyed(Protocol):
    key: str


def unreadable(error: Exception) -> InternalError:
    """The error of a call whose answer broke something here."""
    return InternalError(f"a peer's answer cannot be read: {type(error).__name__}")


def _keys_in(*messages: Iterable[_Keyed]) -> Iterable[str]:
    return (message.key for some in messages for message in some)


LEAST_S: Final = 0.02
"""Scheduling alone may take a busy device so long."""
_MEAN_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4.0


class AdaptiveTimeout:
    """Learns from answers. Its numbers are replaced one by one, so threads may share it without a lock.

    Parameters
    ----------
    most_s : float
        Longest patience, and the first.

    Attributes
    ----------
    s : float
        For how long to wait now.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self.s = most_s

    def answered(self, took_s: float) -> None:
        """An answer came in time."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        else:
            error_s = took_s - self._mean_s
            self._deviation_s += _DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
            self._mean_s += _MEAN_GAIN * error_s
        learnt_s = self._mean_s + _DEVIATIONS * self._deviation_s
        self.s = min(self._most_s, max(LEAST_S, learnt_s))

    def exhausted(self) -> None:
        """No answer came in time."""
        self.s = min(self._most_s, 2 * self.s)
