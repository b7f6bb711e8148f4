"""Which nodes a read asks, and when it knows the answer: events in, nodes to ask out, no network.

The node that comes first for a key answers alone, as long as it is *settled*: what it holds is all there is.
While nodes come and go it may be incomplete; then the next is asked too and what they hold is merged. A node
that fails is passed over. One that does not answer soon is *late*: it no longer holds up the read as soon as
another replica has answered. But that there is nothing is believed of a settled replica alone, or when no
replica owes its answer any more: late is better than wrong.

And another replica is asked whether it is so: one that lost a key, or denies it, must not hide it. That costs
a second round trip where there is nothing, and no longer than answers take: who is late is not waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearsight.common.errors import NearsightError, Unavailable
from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.values import Entry, merged

MORE_IF_FOUND = 1
MORE_IF_MISSING = 4
"""How many nodes beyond the replicas are asked while none is settled."""
MOST_IF_FOUND = 3
"""Of many replicas that are not settled, so many are enough: their writers waited for all of them."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node says about a key.

    Parameters
    ----------
    entry : Entry or None
        Its state there, if any.
    settled : bool
        The node's keys are complete.
    wait_ms : int
        Somebody else produces the value, and needs about so long.
    """

    entry: Entry | None
    settled: bool
    wait_ms: int = 0


class Read:
    """The course of one read. Not thread-safe.

    Parameters
    ----------
    ranking : sequence of NodeId
        All nodes, the first responsible one first; not empty.
    replicas : int
        How many of them hold each key. While none is settled, one more is asked, the one that held the key
        before the latest came (of many replicas three in all), and some more if none knows the key: several
        may have come at once.
    own : NodeId or None
        The node that reads; nobody need confirm what it says itself.
    claim : bool
        Whether it would produce what is missing: then it may be told to wait for who does so already.

    Attributes
    ----------
    asked : int
        How many nodes were asked so far.
    done : bool
        Whether `outcome` may be called.
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
        self.done = False

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
        """What the nodes said, merged.

        Raises
        ------
        NearsightError
            If none of them answered.
        """
        if not self._answers:
            raise self._error or Unavailable("no node was asked")
        entry: Entry | None = None
        for answer in self._answers.values():
            if answer.entry is not None:
                entry = answer.entry if entry is None else merged(entry, answer.entry)
        settled = any(answer.settled for answer in self._answers.values())
        return NodeAnswer(entry, settled, max(answer.wait_ms for answer in self._answers.values()))

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
        if not answer.settled:
            return False
        if answer.entry is not None:
            return True
        before = self._ranking[: self._ranking.index(node)]
        # Who is no replica need not have it, however complete its own keys are.
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
