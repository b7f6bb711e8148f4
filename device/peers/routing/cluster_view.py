"""The view of one node: the nodes of the cluster, and whether this node's keys are complete.

Nodes with equal views compute the same replicas for each key without communication, by rendezvous hashing
(highest random weight, 5.3.3.1). When a node joins or leaves, only the keys for which it is ranked high
enough move. The digest of a `View` identifies it. After every change each node offers to all others the
entries that they should hold, and then reports *complete* for the view by its digest. A node is
*synchronised* when every other node has reported complete for the view of this node. Only then does a missing
entry prove that the key does not exist. Nodes with different views are not synchronised with each other for a
while; this has no other effect.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import xxhash

from nearsight.device.peers.presence.identity import NodeId

_MOST_STRANGERS = 4096
_REMEMBERED_RANKINGS = 4096


def rank(key: str, nodes: Collection[NodeId]) -> tuple[NodeId, ...]:
    """All nodes, the most responsible one for the key first; independent of their order in ``nodes``.

    The weight of a node is the XXH3 hash of the key, seeded with the node's id.
    """
    data, weight = key.encode(), xxhash.xxh3_64_intdigest
    weighted = [(weight(data, node), node) for node in nodes]
    return tuple(node for _, node in sorted(weighted, reverse=True))


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that one node has as members, including itself."""

    incarnations: Mapping[NodeId, int]
    """The incarnation of each node."""
    nodes: frozenset[NodeId]
    """All nodes."""
    digest: int
    """Equal for equal nodes and incarnations; never 0."""
    _rankings: dict[str, tuple[NodeId, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, own: NodeId, incarnation: int, others: Iterable[tuple[NodeId, int]]) -> View:
        """The view of node ``own`` with its peers ``others``, each with its incarnation."""
        incarnations = {own: incarnation, **{node: number for node, number in others if node != own}}
        packed = b"".join(struct.pack(">QQ", *item) for item in sorted(incarnations.items()))
        return cls(incarnations, frozenset(incarnations), xxhash.xxh3_64_intdigest(packed) or 1)

    def ranking(self, key: str) -> tuple[NodeId, ...]:
        """All nodes for a key, the most responsible one first."""
        ranking = self._rankings.get(key)
        if ranking is None:
            if len(self._rankings) >= _REMEMBERED_RANKINGS:
                self._rankings.clear()
            ranking = self._rankings[key] = rank(key, self.nodes)
        return ranking


class ClusterView:
    """The current view of one node, and the completion reports of the others. Thread-safe.

    Parameters
    ----------
    own : NodeId
        This node.
    view : View
        Its first view.
    """

    def __init__(self, own: NodeId, view: View) -> None:
        self.own = own
        self.view = view
        """The current view."""
        self.synchronised_view: View | None = None
        """The current view if this node's keys are complete, else None."""
        self._lock = threading.Lock()
        self._completed: dict[NodeId, int] = {}
        self._refresh()

    def update(self, view: View) -> None:
        """Replace the view after the membership changed."""
        with self._lock:
            for node in self.view.nodes - view.nodes:
                # Reports of nodes that are not yet in the view are kept: a node may report before it is seen.
                self._completed.pop(node, None)
            self.view = view
            self._refresh()

    def complete(self, node: NodeId, view_digest: int) -> None:
        """Record that ``node`` has offered all entries for this node in the view with this digest."""
        with self._lock:
            if node in self.view.nodes or len(self._completed) < _MOST_STRANGERS:
                self._completed[node] = view_digest
            self._refresh()

    def discard_reports(self) -> None:
        """Discard all reports: they may be outdated after a suspension or a change of the address."""
        with self._lock:
            self._completed.clear()
            self._refresh()

    def synchronised(self, view_digest: int) -> bool:
        """Whether this node's keys are complete, for a node with this view."""
        view = self.synchronised_view
        return view is not None and view.digest == view_digest

    def missing(self) -> tuple[NodeId, ...]:
        """The nodes that have not reported completion for the current view."""
        with self._lock:
            return tuple(self._missing())

    def _refresh(self) -> None:
        self.synchronised_view = None if self._missing() else self.view

    def _missing(self) -> list[NodeId]:
        digest = self.view.digest
        others = (node for node in self.view.nodes if node != self.own)
        return [node for node in others if self._completed.get(node) != digest]
