"""Who is there, as one node sees it, and whether that node's keys are complete.

Nodes agree on the place of each key without talking, as long as they see the same nodes. A `View` is what one
of them sees, and its digest tells two of them apart. After every change each node offers all others what is
theirs now and then says that it is through (*complete*), naming the view for which that holds. A node is
*settled* when every other node has said so for the very view that it has itself: only then is a missing key
known not to exist. Nodes that see different peers for a while are merely unsettled to each other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import xxhash

from nearsight.device.peers.node_id import NodeId


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that one of them sees, itself among them.

    Parameters
    ----------
    incarnations : mapping of NodeId to int
        The process behind each node.
    nodes : frozenset of NodeId
        All of them.
    digest : int
        Equal for equal nodes and incarnations; never 0.
    """

    incarnations: Mapping[NodeId, int]
    nodes: frozenset[NodeId]
    digest: int

    @classmethod
    def of(cls, own: NodeId, incarnation: int, others: Iterable[tuple[NodeId, int]]) -> View:
        """The view of node ``own``, which sees ``others``, each with its incarnation."""
        incarnations = {own: incarnation, **{node: number for node, number in others if node != own}}
        packed = b"".join(struct.pack(">QQ", *item) for item in sorted(incarnations.items()))
        return cls(incarnations, frozenset(incarnations), xxhash.xxh3_64_intdigest(packed) or 1)


class Settling:
    """Which nodes have offered everything. Not thread-safe.

    Parameters
    ----------
    own : NodeId
        The node that is settled, or not.
    """

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._completed: dict[NodeId, int] = {}

    def complete(self, node: NodeId, view_digest: int) -> None:
        """Node ``node`` has offered everything that belongs here, given the view named."""
        self._completed[node] = view_digest

    def forget(self) -> None:
        """This node was asleep: what the others said may be outdated."""
        self._completed.clear()

    def keep(self, nodes: frozenset[NodeId]) -> None:
        """Forget all other nodes."""
        for node in self._completed.keys() - nodes:
            del self._completed[node]

    def missing(self, view: View) -> tuple[NodeId, ...]:
        """The nodes that have yet to offer everything."""
        return tuple(
            node for node in view.nodes if node != self._own and self._completed.get(node) != view.digest
        )

    def settled(self, view: View) -> bool:
        """Whether no node is missing."""
        return not self.missing(view)
