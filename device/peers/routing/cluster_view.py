"""Which nodes are there, as one node sees it, and whether that node's keys are complete.

Nodes that see the same nodes agree on the place of each key without talking. A `View` is what one of them
sees; its digest tells two views apart. After every change each node offers to all others the entries that
belong there, and then reports *complete* for the view by its digest. A node is *synchronised* when every
other node has reported complete for the view that it has itself: only then is a missing key known not to
exist. Nodes that see different peers for a while are not synchronised with each other; nothing else happens.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import xxhash

from nearsight.device.peers.presence.identity import NodeId

_MOST_STRANGERS = 4096


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that one of them sees, itself among them."""

    incarnations: Mapping[NodeId, int]
    """The process behind each node."""
    nodes: frozenset[NodeId]
    """All of them."""
    digest: int
    """Equal for equal nodes and incarnations; never 0."""

    @classmethod
    def of(cls, own: NodeId, incarnation: int, others: Iterable[tuple[NodeId, int]]) -> View:
        """The view of node ``own``, which sees ``others``, each with its incarnation."""
        incarnations = {own: incarnation, **{node: number for node, number in others if node != own}}
        packed = b"".join(struct.pack(">QQ", *item) for item in sorted(incarnations.items()))
        return cls(incarnations, frozenset(incarnations), xxhash.xxh3_64_intdigest(packed) or 1)


class ClusterView:
    """What one node sees, and whether the others have offered it everything. Thread-safe.

    Parameters
    ----------
    own : NodeId
        That node.
    view : View
        The nodes that it sees at first.
    """

    def __init__(self, own: NodeId, view: View) -> None:
        self.own = own
        self.view = view
        """Who is there."""
        self.synchronised_view: View | None = None
        """The same, if this node's keys are complete."""
        self._lock = threading.Lock()
        self._completed: dict[NodeId, int] = {}
        self._refresh()

    def update(self, view: View) -> None:
        """Other nodes are there now."""
        with self._lock:
            for node in self.view.nodes - view.nodes:
                # Not those that are not seen yet: they may be through before they are.
                self._completed.pop(node, None)
            self.view = view
            self._refresh()

    def complete(self, node: NodeId, view_digest: int) -> None:
        """Node ``node`` has offered everything that belongs here, given the view named."""
        with self._lock:
            if node in self.view.nodes or len(self._completed) < _MOST_STRANGERS:
                self._completed[node] = view_digest
            self._refresh()

    def forget(self) -> None:
        """This node was asleep: what the others said may be outdated."""
        with self._lock:
            self._completed.clear()
            self._refresh()

    def synchronised(self, view_digest: int) -> bool:
        """Whether this node's keys are complete, for a node that sees the view named."""
        view = self.synchronised_view
        return view is not None and view.digest == view_digest

    def missing(self) -> tuple[NodeId, ...]:
        """The nodes that have yet to offer everything."""
        with self._lock:
            return tuple(self._missing())

    def _refresh(self) -> None:
        self.synchronised_view = None if self._missing() else self.view

    def _missing(self) -> list[NodeId]:
        digest = self.view.digest
        others = (node for node in self.view.nodes if node != self.own)
        return [node for node in others if self._completed.get(node) != digest]
