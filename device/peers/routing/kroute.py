"""The devices responsible for a key: equal for all devices with the same view (5.3.3.1, 5.4.2).

Messages are not forwarded: each call goes to its receiver directly.
"""

from __future__ import annotations

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.cluster_view import ClusterView
from nearsight.device.peers.routing.connections import PeerConnections


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

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """The ``count`` nodes responsible for a key, or all if there are fewer; may include this node."""
        return self.cluster.view.ranking(key)[:count]
