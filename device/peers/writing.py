"""Which nodes a write goes to, and when it is done: events in, nodes to write to out, no network.

A write is done when as many of the nodes that are there took it as there are replicas, in the order of the
key's ranking; a node that fails is replaced by the next. One that refuses is not: if it is full, others would
not be the right place either, and if it lies, it costs one copy and no more. A node that failed although it
is still there in the end must take it after all, or those who ask it first would not find what was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.errors import NearsightError, Unavailable
from nearsight.device.peers.node_id import NodeId


class Write:
    """The course of one write. Not thread-safe.

    Parameters
    ----------
    ranking : sequence of NodeId
        All nodes, the first responsible one first.
    replicas : int
        How many of them are to take it.

    Attributes
    ----------
    done : bool
        Whether `check` may be called.
    """

    def __init__(self, ranking: Sequence[NodeId], replicas: int) -> None:
        self._ranking = ranking
        self._replicas = replicas
        self._next = 0
        self._outstanding: set[NodeId] = set()
        self._taken: set[NodeId] = set()
        self._error: NearsightError | None = None
        self._refused: set[NodeId] = set()
        self.done = False

    @property
    def outstanding(self) -> frozenset[NodeId]:
        """The nodes that have not answered yet."""
        return frozenset(self._outstanding)

    def begin(self) -> tuple[NodeId, ...]:
        """The nodes to write to first."""
        return self._go_on()

    def taken(self, node: NodeId) -> tuple[NodeId, ...]:
        """A node took it; returns the nodes to write to now."""
        self._outstanding.discard(node)
        self._taken.add(node)
        return self._go_on()

    def refused(self, node: NodeId, error: NearsightError) -> tuple[NodeId, ...]:
        """A node does not want it; returns the nodes to write to now."""
        self._outstanding.discard(node)
        self._refused.add(node)
        self._error = error
        return self._go_on()

    def failed(self, node: NodeId, error: NearsightError) -> tuple[NodeId, ...]:
        """A node did not answer; returns the nodes to write to now."""
        self._outstanding.discard(node)
        if not self._refused:
            self._error = error
        return self._go_on()

    def lacking(self, ranking: Sequence[NodeId]) -> tuple[NodeId, ...]:
        """The nodes that should have taken it, as nodes are ranked now, and did not."""
        settled = self._taken | self._refused
        return tuple(node for node in ranking[: self._replicas] if node not in settled)

    def repeat(self, nodes: Sequence[NodeId]) -> None:
        """It is sent to these once more."""
        self._outstanding.update(nodes)
        self.done = not self._outstanding

    def check(self, ranking: Sequence[NodeId]) -> None:
        """Return if one of the nodes that are responsible, as nodes are ranked now, took it.

        Raises
        ------
        NearsightError
            Why not.
        """
        if self._taken.isdisjoint(ranking[: self._replicas]):
            raise self._error or Unavailable("none of the nodes that are responsible could be reached")

    def _go_on(self) -> tuple[NodeId, ...]:
        wanted = self._replicas - len(self._taken | self._refused | self._outstanding)
        following = tuple(self._ranking[self._next : self._next + max(0, wanted)])
        self._next += len(following)
        self._outstanding.update(following)
        self.done = not self._outstanding
        return following
