"""Reads: the nodes to ask and the end of the read (`ReadPlan`), and the calls (`QuorumRead`).

The first node for a key answers alone if it is *synchronised*: its keys are complete. While the membership
changes it may be incomplete; then the next node is asked too, and their entries are merged. A node that fails
is skipped. A node that exceeds the `AdaptiveTimeout` is *late*: the next node is asked as well, and the read
does not wait for the late one once another replica has answered.

A node that is no replica may have an earlier state of the key, from the time when it was one. Therefore its
answer is used only together with one of a replica, or if all replicas fail. A key counts as missing only if a
synchronised replica says so, or when every replica has answered or failed: a late answer is better than a
wrong one. A second replica must confirm it, so that a replica that lost a key, or denies it, cannot hide the
key. This costs a second round trip for missing keys only. If neither an asked node nor the reader is
synchronised, their views of the members may be wrong, as on an overloaded machine; the read then starts over,
after growing pauses, until they agree or its time is over. A node that is silent for ``hedge_s`` is reported
to presence, as it may have left.

A caller that blocks receives the answer of the first node in its own thread, without a switch between
threads. Everything else runs in the threads of the network.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from nearsight.common.errors import DeadlineExceeded, NearsightError, Unavailable
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.replica_calls import LEAST_TIMEOUT_S, ReplicaCalls
from nearsight.device.peers.store.service import READ, NodeAnswer
from nearsight.device.peers.store.values import Entry, merged
from nearsight.protos.peers_pb2 import ReadRequest

MORE_IF_FOUND = 1
MORE_IF_MISSING = 4
"""Number of nodes beyond the replicas that are asked while none is synchronised."""
MOST_IF_FOUND = 3
"""Sufficient number of answers if there are many replicas and none is synchronised: each write waited for all
replicas."""


class ReadPlan:
    """State of one read. Not thread-safe.

    Parameters
    ----------
    ranking : sequence of NodeId
        All nodes, the most responsible one first; not empty.
    replicas : int
        Number of replicas of each key. While none is synchronised, one more node is asked: the one that held
        the key before the latest node joined (if there are many replicas, three nodes in all). If no node has
        the key, several more are asked, as several nodes may have joined at once.
    own : NodeId or None
        The node that reads; its own answer needs no confirmation.
    claim : bool
        Whether the reader would produce a missing value. Then the answer may tell it to wait for another
        device.
    """

    def __init__(
        self, ranking: Sequence[NodeId], replicas: int, *, own: NodeId | None = None, claim: bool = False
    ) -> None:
        self._ranking = ranking
        self._own = own
        self._claim = claim
        self._replica_count = replicas
        self.answers: dict[NodeId, NodeAnswer] = {}
        """The answers so far."""
        self._replicas = frozenset(ranking[:replicas])
        self._failed: set[NodeId] = set()
        self._late: set[NodeId] = set()
        self._error: NearsightError | None = None
        self.asked = 0
        """Number of nodes asked so far."""
        self.done = False
        """Whether `outcome` may be called."""

    def ask_next(self, count: int = 1) -> tuple[NodeId, ...]:
        """The nodes to ask now: at the start, or in addition to an outstanding answer."""
        most = self._replica_count + MORE_IF_MISSING
        if self._found():
            most = min(self._replica_count + MORE_IF_FOUND, MOST_IF_FOUND)
        if self.done or len(self.answers) >= most:
            return ()
        following = tuple(self._ranking[self.asked : self.asked + count])
        self.asked += len(following)
        return following

    def ended(self, node: NodeId, outcome: NodeAnswer | NearsightError) -> tuple[NodeId, ...]:
        """A node answered or failed; returns the nodes to ask now."""
        if self.done:
            return ()
        if isinstance(outcome, NodeAnswer):
            self.answers[node] = outcome
        else:
            self._failed.add(node)
            self._error = outcome
        return self._go_on()

    def late(self, node: NodeId) -> tuple[NodeId, ...]:
        """A node exceeded its timeout; returns the nodes to ask now."""
        if self.done:
            return ()
        self._late.add(node)
        return self._go_on()

    def outcome(self) -> NodeAnswer:
        """The answers of the nodes, merged.

        Raises
        ------
        NearsightError
            If no node answered, or if no replica answered and the other nodes do not have the key.
        """
        if self.answers.keys().isdisjoint(self._replicas) and not self._found():
            raise self._error or Unavailable("no node was asked")
        entry: Entry | None = None
        for answer in self.answers.values():
            if answer.entry is not None:
                entry = answer.entry if entry is None else merged(entry, answer.entry)
        synchronised = any(answer.synchronised for answer in self.answers.values())
        return NodeAnswer(entry, synchronised, max(answer.wait_ms for answer in self.answers.values()))

    def _go_on(self) -> tuple[NodeId, ...]:
        if any(self._decides(node, answer) for node, answer in self.answers.items()):
            self.done = True
            return ()
        if any(self._is_awaited(node) for node in self._ranking[: self.asked]):
            return ()
        following = self.ask_next()
        # A late replica may be the only one that has the key by now.
        self.done = not following and (self._found() or not any(map(self._is_outstanding, self._replicas)))
        return following

    def _decides(self, node: NodeId, answer: NodeAnswer) -> bool:
        # A node that is no replica may lack the key, or have an earlier state, even if it is synchronised.
        if not answer.synchronised or node not in self._replicas:
            return False
        if answer.entry is not None:
            return True
        if any(map(self._is_awaited, self._ranking[: self._ranking.index(node)])):
            return False
        return node == self._own or (self._claim and answer.wait_ms > 0) or self._is_confirmed(node)

    def _is_confirmed(self, node: NodeId) -> bool:
        """Whether another replica answered or is late, or all others failed."""
        others = self._replicas - {node}
        return others <= self._failed or not others.isdisjoint(self.answers.keys() | self._late)

    def _is_awaited(self, node: NodeId) -> bool:
        return self._is_outstanding(node) and (
            node not in self._late or self._replicas.isdisjoint(self.answers)
        )

    def _is_outstanding(self, node: NodeId) -> bool:
        return node not in self.answers and node not in self._failed

    def _found(self) -> bool:
        return any(answer.entry is not None for answer in self.answers.values())


class QuorumRead:
    """One read in progress.

    Parameters
    ----------
    client : ReplicaCalls
        Calls to the nodes.
    key : str
        The key to read.
    claim : bool
        Whether the caller will produce the value if it is missing.
    """

    def __init__(self, client: ReplicaCalls, key: str, *, claim: bool) -> None:
        self._client = client
        self._key = key
        self._claim = claim
        self._view = client.route.cluster.view
        ranking = self._view.ranking(key)
        self._first = ranking[0]
        self._read = ReadPlan(ranking, client.settings.replicas, own=client.route.own, claim=claim)
        self._lock = threading.Lock()
        self._ends_s = client.clock.monotonic() + client.settings.read_timeout_s
        self._asked_s: dict[NodeId, float] = {}
        """Time of the request to each node that has not answered yet."""
        self._hedged = False
        self._attempt = 1
        self.future: Future[NodeAnswer] = Future()
        """Result: the merged answer of the nodes, or a `NearsightError`."""

    def begin(self) -> None:
        """Ask the first node; also the next one if the first has not answered earlier requests yet."""
        slow = self._hedged = self._client.links.is_slow(self._first)
        with self._lock:
            nodes = self._read.ask_next(2 if slow else 1)
            if slow:
                self._read.late(self._first)
        self._ask(nodes)
        self._watch(first=not slow)

    def ask_first(self) -> NodeAnswer | None:
        """Ask the first node and block; None if the read continues and ends in `future`."""
        client, node = self._client, self._first
        if node == client.route.own or client.links.is_slow(node):
            self.begin()
            return None
        outcome: NodeAnswer | NearsightError
        asked_s = client.clock.monotonic()
        try:
            reply = client.links.ask(node, READ, self._request(), timeout_s=client.first_timeout.seconds)
            outcome = client.answer_of(self._key, reply)
        except DeadlineExceeded:
            client.first_timeout.exhausted()
            client.counts.hedged_reads += 1
            self.begin()  # the peer is marked slow now: two nodes are asked, the first one again
            return None
        except NearsightError as error:
            outcome = error
        else:
            client.first_timeout.answered(client.clock.monotonic() - asked_s)
            if outcome.synchronised and outcome.entry is not None:
                return outcome
        with self._lock:
            self._read.ask_next()
        self._record(node, outcome)
        self._watch(first=True)
        return None

    def _watch(self, *, first: bool = False) -> None:
        if first:
            self._schedule_check(self._client.first_timeout.seconds, doubt=False)
        self._schedule_check(self._client.settings.hedge_s, doubt=True)

    def _schedule_check(self, limit_s: float, *, doubt: bool, waited_s: float = 0.0) -> None:
        if not self._read.done:
            self._client.timers.submit(
                lambda: self._check_late(limit_s, doubt=doubt), after_s=max(0.001, limit_s - waited_s)
            )

    def _check_late(self, limit_s: float, *, doubt: bool) -> None:
        """Mark nodes that were asked at least ``limit_s`` ago as late and slow, and ask one more node.

        If there are no such nodes, check again later.
        """
        client = self._client
        with self._lock:
            now_s = client.clock.monotonic()
            waited_s = {node: now_s - asked_s for node, asked_s in self._asked_s.items()}
            late = [node for node, node_s in waited_s.items() if node_s >= limit_s]
            if self._read.done or not late:
                self._schedule_check(limit_s, doubt=doubt, waited_s=max(waited_s.values(), default=0.0))
                return
            self._hedged = True
            nodes = tuple(following for node in late for following in self._read.late(node))
            ended = self._read.done
            nodes = nodes or self._read.ask_next()
        for node in late:
            client.links.mark_slow(node, doubt=doubt)
        client.first_timeout.exhausted()
        client.counts.hedged_reads += 1
        self._go_on(nodes, ended=ended)
        if nodes and doubt:
            self._watch()

    def _request(self) -> ReadRequest:
        return ReadRequest(keys=[self._key], claim=self._claims_here(), view=self._view.digest)

    def _claims_here(self) -> bool:
        """Whether to claim the key at the next node. With two claims, two readers could both wait."""
        return self._claim and not self._read.answers

    def _ask(self, nodes: Sequence[NodeId]) -> None:
        client = self._client
        for node in nodes:
            if node == client.route.own:
                self._record(node, self._ask_own())
                continue
            now_s = client.clock.monotonic()
            with self._lock:
                self._asked_s[node] = now_s
            timeout_s = max(LEAST_TIMEOUT_S, self._ends_s - now_s)
            decode, ended = partial(client.answer_of, self._key), partial(self._record, node)
            client.call(node, READ, self._request(), timeout_s, decode, ended)

    def _ask_own(self) -> NodeAnswer:
        client = self._client
        client.counts.own_reads += 1
        claim = self._claims_here()
        return client.service.answer(self._key, client.route.own, self._view.digest, claim=claim)

    def _record(self, node: NodeId, outcome: NodeAnswer | NearsightError) -> None:
        """Record the answer or failure of a node, and continue."""
        client = self._client
        with self._lock:
            asked_s = self._asked_s.pop(node, None)
            if asked_s is not None and isinstance(outcome, NodeAnswer) and not self._hedged:
                client.first_timeout.answered(client.clock.monotonic() - asked_s)
            before = self._read.done
            nodes = self._read.ended(node, outcome)
            for slow in [each for each in nodes if client.links.is_slow(each)]:
                nodes += self._read.late(slow)  # it has not answered earlier requests yet
            ended = self._read.done and not before
        self._go_on(nodes, ended=ended)

    def _go_on(self, nodes: Sequence[NodeId], *, ended: bool) -> None:
        self._ask(nodes)
        if not ended:
            return
        try:
            outcome = self._read.outcome()
        except NearsightError as error:
            self._fail(error)
            return
        if self._is_uncertain(outcome):
            self._client.again_later(self._start_over, self._attempt, self._ends_s)
        else:
            self.future.set_result(outcome)

    def _is_uncertain(self, outcome: NodeAnswer) -> bool:
        """Whether the key seems to be missing, but only to nodes that do not agree on the members."""
        agrees = outcome.synchronised or self._client.route.cluster.synchronised(self._view.digest)
        return outcome.entry is None and not (agrees or self._claim)

    def _start_over(self) -> None:
        """Read again with the present view; fails at the end of the time."""
        try:
            self._client.check_open()
            if self._client.clock.monotonic() >= self._ends_s:
                raise Unavailable(
                    f"devices are joining or leaving, and it is not known whether {self._key!r} exists",
                    advice="try again in a moment",
                )
        except NearsightError as error:
            self._fail(error)
            return
        again = QuorumRead(self._client, self._key, claim=False)
        again.future, again._ends_s, again._attempt = self.future, self._ends_s, self._attempt + 1
        again.begin()

    def _fail(self, error: NearsightError) -> None:
        self._client.counts.failed += 1
        self.future.set_exception(error)
