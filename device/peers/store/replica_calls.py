"""Shared by the reads and writes of a device: replicas, connections, timers, and checks of answers."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import outcome_of, then
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import Cancelled, InvalidMessage, NearsightError
from nearsight.common.rpc.call import Reply
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.service import NodeAnswer, StoreService, WriteAnswer
from nearsight.device.peers.store.shared_store import CLAIM_LEASE_S
from nearsight.protos.peers_pb2 import ClaimMessage, EntryMessage, ReadResponse, RefusalMessage, WriteResponse

SLOWEST_BYTES_PER_S = 250_000.0
"""Timeouts are extended by the transfer time of the value at this rate."""
LEAST_TIMEOUT_S = 0.05
BUSY_WAIT_S = 0.1
"""Mean wait before a node that was overloaded or failed is asked again; doubles with each failure."""

A = TypeVar("A")


class AdaptiveTimeout:
    """Time to wait for one device before the next is asked as well, learnt from response times.

    Computed as TCP's retransmission timeout (RFC 6298): the mean response time plus four times its mean
    deviation. A frame lost on a radio channel is sent again only after 200 ms or more; the other device that
    holds the key answers long before. Each late answer doubles the timeout until the next answer, so that
    busy devices do not receive twice the requests. Its numbers are replaced one by one: threads may share it
    without a lock.

    Parameters
    ----------
    most_s : float
        Maximum and first timeout [s].
    """

    LEAST_S: Final = 0.02
    """Scheduling alone may delay a busy device by this time."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self.seconds = most_s
        """The current timeout."""

    def answered(self, took_s: float) -> None:
        """Update the timeout after an answer within it, which took ``took_s``."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        else:
            error_s = took_s - self._mean_s
            self._deviation_s += (abs(error_s) - self._deviation_s) / 4
            self._mean_s += error_s / 8
        self.seconds = min(self._most_s, max(self.LEAST_S, self._mean_s + 4 * self._deviation_s))

    def exhausted(self) -> None:
        """Double the timeout after it passed without an answer."""
        self.seconds = min(self._most_s, 2 * self.seconds)


@dataclass(slots=True)
class ClientCounts:
    """Counters of reads and writes of this device."""

    reads: int = 0
    own_reads: int = 0
    """Reads answered by this device itself."""
    hedged_reads: int = 0
    writes: int = 0
    failed: int = 0
    refused: int = 0
    """Copies of written entries that a replica refused, mostly because it is full."""
    invalid: int = 0
    """Impossible answers of peers, or answers to another request."""


class ReplicaCalls:
    """Shared by the reads and writes of one device. Thread-safe.

    Parameters
    ----------
    route : KRoute
        The nodes responsible for keys, and connections to them.
    service : StoreService
        This device's own replica.
    settings : PeerSettings
        Replicas and timeouts.
    clock : Clock
        The time.
    timers : BackgroundWorker
        Runs timers of slow calls and retries; owned by the node.
    rng : random.Random
        Jitter of retries.
    """

    def __init__(
        self,
        route: KRoute,
        service: StoreService,
        settings: PeerSettings,
        clock: Clock,
        timers: BackgroundWorker,
        rng: random.Random,
    ) -> None:
        self.route = route
        self.links = route.connections
        self.service = service
        self.shared = service.shared
        self.settings = settings
        self.clock = clock
        self.timers = timers
        self.counts = ClientCounts()
        self.first_timeout = AdaptiveTimeout(settings.hedge_s)
        self._rng = rng
        self.closed = threading.Event()
        """Set when this device leaves: its reads and writes fail."""
        self._numbers = itertools.count()
        self._repeated: dict[int, Callable[[], None]] = {}

    def again_later(self, job: Callable[[], None], times: int = 1, ends_s: float = math.inf) -> None:
        """Call ``job`` after a back-off, or when this client is closed.

        The back-off grows with ``times``, up to half of the time that is left until ``ends_s``.
        """
        number = next(self._numbers)
        self._repeated[number] = job
        longest_s = max(BUSY_WAIT_S, (ends_s - self.clock.monotonic()) / 2)
        wait_s = min(longest_s, BUSY_WAIT_S * self._rng.uniform(0.5, 1.5) * 2 ** (times - 1))
        self.timers.submit(lambda: self._repeat(number), after_s=wait_s)
        if self.closed.is_set():
            self._repeat(number)

    def close(self) -> None:
        """Run all waiting retries now, and make all unfinished reads and writes fail."""
        self.closed.set()
        for number in list(self._repeated):  # a copy: the timers' thread takes retries at the same time
            self._repeat(number)

    def check_open(self) -> None:
        """Check that this device has not left.

        Raises
        ------
        Cancelled
            If it has.
        """
        if self.closed.is_set():
            raise Cancelled("the store is closed, as this device left the peer network")

    def _repeat(self, number: int) -> None:
        job = self._repeated.pop(number, None)
        if job is not None:
            job()

    def call(
        self,
        node: NodeId,
        method: MethodDescriptor,
        request: Message,
        timeout_s: float,
        decode: Callable[[Reply], A],
        ended: Callable[[A | NearsightError], None],
    ) -> None:
        """Start a call to a peer; ``ended`` receives the decoded answer or the error, exactly once."""

        def finished(answer: Future[A]) -> None:
            outcome = outcome_of(answer)
            ended(outcome)

        call = self.links.call(node, method, request, timeout_s=timeout_s)
        then(call, decode).add_done_callback(finished)

    def answer_of(self, key: str, reply: Reply) -> NodeAnswer:
        """Decode a node's answer to a read of the key.

        Raises
        ------
        InvalidMessage
            If it concerns another key, or is impossible.
        """
        response: ReadResponse = reply.message
        try:
            _check_keys(key, response.entries, response.claims)
            if len(response.entries) > 1:
                raise InvalidMessage(f"a peer returned {key!r} twice")
            entry = self.shared.admit(response.entries[0]) if response.entries else None
        except InvalidMessage:
            self.counts.invalid += 1
            raise
        wait_ms = max((claim.wait_ms for claim in response.claims), default=0)
        return NodeAnswer(entry, response.synchronised, min(wait_ms, round(1000 * CLAIM_LEASE_S)))

    def newer_of(self, key: str, reply: Reply) -> WriteAnswer:
        """Decode a node's answer to a write.

        Raises
        ------
        InvalidMessage
            If it concerns another key, or is impossible.
        """
        response: WriteResponse = reply.message
        try:
            _check_keys(key, response.newer, response.refused)
            newer = self.shared.admit(response.newer[0]) if response.newer else None
        except InvalidMessage:
            self.counts.invalid += 1
            raise
        return WriteAnswer(newer, response.refused[0].reason if response.refused else "")


def _check_keys(key: str, *messages: Iterable[EntryMessage | ClaimMessage | RefusalMessage]) -> None:
    if any(message.key != key for some in messages for message in some):
        raise InvalidMessage(f"a peer's answer to {key!r} concerns another key")
