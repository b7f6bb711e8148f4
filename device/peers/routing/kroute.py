"""Selects the devices responsible for a key: equal for all devices with the same view (5.3.3.1, 5.4.2).

Rendezvous hashing (highest random weight): every device computes the same ranking of its view's nodes for a
key, without communication. When a node joins or leaves, only the keys for which it is ranked high enough
move. Messages are not forwarded: each call goes to its receiver directly.
"""

from __future__ import annotations

from collections.abc import Collection

import xxhash

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.cluster_view import ClusterView, View
from nearsight.device.peers.routing.connections import PeerConnections

_REMEMBERED_RANKINGS = 4096


def rank(key: str, nodes: Collection[NodeId]) -> tuple[NodeId, ...]:
    """All nodes, the most responsible one for the key first; independent of their order in ``nodes``.

    The weight of a node is the XXH3 hash of the key, seeded with the node's id.
    """
    data, weight = key.encode(), xxhash.xxh3_64_intdigest
    weighted = [(weight(data, node), node) for node in nodes]
    return tuple(node for _, node in sorted(weighted, reverse=True))


class KRoute:
    """The nodes that are responsible for a key now, and calls to them. Thread-safe.

    Parameters
    ----------
    cluster : ClusterView
        The current view.
    connections : PeerConnections
        Carry the calls: ``call`` is `PeerConnections.call`.
    """

    def __init__(self, cluster: ClusterView, connections: PeerConnections) -> None:
        self.own = cluster.own
        self.cluster = cluster
        self.connections = connections
        self.call = connections.call
        self._rankings: tuple[View, dict[str, tuple[NodeId, ...]]] = (cluster.view, {})

    def ranking(self, key: str, view: View | None = None) -> tuple[NodeId, ...]:
        """All nodes for a key, the most responsible one first; in the current view unless one is given."""
        view = view or self.cluster.view
        known_view, known = self._rankings
        if known_view is not view:
            known = {}
            self._rankings = (view, known)
        ranking = known.get(key)
        if ranking is None:
            ranking = rank(key, view.nodes)
            if len(known) >= _REMEMBERED_RANKINGS:
                known.clear()
            known[key] = ranking
        return ranking

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """The ``count`` nodes responsible for a key, or all if there are fewer; may include this node."""
        return self.ranking(key)[:count]
