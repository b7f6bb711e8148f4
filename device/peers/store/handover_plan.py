"""Which entries go to which nodes when nodes come and go, so that replicas hold each entry (5.4.2).

A node that holds an entry offers it to the replicas that are new. A node that is no replica offers it to all
of them, and may drop it once each of them has it. If membership changes again before a plan is done, the next
plan offers what was still open again.

Devices may see different nodes for a while. All rank alike, so a node that drops an entry leaves it with
nodes that rank above itself: no two nodes ever rely on each other's copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.kroute import rank

_MAX_BEFORE = 8


@dataclass(frozen=True, slots=True)
class Placement:
    """Where keys belong: the first replicas among these nodes."""

    nodes: frozenset[NodeId]
    """All that are there; without this device when it leaves."""
    count: int
    """Replicas of each key."""

    def replicas(self, key: str) -> tuple[NodeId, ...]:
        """The replicas of the key, the first one first."""
        return rank(key, self.nodes)[: self.count]


class HandoverPlan:
    """The entries that one device has to offer, and may drop afterwards. Not thread-safe.

    Parameters
    ----------
    own : NodeId
        This device.
    keys : Iterable[str]
        All that it holds.
    before : tuple[Placement, ...]
        The last placement in which every key was known to be, and those that came since. Empty: nothing is
        known, so that everything is offered to all replicas.
    after : Placement
        Where keys belong now.
    """

    def __init__(
        self, own: NodeId, keys: Iterable[str], before: tuple[Placement, ...], after: Placement
    ) -> None:
        self._own = own
        self._before = before if len(before) <= _MAX_BEFORE else ()
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
        # Nodes that should have an entry already are asked last: a device that leaves may not have the time.
        for key, having in later:
            self._offer(key, having)
            self._spare[key] = set(after.replicas(key))

    def receivers(self) -> tuple[NodeId, ...]:
        """Those that something is left to offer to."""
        return tuple(self._offers)

    def offers(self, node: NodeId) -> tuple[str, ...]:
        """Keys that are left to offer to a node; first those that it cannot have yet."""
        return tuple(self._offers.get(node, ()))

    def add(self, key: str) -> None:
        """An entry came or changed in the meantime: it is not known which nodes have it."""
        replicas = set(self._after.replicas(key))
        self._offer(key, replicas)
        self._droppable.discard(key)
        if self._own not in replicas and replicas:
            self._spare[key] = replicas

    def confirmed(self, node: NodeId, keys: Iterable[str]) -> None:
        """The node has these entries: it did not want them, or it took them."""
        for key in self._close(node, keys):
            waiting = self._spare.get(key)
            if waiting is None:
                continue
            waiting.discard(node)
            if not waiting:
                del self._spare[key]
                self._droppable.add(key)

    def refused(self, node: NodeId, keys: Iterable[str]) -> None:
        """The node does not take these: they are not offered again by this plan, and not dropped."""
        for key in self._close(node, keys):
            self._spare.pop(key, None)

    def droppable(self) -> frozenset[str]:
        """Keys of which this device is no replica, and which all replicas have."""
        return frozenset(self._droppable)

    def _having(self, key: str) -> set[NodeId]:
        """Nodes that were replicas of the key all the time."""
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
