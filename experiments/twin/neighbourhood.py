"""Devices of the twin that share models: the SDK's own search, claims and sharing, in virtual time.

Each device runs a `CooperativeModelSource` and a `ModelSharing`, wired as in `Cooperation`. This module
simulates the peers that these objects talk to. The same rendezvous hashing maps keys to nodes. A call uses
the uplink of its sender and the downlink of the other device, and takes CPU time on the other device. All
devices of an edge are members, none fails, and a model is sent as its size only. Beacons and the counting of
steps are not simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import TypeVar

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import pending, then
from nearsight.common.catalogue.answers import FetchedModels, Listing
from nearsight.common.errors import InternalError
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.envelope import Buffer
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.model_source import CooperativeModelSource
from nearsight.device.cooperation.sharing import ModelSharing
from nearsight.device.peers.presence.identity import NodeId, random_node_id
from nearsight.device.peers.routing.cluster_view import rank
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.kvstore import ItemsRead
from nearsight.device.peers.store.shared_store import Claims
from nearsight.device.prefetching.controller import PrefetchSources
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.experiments.twin.cloud import message_of
from nearsight.experiments.twin.cost_model import Costs
from nearsight.experiments.twin.edge import EdgeSource
from nearsight.experiments.twin.events import Action
from nearsight.experiments.twin.link import ANSWER_BYTES, REQUEST_BYTES, TwinLink, models_bytes
from nearsight.experiments.twin.processor import Processor, VirtualWorker
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, GetObjectModelsResponse

A = TypeVar("A")

_CATALOGUE = "museum"
_ITEM_BYTES = 20


class TwinNeighbourhood:
    """The devices of one edge, and the content of their shared store.

    Parameters
    ----------
    models : mapping of str to ObjectModel
        The catalogue.
    settings : PeerSettings
        Settings of all devices.
    """

    def __init__(self, models: Mapping[str, ObjectModel], settings: PeerSettings) -> None:
        self.models = models
        self.settings = settings
        self.claims = Claims()
        self.lists: dict[str, dict[bytes, None]] = {}
        self.peers: dict[NodeId, TwinPeer] = {}
        self._nodes_of: dict[str, tuple[NodeId, ...]] = {}

    def join(self, peer: TwinPeer) -> None:
        """Add a device."""
        self.peers[peer.node_id] = peer
        self._nodes_of.clear()

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """The replicas of a key, in the order of their rank."""
        nodes = self._nodes_of.get(key)
        if nodes is None:
            nodes = rank(key, self.peers)[: self.settings.replicas]
            self._nodes_of[key] = nodes
        return nodes[:count]


class TwinPeer:
    """A device that shares: `PrefetchObserver`, `HeldModelsObserver`, `StoreCalls` and `PeerCalls` in one.

    Parameters
    ----------
    neighbourhood : TwinNeighbourhood
        All devices of the edge.
    processor : Processor
        Its cores.
    air : TwinLink
        Its radio.
    costs : Costs
        Its costs.
    held : HeldModels
        Its models.
    upstream : EdgeSource
        Its edge.
    rng : random.Random
        Draws its node id, and the holders that it asks for models.
    """

    def __init__(
        self,
        neighbourhood: TwinNeighbourhood,
        processor: Processor,
        air: TwinLink,
        costs: Costs,
        held: HeldModels,
        upstream: EdgeSource,
        rng: random.Random,
    ) -> None:
        self._events = processor.events
        self._neighbourhood = neighbourhood
        self._processor = processor
        self.air = air
        self._costs = costs
        self._held = held
        self._upstream = upstream
        self.node_id = random_node_id(rng)
        worker = VirtualWorker(processor)
        self._context = CooperationContext(
            _CATALOGUE,
            self.node_id,
            self,
            self,
            lambda: [node for node in neighbourhood.peers if node != self.node_id],
            worker,
            worker,
            rng,
        )
        self._source = CooperativeModelSource(self._context, _Upstream(upstream))
        share = neighbourhood.settings.share
        self._sharing = ModelSharing(
            self._context, "redirect" if share == "off" else share, self._source.came_from_tier
        )
        held.observer = self
        neighbourhood.join(self)

    def sources(self) -> PrefetchSources:
        """Sources for the prefetcher."""
        return PrefetchSources(self, self._upstream, self._upstream, observer=self)

    @property
    def account(self) -> Mapping[str, int]:
        """Counts of models by source; see `CooperationAccount`."""
        return asdict(self._context.account)

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        """Request models from the devices nearby, otherwise from the edge."""
        return then(self._source.get_models(catalogue, object_ids, timeout_s), self._read)

    def _read(self, reply: Reply) -> FetchedModels:
        answer = reply.message
        if not isinstance(answer, GetObjectModelsResponse):
            raise InternalError(f"{type(answer).__name__} is not a response with models")
        models = tuple(self._neighbourhood.models[model.object_id] for model in answer.models)
        missing, left_out = tuple(answer.missing), tuple(answer.left_out)
        return FetchedModels(models, missing, {}, left_out, answer.revision, reply.received_bytes)

    # Notifications from its prefetcher and its models

    def followed(self, previous: str, found: RecognizedObject, features: Features | None) -> None:
        """Ignored: the twin does not count steps."""

    def listed(self, listing: Listing) -> None:
        """Receive a listing of the catalogue."""
        self._context.digests.update(listing)
        self._source.listed()

    def serving(self, models: Sequence[ObjectModel]) -> None:
        """Ignored in the twin."""

    def added(self, model: ObjectModel) -> None:
        """Receive the event that the device stored a model."""
        self._sharing.added(model)

    def dropped(self, model: ObjectModel) -> None:
        """Receive the event that the device evicted a model."""
        self._sharing.dropped(model)

    # The store

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        """Read the holders of a model."""
        (node,) = self.nodes_for(key, 1)
        others = self._neighbourhood

        def read() -> tuple[ItemsRead, int]:
            items = tuple(others.lists.get(key, ()))
            now_s = self._events.now_s
            wait_s = others.claims.claim(key, self.node_id, now_s) if claim and not items else 0.0
            return ItemsRead(items, round(wait_s * 1e3)), ANSWER_BYTES + _ITEM_BYTES * len(items)

        return self._exchange(node, REQUEST_BYTES, read)

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        """Register this device as a holder of a model."""
        del ttl_s  # longer than any run

        def write() -> None:
            self._neighbourhood.lists.setdefault(key, {})[item] = None
            self._neighbourhood.claims.delivered(key)

        return self._write(key, len(item), write)

    def remove(self, key: str, item: bytes) -> Future[None]:
        """Remove this device as a holder of a model."""
        return self._write(key, len(item), lambda: self._neighbourhood.lists.get(key, {}).pop(item, None))

    def _write(self, key: str, size_bytes: int, write: Callable[[], object]) -> Future[None]:
        """Send a change to all replicas of the key; completes when all of them have acknowledged it."""
        nodes = self.nodes_for(key, self._neighbourhood.settings.replicas)
        done: Future[None] = pending()
        left = len(nodes)

        def acknowledged(_told: Future[None]) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set_result(None)

        def change() -> tuple[None, int]:
            write()
            return None, ANSWER_BYTES

        for node in nodes:
            self._exchange(node, REQUEST_BYTES + size_bytes, change).add_done_callback(acknowledged)
        return done

    def merge(self, key: str, counts: Mapping[str, int], *, ttl_s: float | None = None) -> Future[None]:
        """Not supported: the twin's edges never fail, so devices do not count steps."""
        raise NotImplementedError("devices of the twin do not count steps")

    def counts(self, key: str) -> Future[Mapping[str, int]]:
        """Not supported, as `merge`."""
        raise NotImplementedError("devices of the twin do not count steps")

    # Calls

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        """The replicas of a key."""
        return self._neighbourhood.nodes_for(key, count)

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
        """Request models from one device."""
        del method, timeout_s, blobs, catalogue  # there is only one method, and no device fails
        names = request.object_ids if isinstance(request, GetObjectModelsRequest) else ()
        peer = self._neighbourhood.peers[node]

        def answer() -> tuple[Reply, int]:
            reply = peer.serve_models(names)
            return reply, reply.received_bytes

        return self._exchange(node, REQUEST_BYTES, answer)

    def serve_models(self, names: Sequence[str]) -> Reply:
        """Answer a request for models with those that this device holds."""
        models = [model for name in names if (model := self._held.peek(name)) is not None]
        size = models_bytes(models)
        if models:
            self._context.account.add(served_models=len(models), served_bytes=size)
        missing = tuple(name for name in names if name not in self._held)
        return _reply(FetchedModels(tuple(models), missing, {}, (), 0, ANSWER_BYTES + size))

    def _exchange(self, node: NodeId, size_bytes: int, answer: Callable[[], tuple[A, int]]) -> Future[A]:
        """Send a request to a device; ``answer`` runs there and returns the result and its size."""
        future: Future[A] = pending()
        peer = self._neighbourhood.peers[node]
        if peer is self:
            future.set_result(answer()[0])
            return future
        # One way is the uplink of one device and the downlink of the other.
        way_s = self._costs.one_way_s(self._processor.slowness) / 2

        def send(size_bytes: int, sender: TwinPeer, to: TwinPeer, arrived: Action) -> None:
            sender.air.up(size_bytes, lambda: to.air.down(size_bytes, arrived, way_s), way_s)

        def made() -> None:
            result, answer_bytes = answer()
            send(answer_bytes, peer, self, lambda: future.set_result(result))

        send(size_bytes, self, peer, lambda: peer.work(made))
        return future

    def work(self, done: Action) -> None:
        """Spend the CPU time of a small request."""
        self._processor.run(self._costs.small_s, done)


class _Upstream:
    """The edge as a `ModelSource`: models as messages."""

    def __init__(self, edge: EdgeSource) -> None:
        self._edge = edge

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        """Models in the form in which they are sent."""
        return then(self._edge.get_models(catalogue, object_ids, timeout_s), _reply)


def _reply(fetched: FetchedModels) -> Reply:
    """Models as the answer of a Catalogue service."""
    answer = GetObjectModelsResponse(
        models=[message_of(model) for model in fetched.models],
        missing=fetched.missing,
        left_out=fetched.left_out,
        revision=fetched.revision,
    )
    return Reply(answer, (), (), REQUEST_BYTES, fetched.size_bytes)
