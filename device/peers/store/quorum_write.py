"""Writes: the choice of nodes and the end of the write (`WritePlan`), and the calls (`QuorumWrite`).

A write is done when as many nodes of the current view accepted it as there are replicas, in the order of the
key's ranking. A node that fails is replaced by the next. A node that refuses is not replaced: if it is full,
another node is not the right place either, and if it is malicious, only one copy is lost. The refusal is
counted; the write fails only if no replica accepted the entry. A node that failed and is still a member at
the end must receive the entry nevertheless, otherwise readers that ask it first would not find it. The entry
is sent to it a few more times, and then handed over as soon as the node accepts it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.replica_calls import (
    BUSY_WAIT_S,
    LEAST_TIMEOUT_S,
    SLOWEST_BYTES_PER_S,
    ReplicaCalls,
)
from nearsight.device.peers.store.service import NO_VIEW, WRITE, WriteAnswer
from nearsight.device.peers.store.shared_store import refusal_error
from nearsight.device.peers.store.values import Entry
from nearsight.protos.peers_pb2 import WriteRequest

MOST_REPETITIONS: Final = 4
"""Retries of a write to nodes that failed but are still members; gives presence the time to detect a
departure."""


class WritePlan:
    """State of one write. Not thread-safe.

    Parameters
    ----------
    ranking : sequence of NodeId
        All nodes, the most responsible one first.
    replicas : int
        Number of nodes that should accept the entry.
    """

    def __init__(self, ranking: Sequence[NodeId], replicas: int) -> None:
        self._ranking = ranking
        self._replicas = replicas
        self._next = 0
        self.outstanding: set[NodeId] = set()
        """The nodes that have not answered yet."""
        self._accepted: set[NodeId] = set()
        self._error: NearsightError | None = None
        self._refused: set[NodeId] = set()
        self.done = False
        """Whether `check` may be called."""

    def begin(self) -> tuple[NodeId, ...]:
        """The nodes to write to first."""
        return self._go_on()

    def ended(
        self, node: NodeId, error: NearsightError | None = None, *, refused: bool = False
    ) -> tuple[NodeId, ...]:
        """A node accepted the entry, or refused it, or failed; returns the nodes to write to now."""
        self.outstanding.discard(node)
        if error is None:
            self._accepted.add(node)
        elif refused:
            self._refused.add(node)
            self._error = error
        elif not self._refused:
            self._error = error
        return self._go_on()

    def lacking(self, ranking: Sequence[NodeId]) -> tuple[NodeId, ...]:
        """The replicas of the given ranking that have neither accepted nor refused the entry."""
        answered = self._accepted | self._refused
        return tuple(node for node in ranking[: self._replicas] if node not in answered)

    def repeat(self, nodes: Sequence[NodeId]) -> None:
        """Record that the entry is sent to these nodes again."""
        self.outstanding.update(nodes)
        self.done = not self.outstanding

    def check(self, ranking: Sequence[NodeId]) -> None:
        """Return if at least one replica of the given ranking accepted the entry.

        Raises
        ------
        NearsightError
            The reason why none did.
        """
        if self._accepted.isdisjoint(ranking[: self._replicas]):
            raise self._error or Unavailable("no replica of the key could be reached")

    def _go_on(self) -> tuple[NodeId, ...]:
        wanted = self._replicas - len(self._accepted | self._refused | self.outstanding)
        following = tuple(self._ranking[self._next : self._next + max(0, wanted)])
        self._next += len(following)
        self.outstanding.update(following)
        self.done = not self.outstanding
        return following


class QuorumWrite:
    """One write in progress.

    Parameters
    ----------
    client : ReplicaCalls
        Calls to the nodes.
    entry : Entry
        The entry to write.
    """

    def __init__(self, client: ReplicaCalls, entry: Entry) -> None:
        self._client = client
        self._entry = entry
        self._view = client.route.cluster.view
        self._write = WritePlan(self._view.ranking(entry.key), client.settings.replicas)
        self._request = WriteRequest(entries=[client.shared.encode(entry)], view=self._view.digest)
        self._transfer_s = self._request.ByteSize() / SLOWEST_BYTES_PER_S
        self._timeout_s = client.settings.read_timeout_s + self._transfer_s
        self._ends_s = client.clock.monotonic() + 2 * self._timeout_s
        self._lock = threading.Lock()
        self._newer: list[Entry] = []
        self._repetitions = 0
        self._overloads: Counter[NodeId] = Counter()
        self.future: Future[Sequence[Entry]] = Future()
        """Result: the states that override the write, or a `NearsightError`."""

    def begin(self) -> None:
        """Write to the first nodes."""
        with self._lock:
            nodes = self._write.begin()
        self._send(nodes)
        if not self._write.done:
            self._client.timers.submit(self._mark_late_slow, after_s=self._client.settings.hedge_s)

    def _mark_late_slow(self) -> None:
        with self._lock:
            late = () if self._write.done else tuple(self._write.outstanding)
        for node in late:
            self._client.links.mark_slow(node)

    def _send(self, nodes: Sequence[NodeId]) -> None:
        client = self._client
        for node in nodes:
            if node == client.route.own:
                self._record(node, client.service.take(self._entry, self._view.digest))
                continue
            left_s = self._ends_s - client.clock.monotonic()
            timeout_s = self._timeout_s
            if client.links.is_slow(node):  # it has not answered earlier requests yet
                timeout_s = min(timeout_s, 2 * client.settings.hedge_s + self._transfer_s)
            timeout_s = max(LEAST_TIMEOUT_S, min(timeout_s, left_s))
            decode, ended = partial(client.newer_of, self._entry.key), partial(self._record, node)
            client.call(node, WRITE, self._request, timeout_s, decode, ended)

    def _repeat(self) -> None:
        """Send the entry again to replicas that lack it; failed nodes may have left or recovered."""
        lacking = self._write.lacking(self._client.route.cluster.view.ranking(self._entry.key))
        with self._lock:
            self._write.repeat(lacking)
        self._go_on(lacking, ended=not lacking)

    def _record(self, node: NodeId, outcome: WriteAnswer | NearsightError) -> None:
        """Record the answer or failure of a node, and continue."""
        client = self._client
        if isinstance(outcome, Overloaded) and client.clock.monotonic() + 2 * BUSY_WAIT_S < self._ends_s:
            self._overloads[node] += 1
            client.again_later(lambda: self._send((node,)), self._overloads[node], self._ends_s)
            return
        with self._lock:
            if isinstance(outcome, NearsightError):
                if self._repetitions and isinstance(outcome, DeadlineExceeded):
                    self._repetitions = MOST_REPETITIONS  # a member that does not answer: retries are useless
                nodes = self._write.ended(node, outcome)
            elif outcome.refusal:
                client.counts.refused += 1
                nodes = self._write.ended(node, refusal_error(self._entry.key, outcome.refusal), refused=True)
            else:
                if outcome.newer is not None:
                    self._newer.append(outcome.newer)
                nodes = self._write.ended(node)
            ended = self._write.done
        self._go_on(nodes, ended=ended)

    def _go_on(self, nodes: Sequence[NodeId], *, ended: bool) -> None:
        self._send(nodes)
        if not ended:
            return
        ranking = self._client.route.cluster.view.ranking(self._entry.key)
        lacking = self._write.lacking(ranking)
        if lacking and self._repetitions < MOST_REPETITIONS:
            self._repetitions += 1
            self._client.again_later(self._repeat, self._repetitions)
            return
        try:
            self._client.check_open()  # an entry that only this device accepted is lost when it leaves
            self._write.check(ranking)
        except NearsightError as error:
            self._client.counts.failed += 1
            self.future.set_exception(error)
        else:
            if lacking:
                # These replicas count as synchronised, so the entry is handed over until they accept it.
                self._client.service.take(self._entry, NO_VIEW)
            self.future.set_result(tuple(self._newer))
