"""Reads: which nodes are asked, and when the answer is known (`ReadPlan`), and the calls (`QuorumRead`).

The first node for a key answers alone if it is *synchronised*: it holds everything that exists. While nodes
come and go it may be incomplete; then the next is asked too, and their entries are merged. A node that fails
is passed over. A node that does not answer soon (`AdaptiveTimeout`) is *late*: the next is asked as well, and
the read does not wait for it once another replica has answered. That a key does *not* exist is believed only
of a synchronised replica, or when every replica has answered or failed: late is better than wrong. And a
second replica must confirm it, so that one that lost a key, or denies it, cannot hide it. This costs a second
round trip for missing keys only. A node that is silent for ``hedge_s`` may be gone: presence is told.

A caller that waits receives the answer of the first node in its own thread, without a hand-over between
threads; everything else runs in the threads of the network.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from nearsight.common.errors import DeadlineExceeded, NearsightError, Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.replica_calls import LEAST_TIMEOUT_S, ReplicaCalls, unreadable
from nearsight.device.peers.store.service import READ, NodeAnswer
from nearsight.device.peers.store.values import Entry, merged
from nearsight.protos.peers_pb2 import ReadRequest

MORE_IF_FOUND = 1
MORE_IF_MISSING = 4
"""How many nodes beyond the replicas are asked while none is synchronised."""
MOST_IF_FOUND = 3
"""Of many replicas that are not synchronised, so many are enough: their writers waited for all of them."""


class ReadPlan:
    """The course of one read. Not thread-safe.

    Parameters
    ----------
    ranking : sequence of NodeId
        All nodes, the first responsible one first; not empty.
    replicas : int
        How many of them hold each key. While none is synchronised, one more is asked, the one that held the
        key before the latest came (of many replicas three in all), and some more if none knows the key:
        several may have come at once.
    own : NodeId or None
        The node that reads; its own answer needs no confirmation.
    claim : bool
        Whether the reader would produce a missing value: then it may be told to wait for another device.
    """

    def __init__(
        self, ranking: Sequence[NodeId], replicas: int, *, own: NodeId | None = None, claim: bool = False
    ) -> None:
        self._ranking = ranking
        self._own = own
        self._claim = claim
        self._replica_count = replicas
        self._answers: dict[NodeId, NodeAnswer] = {}
        self._replicas = frozenset(ranking[:replicas])
        self._failed: set[NodeId] = set()
        self._late: set[NodeId] = set()
        self._error: NearsightError | None = None
        self.asked = 0
        """How many nodes were asked so far."""
        self.done = False
        """Whether `outcome` may be called."""

    @property
    def heard(self) -> bool:
        """Whether any node has answered."""
        return bool(self._answers)

    def ask_next(self, count: int = 1) -> tuple[NodeId, ...]:
        """Begin, or go on although an answer is outstanding: the nodes to ask now."""
        most = self._replica_count + MORE_IF_MISSING
        if self._found():
            most = min(self._replica_count + MORE_IF_FOUND, MOST_IF_FOUND)
        if self.done or len(self._answers) >= most:
            return ()
        following = tuple(self._ranking[self.asked : self.asked + count])
        self.asked += len(following)
        return following

    def answered(self, node: NodeId, answer: NodeAnswer) -> tuple[NodeId, ...]:
        """A node answered; returns the nodes to ask now."""
        if self.done:
            return ()
        self._answers[node] = answer
        return self._go_on()

    def failed(self, node: NodeId, error: NearsightError) -> tuple[NodeId, ...]:
        """A node did not answer; returns the nodes to ask now."""
        if self.done:
            return ()
        self._failed.add(node)
        self._error = error
        return self._go_on()

    def late(self, node: NodeId) -> tuple[NodeId, ...]:
        """A node takes longer than answers take; returns the nodes to ask now."""
        if self.done:
            return ()
        self._late.add(node)
        return self._go_on()

    def outcome(self) -> NodeAnswer:
        """The answers of the nodes, merged.

        Raises
        ------
        NearsightError
            If none of them answered, or none of the replicas and the others have nothing.
        """
        if self._answers.keys().isdisjoint(self._replicas) and not self._found():
            raise self._error or Unavailable("no node was asked")
        entry: Entry | None = None
        for answer in self._answers.values():
            if answer.entry is not None:
                entry = answer.entry if entry is None else merged(entry, answer.entry)
        synchronised = any(answer.synchronised for answer in self._answers.values())
        return NodeAnswer(entry, synchronised, max(answer.wait_ms for answer in self._answers.values()))

    def _go_on(self) -> tuple[NodeId, ...]:
        if any(self._decides(node, answer) for node, answer in self._answers.items()):
            self.done = True
            return ()
        if any(self._is_awaited(node) for node in self._ranking[: self.asked]):
            return ()
        following = self.ask_next()
        # One that is late may be the only one that has it by now.
        self.done = not following and (self._found() or not any(map(self._owes, self._replicas)))
        return following

    def _decides(self, node: NodeId, answer: NodeAnswer) -> bool:
        if not answer.synchronised:
            return False
        if answer.entry is not None:
            return True
        before = self._ranking[: self._ranking.index(node)]
        # A node that is no replica need not have it, however complete its keys are.
        if node not in self._replicas or any(map(self._is_awaited, before)):
            return False
        return node == self._own or (self._claim and answer.wait_ms > 0) or self._is_confirmed(node)

    def _is_confirmed(self, node: NodeId) -> bool:
        """Whether another replica had its say, or none can have it."""
        others = self._replicas - {node}
        return others <= self._failed or not others.isdisjoint(self._answers.keys() | self._late)

    def _is_awaited(self, node: NodeId) -> bool:
        return self._owes(node) and (node not in self._late or self._replicas.isdisjoint(self._answers))

    def _owes(self, node: NodeId) -> bool:
        return node not in self._answers and node not in self._failed

    def _found(self) -> bool:
        return any(answer.entry is not None for answer in self._answers.values())


class QuorumRead:
    """One read on its way.

    Parameters
    ----------
    client : ReplicaCalls
        Reaches the nodes.
    key : str
        What is read.
    claim : bool
        Whether the caller will produce it if it is missing.
    """

    def __init__(self, client: ReplicaCalls, key: str, *, claim: bool) -> None:
        self._client = client
        self._key = key
        self._claim = claim
        self._view = client.route.cluster.view
        ranking = client.route.ranking(key, self._view)
        self._first = ranking[0]
        self._read = ReadPlan(ranking, client.settings.replicas, own=client.route.own, claim=claim)
        self._lock = threading.Lock()
        self._ends_s = client.clock.monotonic() + client.settings.read_timeout_s
        self._asked_s: dict[NodeId, float] = {}
        """When each node was asked that has not answered yet."""
        self._hedged = False
        self.future: Future[NodeAnswer] = Future()
        """Ends with what the nodes say, or a `NearsightError`."""

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
                reply = client.links.ask(node, READ, self._request(), timeout_s=client.first_timeout.seconds)
                answer = client.answer_of(self._key, reply)
            except DeadlineExceeded:
                client.first_timeout.exhausted()
                client.counts.hedged_reads += 1
                self.begin()  # the link counts as slow by now: two nodes are asked, the first once more
                return None
            except NearsightError as error:
                with self._lock:
                    self._read.ask_next()
                self._note(node, error)
                self._watch()
                return None
            client.first_timeout.answered(client.clock.monotonic() - asked_s)
        if answer.synchronised and answer.entry is not None:
            return answer
        with self._lock:
            self._read.ask_next()
        self._note(node, answer)
        self._watch_closely()
        self._watch()
        return None

    def _watch_closely(self) -> None:
        self._look_later(self._client.first_timeout.seconds, doubt=False)

    def _watch(self) -> None:
        self._look_later(self._client.settings.hedge_s, doubt=True)

    def _look_later(self, limit_s: float, *, doubt: bool, waited_s: float = 0.0) -> None:
        if not self._read.done:
            self._client.timers.submit(
                lambda: self._look(limit_s, doubt=doubt), after_s=max(0.001, limit_s - waited_s)
            )

    def _look(self, limit_s: float, *, doubt: bool) -> None:
        """Whether nodes were asked that long ago; if not, look again when they will have been."""
        with self._lock:
            now_s = self._client.clock.monotonic()
            waited_s = {node: now_s - asked_s for node, asked_s in self._asked_s.items()}
        late = [node for node, node_s in waited_s.items() if node_s >= limit_s]
        if late:
            self._take_long(late, doubt=doubt)
        else:
            self._look_later(limit_s, doubt=doubt, waited_s=max(waited_s.values(), default=0.0))

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
        self._client.first_timeout.exhausted()
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
                self._note(node, self._ask_own())
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
        return client.service.answer(self._key, client.route.own, self._view.digest, claim=claim)

    def _came(self, node: NodeId, done: Future[Reply]) -> None:
        try:
            answer = self._client.answer_of(self._key, done.result())
        except NearsightError as error:
            self._note(node, error)
        except Exception as error:  # noqa: BLE001  # whatever a peer sent: somebody waits for this read
            self._note(node, unreadable(error))
        else:
            asked_s = self._asked_s.get(node)
            if asked_s is not None and not self._hedged:
                self._client.first_timeout.answered(self._client.clock.monotonic() - asked_s)
            self._note(node, answer)

    def _note(self, node: NodeId, outcome: NodeAnswer | NearsightError) -> None:
        """A node answered, or failed."""
        with self._lock:
            self._asked_s.pop(node, None)
            before = self._read.done
            if isinstance(outcome, NearsightError):
                nodes = self._read.failed(node, outcome)
            else:
                nodes = self._read.answered(node, outcome)
                for slow in [each for each in nodes if self._client.links.is_slow(each)]:
                    nodes += self._read.late(slow)  # it owes answers already
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
