"""One write on its way: `Write` with the network, its times and its threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.shared_store import refusal_error
from nearsight.device.peers.store_calls import (
    BUSY_WAIT_S,
    LEAST_TIMEOUT_S,
    SLOWEST_BYTES_PER_S,
    WRITE,
    StoreCalls,
    unreadable,
)
from nearsight.device.peers.values import Entry
from nearsight.device.peers.writing import Write
from nearsight.protos.peers_pb2 import WriteRequest

MOST_REPETITIONS: Final = 4
"""How often a write is repeated to nodes that failed and are still there: until presence has found out."""


class WriteCourse:
    """One write on its way.

    Parameters
    ----------
    client : StoreCalls
        Reaches the nodes.
    entry : Entry
        What is written.

    Attributes
    ----------
    future : Future of sequence of Entry
        Ends with what the nodes know that the writer did not, or a `NearsightError`.
    """

    def __init__(self, client: StoreCalls, entry: Entry) -> None:
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
            self._client.look_later(self._take_long, self._client.settings.hedge_s)

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
            newer, reason = client.newer_of(self._entry.key, done.result())
        except Overloaded as error:
            if client.clock.monotonic() + 2 * BUSY_WAIT_S < self._ends_s:
                client.again_later(lambda: self._send((node,)))
            else:
                self._failed(node, error)
        except NearsightError as error:
            self._failed(node, error)
        except Exception as error:  # noqa: BLE001  # whatever a peer sent: somebody waits for this write
            self._failed(node, unreadable(error))
        else:
            self._taken(node, newer, reason)

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
