"""One read on its way: `Read` with the network, its times and its threads.

A caller that waits receives the answer of the first node itself, without a hand-over between threads;
everything else goes on in the threads of the network. A node that lets one wait for longer than nodes do
(`Patience`) has lost a frame, or is busy: the next is asked as well, and the faster one counts. Only one that
stays silent for ``hedge_s`` may be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.reading import NodeAnswer, Read
from nearsight.device.peers.store_calls import LEAST_TIMEOUT_S, READ, StoreCalls, unreadable
from nearsight.protos.peers_pb2 import ReadRequest


class ReadCourse:
    """One read on its way.

    Parameters
    ----------
    client : StoreCalls
        Reaches the nodes.
    key : str
        What is read.
    claim : bool
        Whether the caller will produce it if it is missing.

    Attributes
    ----------
    future : Future of NodeAnswer
        Ends with what the nodes say, or a `NearsightError`.
    """

    def __init__(self, client: StoreCalls, key: str, *, claim: bool) -> None:
        self._client = client
        self._key = key
        self._claim = claim
        self._view = client.route.view
        ranking = client.route.ranking(key, self._view)
        self._first = ranking[0]
        self._read = Read(ranking, client.settings.replicas, own=client.route.own, claim=claim)
        self._lock = threading.Lock()
        self._ends_s = client.clock.monotonic() + client.settings.read_timeout_s
        self._asked_s: dict[NodeId, float] = {}
        """When each node was asked that has not answered yet."""
        self._hedged = False
        self.future: Future[NodeAnswer] = Future()

    def begin(self) -> None:
        """Ask the first node, and the next one too if the first owes answers already."""
        slow = self._hedged = self._client.links.is_slow(self._first)
        with self._lock:
            nodes = self._read.ask_next(2 if slow else 1)
            if slow:
                self._read.late(self._first)
        self._ask(nodes)
        if not slow:
            self._watch_closely()
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
            asked_s = client.clock.monotonic()
            try:
                reply = client.links.ask(node, READ, self._request(), timeout_s=client.patience.s)
                answer = client.answer_of(self._key, reply)
            except DeadlineExceeded:
                client.patience.exhausted()
                client.counts.hedged_reads += 1
                self.begin()  # the link counts as slow by now: two nodes are asked, the first once more
                return None
            except NearsightError as error:
                with self._lock:
                    self._read.ask_next()
                self._failed(node, error)
                self._watch()
                return None
            client.patience.answered(client.clock.monotonic() - asked_s)
        if answer.settled and answer.entry is not None:
            return answer
        with self._lock:
            self._read.ask_next()
        self._answered(node, answer)
        self._watch_closely()
        self._watch()
        return None

    def _watch_closely(self) -> None:
        self._look_later(self._client.patience.s, doubt=False)

    def _watch(self) -> None:
        self._look_later(self._client.settings.hedge_s, doubt=True)

    def _look_later(self, patience_s: float, *, doubt: bool, waited_s: float = 0.0) -> None:
        if not self._read.done:
            self._client.look_later(lambda: self._look(patience_s, doubt=doubt), patience_s - waited_s)

    def _look(self, patience_s: float, *, doubt: bool) -> None:
        """Whether nodes were asked that long ago; if not, look again when they will have been."""
        with self._lock:
            now_s = self._client.clock.monotonic()
            waited_s = {node: now_s - asked_s for node, asked_s in self._asked_s.items()}
        late = [node for node, node_s in waited_s.items() if node_s >= patience_s]
        if late:
            self._take_long(late, doubt=doubt)
        else:
            self._look_later(patience_s, doubt=doubt, waited_s=max(waited_s.values(), default=0.0))

    def _take_long(self, late: Sequence[NodeId], *, doubt: bool) -> None:
        """Nodes have not answered for a while: ask one more."""
        with self._lock:
            if self._read.done:
                return
            self._hedged = True
            nodes = tuple(following for node in late for following in self._read.late(node))
            ended = self._read.done
            nodes = nodes or self._read.ask_next()
        for node in late:
            self._client.links.mark_slow(node, doubt=doubt)
        self._client.patience.exhausted()
        self._client.counts.hedged_reads += 1
        self._go_on(nodes, ended=ended)
        if nodes and doubt:
            self._watch()

    def _request(self) -> ReadRequest:
        return ReadRequest(keys=[self._key], claim=self._claims_here(), view=self._view.digest)

    def _claims_here(self) -> bool:
        """Whether to claim the key at the next node. If two gave claims, two askers might both wait."""
        return self._claim and not self._read.heard

    def _ask(self, nodes: Sequence[NodeId]) -> None:
        client = self._client
        for node in nodes:
            if node == client.route.own:
                self._answered(node, self._ask_own())
                continue
            now_s = client.clock.monotonic()
            with self._lock:
                self._asked_s[node] = now_s
            timeout_s = max(LEAST_TIMEOUT_S, self._ends_s - now_s)
            call = client.links.call(node, READ, self._request(), timeout_s=timeout_s)
            call.add_done_callback(lambda done, node=node: self._came(node, done))  # type: ignore[misc]

    def _ask_own(self) -> NodeAnswer:
        client = self._client
        client.counts.own_reads += 1
        claim = self._claims_here()
        return client.own.service.answer(self._key, client.route.own, self._view.digest, claim=claim)

    def _came(self, node: NodeId, done: Future[Reply]) -> None:
        try:
            answer = self._client.answer_of(self._key, done.result())
        except NearsightError as error:
            self._failed(node, error)
        except Exception as error:  # noqa: BLE001  # whatever a peer sent: somebody waits for this read
            self._failed(node, unreadable(error))
        else:
            asked_s = self._asked_s.get(node)
            if asked_s is not None and not self._hedged:
                self._client.patience.answered(self._client.clock.monotonic() - asked_s)
            self._answered(node, answer)

    def _answered(self, node: NodeId, answer: NodeAnswer) -> None:
        with self._lock:
            self._asked_s.pop(node, None)
            before = self._read.done
            nodes = self._read.answered(node, answer)
            for slow in [each for each in nodes if self._client.links.is_slow(each)]:
                nodes += self._read.late(slow)  # it owes answers already
            ended = self._read.done and not before
        self._go_on(nodes, ended=ended)

    def _failed(self, node: NodeId, error: NearsightError) -> None:
        with self._lock:
            self._asked_s.pop(node, None)
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
