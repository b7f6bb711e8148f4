"""Communication addressed by key: all who name the same key talk to the same devices (5.3.3.1, 5.4.2).

Rendezvous hashing (highest random weight): every device ranks the nodes that it sees for a key in the same
order, without any agreement. When a node comes or goes, only the keys for which it ranks move. Nothing is
forwarded: each call goes to its receiver directly, and one to the own node does not use the network.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import xxhash
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import failed, pending, then
from nearsight.common.clock import Clock, Deadline
from nearsight.common.errors import InternalError, NearsightError
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.service import CallContext, Dispatcher, Service
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.routing.cluster_view import ClusterView, View
from nearsight.device.peers.routing.connections import PeerConnections

_REMEMBERED_RANKINGS = 4096


class OwnServices:
    """Serves calls of this device to itself, as its server would.

    Parameters
    ----------
    services : sequence of Service
        The very objects that the server has.
    own : NodeId
        Who calls.
    public_key : str or None
        What it could prove.
    clock : Clock
        Time of deadlines.
    """

    def __init__(
        self, services: Sequence[Service], own: NodeId, public_key: str | None, clock: Clock
    ) -> None:
        self._dispatcher = Dispatcher(services)
        self._own = own
        self._public_key = public_key
        self._clock = clock

    def call(
        self,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
    ) -> Future[Reply]:
        """Run the handler in this thread."""
        context = CallContext(
            deadline=Deadline.after(timeout_s, self._clock),
            client_id=shown(self._own),
            catalogue=catalogue,
            peer_key=self._public_key,
            blobs=[memoryview(blob).toreadonly() for blob in blobs],
        )
        try:
            endpoint = self._dispatcher.find(method.containing_service.full_name, method.name)
            result = endpoint.handler(request, context)
        except NearsightError as error:
            return failed(error)
        except Exception as error:  # noqa: BLE001  # as for a peer: a bug in a handler is its own affair
            return failed(InternalError(f"{method.full_name} failed: {type(error).__name__}"))
        if isinstance(result, Future):
            return then(result, lambda message: _reply(message, context))
        future: Future[Reply] = pending()
        future.set_result(_reply(result, context))
        return future


def _reply(message: Message, context: CallContext) -> Reply:
    blobs = tuple(memoryview(blob).toreadonly() for blob in context.response_blobs)
    return Reply(message, blobs, tuple(context.hops), 0, 0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How calls reach nodes: others over links, the own one directly."""

    links: PeerConnections
    own_services: OwnServices


class KRoute:
    """Calls to the nodes that are responsible for a key. Thread-safe.

    Parameters
    ----------
    own : NodeId
        This device.
    cluster : ClusterView
        Who is there.
    delivery : Delivery
        Carries the calls.
    """

    def __init__(self, own: NodeId, cluster: ClusterView, delivery: Delivery) -> None:
        self.own = own
        self._cluster = cluster
        self._delivery = delivery
        self._router = RendezvousRouter()
        self._rankings: tuple[View, dict[str, tuple[NodeId, ...]]] = (cluster.view, {})

    @property
    def view(self) -> View:
        """Who is there."""
        return self._cluster.view

    def ranking(self, key: str, view: View | None = None) -> tuple[NodeId, ...]:
        """All nodes for a key, the first responsible one first."""
        view = view or self._cluster.view
        known_view, known = self._rankings
        if known_view is not view:
            known = {}
            self._rankings = (view, known)
        ranking = known.get(key)
        if ranking is None:
            ranking = self._router.rank(key, view.nodes)
            if len(known) >= _REMEMBERED_RANKINGS:
                known.clear()
            known[key] = ranking
        return ranking

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """The ``count`` nodes responsible for a key, fewer if there are fewer; this one may be among them."""
        return self.ranking(key)[:count]

    def call(
        self,
        node: NodeId,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
    ) -> Future[Reply]:
        """Begin a call to a node, this one included. The future fails with a `NearsightError`."""
        if node == self.own:
            return self._delivery.own_services.call(
                method, request, timeout_s=timeout_s, blobs=blobs, catalogue=catalogue
            )
        return self._delivery.links.call(
            node, method, request, timeout_s=timeout_s, blobs=blobs, catalogue=catalogue
        )

    def send(
        self,
        key: str,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        replicas: int = 1,
        blobs: Sequence[Buffer] = (),
    ) -> tuple[Future[Reply], ...]:
        """Begin a call to each of the first ``replicas`` nodes responsible for a key."""
        return tuple(
            self.call(node, method, request, timeout_s=timeout_s, blobs=blobs)
            for node in self.nodes_for(key, replicas)
        )


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
