"""Which devices hold a key: rendezvous hashing, also known as highest random weight (dissertation 5.3.3.1).

Everybody who knows the same nodes ranks them alike for a key, without a word to each other. When a node comes
or goes, only the keys that it is ranked for move: the others keep their order.
"""

from __future__ import annotations

from collections.abc import Collection

import xxhash

from nearsight.device.peers.node_id import NodeId


class RendezvousRouter:
    """Ranks nodes for keys by h(key, node) = XXH3 of the key, seeded with the node's id.

    Notes
    -----
    Holds no state. Ranking 50 nodes takes microseconds: no need to keep rankings in step with the nodes.
    """

    def rank(self, key: str, nodes: Collection[NodeId]) -> tuple[NodeId, ...]:
        """All nodes, the one most responsible for the key first; whatever order they are given in."""
        return tuple(node for _, node in sorted(_weighted(key, nodes), reverse=True))

    def replicas(self, key: str, nodes: Collection[NodeId], count: int) -> tuple[NodeId, ...]:
        """The first ``count`` of the ranking, or all if there are fewer."""
        if count == 1 and nodes:
            return (max(_weighted(key, nodes))[1],)
        return self.rank(key, nodes)[:count]


def _weighted(key: str, nodes: Collection[NodeId]) -> list[tuple[int, NodeId]]:
    data, weight = key.encode(), xxhash.xxh3_64_intdigest
    return [(weight(data, node), node) for node in nodes]
