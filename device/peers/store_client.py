"""Reads and writes entries at the nodes that are responsible for them: `Read` and `Write` with the network.

A caller that waits for a read receives the answer of the first node itself (no hand-over between threads);
everything else goes on in the threads of the network.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from nearsight.common.background import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidMessage,
    NearsightError,
    Overloaded,
)
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.kroute import KRoute
from nearsight.device.peers.links import Links
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.peer_settings import PeerSettings
from nearsight.device.peers.reading import NodeAnswer, Read
from nearsight.device.peers.shared_store import CLAIM_LEASE_S, SharedStore, refusal_error
from nearsight.device.peers.store_service import StoreService
from nearsight.device.peers.values import Entry
from nearsight.device.peers.view import Standing
from nearsight.device.peers.writing import Write
from nearsight.protos.peers_pb2 import DESCRIPTOR, ReadRequest, ReadResponse, WriteRequest, WriteResponse

_STORE = DESCRIPTOR.services_by_name["Store"]
READ = _STORE.methods_by_name["Read"]
WRITE = _STORE.methods_by_name["Write"]
SLOWEST_BYTES_PER_S = 250_000.0
"""Larger values may take longer by what this rate needs."""
LEAST_TIMEOUT_S = 0.05
BUSY_WAIT_S = 0.1
MOST_REPETITIONS = 4
"""How often a write is repeated to nodes that failed and are still there: until presence has found out."""
"""Mean wait before a node that was too busy for a write is asked again."""


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
    standing: Standing


class StoreClient:
    """Reads and writes of one device. Thread-safe.

    Parameters
    ----------
    route : KRoute
        Who is responsible, and how to reach them.
    links : Links
        Connections to the others.
    own : Own
        This device's part.
    settings : PeerSettings
        Replicas and patience.
    clock : Clock
        The time.
    timers : BackgroundWorker
        Looks after what takes long; owned by the node.
    """

    def __init__(
        self,
        route: KRoute,
        links: Links,
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
        self._timers = timers
        self._rng = rng
        self._closed = threading.Event()
        self._numbers = itertools.count()
        self._repeated: dict[int, Callable[[], None]] = {}
        self._overdue: deque[tuple[float, Callable[[], None]]] = deque()

    def read(self, key: str, *, claim: bool) -> Future[NodeAnswer]:
        """What the nodes say about a key. The future fails with a `NearsightError`."""
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            at_once: Future[NodeAnswer] = Future()
            at_once.set_result(known)
            return at_once
        course = _ReadCourse(self, key, claim=claim)
        course.begin()
        return course.future

    def read_now(self, key: str, *, claim: bool) -> NodeAnswer:
        """As `read`, but waits.

        Raises
        ------
        NearsightError
            If no node answered.
        """
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            return known
        course = _ReadCourse(self, key, claim=claim)
        answer = course.ask_first()
        return answer if answer is not None else course.future.result()

    def _known_here(self, key: str, *, claim: bool) -> NodeAnswer | None:
        """What this device holds itself, if it is a replica of the key and has been told all writes of it."""
        entry = self.own.shared.read(key)
        if entry is None or (claim and entry.value is None):
            return None
        standing, replicas = self.own.standing, self.settings.replicas
        view = standing.view
        if not standing.settled(view.digest):
            return None
        if len(view.nodes) > replicas and self.route.own not in self.route.ranking(key, view)[:replicas]:
            return None
        self.counts.own_reads += 1
        return NodeAnswer(entry, settled=True)

    def write(self, entry: Entry) -> Future[Sequence[Entry]]:
        """Write an entry to its replicas. The future holds what they know that the writer did not."""
        self.counts.writes += 1
        course = _WriteCourse(self, entry)
        course.begin()
        return course.future

    def hedge_later(self, look: Callable[[], None]) -> None:
        """Call ``look`` once an answer takes longer than answers take."""
        hedge_s = self.settings.hedge_s
        self._overdue.append((self.clock.monotonic() + hedge_s, look))
        self._timers.submit(self._look_at_overdue, name="hedges", after_s=hedge_s)

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
        return NodeAnswer(entry, response.settled, min(wait_ms, round(1000 * CLAIM_LEASE_S)))

    def _look_at_overdue(self) -> None:
        now_s = self.clock.monotonic()
        while self._overdue and self._overdue[0][0] <= now_s:
            self._overdue.popleft()[1]()
        if self._overdue:
            self._timers.submit(
                self._look_at_overdue, name="hedges", after_s=max(0.001, self._overdue[0][0] - now_s)
            )


class _Keyed(Protocol):
    key: str


def _unreadable(error: Exception) -> InternalError:
    return InternalError(f"a peer's answer cannot be read: {type(error).__name__}")


def _keys_in(*messages: Iterable[_Keyed]) -> Iterable[str]:
    return (message.key for some in messages for message in some)


class _ReadCourse:
    """One read on its way."""

    def __init__(self, client: StoreClient, key: str, *, claim: bool) -> None:
        self._client = client
        self._key = key
        self._claim = claim
        self._view = client.route.view
        ranking = client.route.ranking(key, self._view)
        self._first = ranking[0]
        self._read = Read(ranking, client.settings.replicas)
        self._lock = threading.Lock()
        self._ends_s = client.clock.monotonic() + client.settings.read_timeout_s
        self._waiting: set[NodeId] = set()
        self.future: Future[NodeAnswer] = Future()

    def begin(self) -> None:
        """Ask the first node, and the next one too if the first owes answers already."""
        slow = self._client.links.is_slow(self._first)
        with self._lock:
            nodes = self._read.ask_next(2 if slow else 1)
            if slow:
                self._read.late(self._first)
        self._ask(nodes)
        self._watch()

    def ask_first(self) -> NodeAnswer | None:
        """Ask the first node and wait; None if the read goes on, to end in `future`."""
        client, node = self._client, self._first
        if node == client.route.own:
            answer = self._ask_own()
        elif client.links.is_slow(node):
            self.begin()
            return None
        else:
            try:
                reply = client.links.ask(node, READ, self._request(), timeout_s=client.settings.hedge_s)
                answer = client.answer_of(self._key, reply)
            except DeadlineExceeded:
                client.links.mark_slow(node)
                self.begin()
                return None
            except NearsightError as error:
                with self._lock:
                    self._read.ask_next()
                self._failed(node, error)
                self._watch()
                return None
        if answer.settled:
            return answer
        with self._lock:
            self._read.ask_next()
        self._answered(node, answer)
        self._watch()
        return None

    def _watch(self) -> None:
        if not self._read.done:
            self._client.hedge_later(self._take_long)

    def _take_long(self) -> None:
        """Nobody answered for a while: ask one more."""
        with self._lock:
            if self._read.done:
                return
            late = tuple(self._waiting)
            nodes = tuple(following for node in late for following in self._read.late(node))
            ended = self._read.done
            nodes = nodes or self._read.ask_next()
        for node in late:
            self._client.links.mark_slow(node)
        self._client.counts.hedged_reads += 1
        self._go_on(nodes, ended=ended)
        if nodes:
            self._watch()

    def _request(self) -> ReadRequest:
        return ReadRequest(keys=[self._key], claim=self._claim, view=self._view.digest)

    def _ask(self, nodes: Sequence[NodeId]) -> None:
        client = self._client
        for node in nodes:
            if node == client.route.own:
                self._answered(node, self._ask_own())
                continue
            with self._lock:
                self._waiting.add(node)
            timeout_s = max(LEAST_TIMEOUT_S, self._ends_s - client.clock.monotonic())
            call = client.links.call(node, READ, self._request(), timeout_s=timeout_s)
            call.add_done_callback(lambda done, node=node: self._came(node, done))  # type: ignore[misc]

    def _ask_own(self) -> NodeAnswer:
        client = self._client
        client.counts.own_reads += 1
        return client.own.service.answer(self._key, client.route.own, self._view.digest, claim=self._claim)

    def _came(self, node: NodeId, done: Future[Reply]) -> None:
        try:
            answer = self._client.answer_of(self._key, done.result())
        except NearsightError as error:
            self._failed(node, error)
        except Exception as error:  # noqa: BLE001  # whatever a peer sent: somebody waits for this read
            self._failed(node, _unreadable(error))
        else:
            self._answered(node, answer)

    def _answered(self, node: NodeId, answer: NodeAnswer) -> None:
        with self._lock:
            self._waiting.discard(node)
            before = self._read.done
            nodes = self._read.answered(node, answer)
            ended = self._read.done and not before
        self._go_on(nodes, ended=ended)

    def _failed(self, node: NodeId, error: NearsightError) -> None:
        with self._lock:
            self._waiting.discard(node)
            before = self._read.done
            nodes = self._read.failed(node, error)
            ended = self._read.done and not before
        self._go_on(nodes, ended=ended)

    def _go_on(self, nodes: Sequence[NodeId], *, ended: bool) -> None:
        self._ask(nodes)
        if not ended:
            return
        try:
            outcome = self._read.outcome()
        except NearsightError as error:
            self._client.counts.failed += 1
            self.future.set_exception(error)
        else:
            self.future.set_result(outcome)


class _WriteCourse:
    """One write on its way."""

    def __init__(self, client: StoreClient, entry: Entry) -> None:
        self._client = client
        self._entry = entry
        self._view = client.route.view
        self._write = Write(client.route.ranking(entry.key, self._view), client.settings.replicas)
        self._request = WriteRequest(entries=[client.own.shared.encode(entry)], view=self._view.digest)
        self._transfer_s = self._request.ByteSize() / SLOWEST_BYTES_PER_S
        self._patience_s = client.settings.read_timeout_s + self._transfer_s
        self._ends_s = client.clock.monotonic() + 2 * self._patience_s
        self._lock = threading.Lock()
        self._newer: list[Entry] = []
        self._repetitions = 0
        self.future: Future[Sequence[Entry]] = Future()

    def begin(self) -> None:
        """Write to the first nodes."""
        with self._lock:
            nodes = self._write.begin()
        self._send(nodes)
        if not self._write.done:
            self._client.hedge_later(self._take_long)

    def _take_long(self) -> None:
        with self._lock:
            late = () if self._write.done else self._write.outstanding
        for node in late:
            self._client.links.mark_slow(node)

    def _send(self, nodes: Sequence[NodeId]) -> None:
        client = self._client
        for node in nodes:
            if node == client.route.own:
                newer, reason = client.own.service.take(self._entry, self._view.digest)
                self._taken(node, [newer] if newer is not None else [], reason)
                continue
            left_s = self._ends_s - client.clock.monotonic()
            patience_s = self._patience_s
            if client.links.is_slow(node):  # it owes answers already
                patience_s = min(patience_s, 2 * client.settings.hedge_s + self._transfer_s)
            timeout_s = max(LEAST_TIMEOUT_S, min(patience_s, left_s))
            call = client.links.call(node, WRITE, self._request, timeout_s=timeout_s)
            call.add_done_callback(lambda done, node=node: self._came(node, done))  # type: ignore[misc]

    def _repeat(self) -> None:
        """Nodes that failed may be gone by now, or there again."""
        lacking = self._write.lacking(self._client.route.ranking(self._entry.key))
        with self._lock:
            self._write.repeat(lacking)
        self._go_on(lacking, ended=not lacking)

    def _came(self, node: NodeId, done: Future[Reply]) -> None:
        client = self._client
        try:
            newer, reason = self._read_response(done.result())
        except Overloaded as error:
            if client.clock.monotonic() + 2 * BUSY_WAIT_S < self._ends_s:
                client.again_later(lambda: self._send((node,)))
            else:
                self._failed(node, error)
        except NearsightError as error:
            self._failed(node, error)
        except Exception as error:  # noqa: BLE001  # whatever a peer sent: somebody waits for this write
            self._failed(node, _unreadable(error))
        else:
            self._taken(node, newer, reason)

    def _read_response(self, reply: Reply) -> tuple[list[Entry], str]:
        response = reply.message
        if not isinstance(response, WriteResponse):
            raise InternalError("a write was answered with something else")
        key = self._entry.key
        try:
            if set(_keys_in(response.newer, response.refused)) - {key}:
                raise InvalidMessage(f"a peer was sent {key!r} and answered something else")
            newer = [self._client.own.shared.admit(message) for message in response.newer[:1]]
        except InvalidMessage:
            self._client.counts.lies += 1
            raise
        return newer, response.refused[0].reason if response.refused else ""

    def _taken(self, node: NodeId, newer: list[Entry], reason: str) -> None:
        with self._lock:
            if reason:
                nodes = self._write.refused(node, refusal_error(self._entry.key, reason))
            else:
                self._newer += newer
                nodes = self._write.taken(node)
            ended = self._write.done
        self._go_on(nodes, ended=ended)

    def _failed(self, node: NodeId, error: NearsightError) -> None:
        with self._lock:
            if self._repetitions and isinstance(error, DeadlineExceeded):
                self._repetitions = MOST_REPETITIONS  # it is there, and no use
            nodes = self._write.failed(node, error)
            ended = self._write.done
        self._go_on(nodes, ended=ended)

    def _go_on(self, nodes: Sequence[NodeId], *, ended: bool) -> None:
        self._send(nodes)
        if not ended:
            return
        ranking = self._client.route.ranking(self._entry.key)
        lacking = self._write.lacking(ranking)
        if lacking and self._repetitions < MOST_REPETITIONS:
            self._repetitions += 1
            self._client.again_later(self._repeat, self._repetitions)
            return
        try:
            self._write.check(ranking)
        except NearsightError as error:
            self._client.counts.failed += 1
            self.future.set_exception(error)
        else:
            self.future.set_result(tuple(self._newer))
