"""Entries to send to each node after a membership change, so that all replicas hold them (5.4.2).

A node that holds an entry offers it to its new replicas. A node that is no replica offers it to all replicas,
and may drop it once each of them has it. If the membership changes again before a plan is completed, the next
plan repeats the unfinished offers.

Devices may have different views for a while. All compute the same ranking, so a node that drops an entry
leaves it to nodes with a higher rank: two nodes never rely on each other's copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.kroute import rank

MOST_BEFORE = 8
"""Maximum number of former placements that a plan considers; with more, everything is offered."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The replicas of keys in a set of nodes: for each key the first nodes of its ranking."""

    nodes: frozenset[NodeId]
    """All nodes of a view; without this device when it leaves."""
    count: int
    """Number of replicas of each key."""

    def replicas(self, key: str) -> tuple[NodeId, ...]:
        """The replicas of the key, the most responsible one first."""
        return rank(key, self.nodes)[: self.count]


class HandoverPlan:
    """The entries that one device must offer, and may drop afterwards. Not thread-safe.

    Parameters
    ----------
    own : NodeId
        This device.
    keys : Iterable[str]
        All keys that it holds.
    before : tuple[Placement, ...]
        The last placement in which every key was on its replicas, and all placements since then. Empty:
        nothing is known, and everything is offered to all replicas.
    after : Placement
        The current placement.
    """

    def __init__(
        self, own: NodeId, keys: Iterable[str], before: tuple[Placement, ...], after: Placement
    ) -> None:
        self._own = own
        self._before = before if len(before) <= MOST_BEFORE else ()
        self._after = after
        self._offers: dict[NodeId, dict[str, None]] = {}
        self._spare: dict[str, set[NodeId]] = {}
        self._droppable: set[str] = set()
        later = []
        for key in keys:
            replicas = set(after.replicas(key))
            having = self._having(key) & replicas
            self._offer(key, replicas - having)
            if own not in replicas and replicas:
                later.append((key, having))
        # Nodes that should have an entry already come last, as a device that leaves may run out of time.
        for key, having in later:
            self._offer(key, having)
            self._spare[key] = set(after.replicas(key))

    def receivers(self) -> tuple[NodeId, ...]:
        """The nodes with open offers."""
        return tuple(self._offers)

    def offers(self, node: NodeId) -> tuple[str, ...]:
        """The keys with open offers to a node; those that it cannot have yet come first."""
        return tuple(self._offers.get(node, ()))

    def add(self, key: str) -> None:
        """Add an entry that arrived or changed since; it is unknown which nodes have it."""
        replicas = set(self._after.replicas(key))
        self._offer(key, replicas)
        self._droppable.discard(key)
        if self._own not in replicas and replicas:
            self._spare[key] = replicas

    def confirmed(self, node: NodeId, keys: Iterable[str]) -> None:
        """Record that the node has these entries: it did not request them, or accepted them."""
        for key in self._close(node, keys):
            waiting = self._spare.get(key)
            if waiting is None:
                continue
            waiting.discard(node)
            if not waiting:
                del self._spare[key]
                self._droppable.add(key)

    def refused(self, node: NodeId, keys: Iterable[str]) -> None:
        """Record that the node refused these entries: this plan neither offers them again nor drops them."""
        for key in self._close(node, keys):
            self._spare.pop(key, None)

    def droppable(self) -> frozenset[str]:
        """Keys of which this device is no replica, and which all replicas hold."""
        return frozenset(self._droppable)

    def _having(self, key: str) -> set[NodeId]:
        """Nodes that were replicas of the key in all placements of ``before``."""
        if not self._before:
            return set()
        return set.intersection(*(set(placement.replicas(key)) for placement in self._before))

    def _offer(self, key: str, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            if node != self._own:
                self._offers.setdefault(node, {})[key] = None

    def _close(self, node: NodeId, keys: Iterable[str]) -> list[str]:
        offered = self._offers.get(node, {})
        closed = [key for key in keys if key in offered]
        for key in closed:
            del offered[key]
        if not offered:
            self._offers.pop(node, None)
        return closed
