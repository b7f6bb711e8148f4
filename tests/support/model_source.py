"""A `CooperativeModelSource` whose store, peers and tiers are simulated by the test."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.catalogue.answers import Listing, models_of
from nearsight.common.clock import ManualClock
from nearsight.common.errors import NearsightError
from nearsight.common.recognition.codec import model_digest, object_model_to_proto
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Hop, Reply
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.model_source import MODEL_TIMEOUT_S, CooperativeModelSource
from nearsight.device.cooperation.protocol import holder_item, model_key
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.store.kvstore import ItemsRead
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ObjectSummary
from support.manual_background import ManualBackground
from support.objects import random_model

RIGHT = random_model("a")
KEY = model_key("museum", "a", 1)
FIRST, SECOND, THIRD = NodeId(1), NodeId(2), NodeId(3)


def reply(*models: ObjectModel, hops: tuple[Hop, ...] = (), size_bytes: int = 4000) -> Reply:
    response, blobs = GetObjectModelsResponse(revision=99), []
    for model in models:
        message, added = object_model_to_proto(model, len(blobs))
        response.models.append(message)
        blobs += added
    return Reply(response, tuple(map(memoryview, blobs)), hops, 10, size_bytes)


def listing(*models: ObjectModel, revision: int = 5) -> Listing:
    entries = tuple(
        ObjectSummary(object_id=m.object_id, version=m.version, model_digest=model_digest(m)) for m in models
    )
    return Listing({m.object_id: m.version for m in models}, revision, entries)


class Scene:
    """One device whose store, peers and tiers are simulated by the test."""

    def __init__(self, *, listed: bool = True) -> None:
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.neighbours = [FIRST, SECOND, THIRD]
        self.reads: list[Future[ItemsRead]] = []
        self.claims: list[bool] = []
        self.calls: list[tuple[NodeId, Future[Reply]]] = []
        self.tier: list[Future[Reply]] = []
        self.context = CooperationContext(
            "museum",
            NodeId(9),
            self,
            self,
            lambda: self.neighbours,
            self.background,
            self.clock,
            random.Random(1),
        )
        self.digests, self.account = self.context.digests, self.context.account
        if listed:
            self.digests.update(listing(RIGHT))
        self.source = CooperativeModelSource(self.context, self)

    # Simulates the store, a route and a tier.

    def items(self, key: str, *, claim: bool = False) -> Future[ItemsRead]:
        assert key == KEY
        self.claims.append(claim)
        self.reads.append(Future())
        return self.reads[-1]

    def append(self, *_: object, **__: object) -> Future[None]:
        raise NotImplementedError

    remove = merge = counts = append

    def nodes_for(self, key: str, count: int) -> tuple[NodeId, ...]:
        assert (key, count) == (KEY, 1)
        return (THIRD,)

    def call(
        self,
        node: NodeId,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        catalogue: str,
    ) -> Future[Reply]:
        assert (method.name, catalogue) == ("GetObjectModels", "museum")
        assert 0 < timeout_s <= MODEL_TIMEOUT_S
        self.calls.append((node, Future()))
        return self.calls[-1][1]

    def get_models(self, catalogue: str, object_ids: Sequence[str], timeout_s: float) -> Future[Reply]:
        assert (catalogue, tuple(object_ids)) == ("museum", ("a",))
        assert 0 < timeout_s <= 10
        self.tier.append(Future())
        return self.tier[-1]

    # Methods for the test.

    def ask(self) -> Future[Reply]:
        result = self.source.get_models("museum", ["a"], 10.0)
        self.background.run()
        return result

    def store_answers(self, *items: bytes, wait_ms: int = 0) -> None:
        self.reads[-1].set_result(ItemsRead(items, wait_ms))
        self.background.run()

    def peer_answers(self, outcome: Reply | NearsightError) -> None:
        future = self.calls[-1][1]
        future.set_exception(outcome) if isinstance(outcome, NearsightError) else future.set_result(outcome)
        self.background.run()

    def tier_answers(self, model: ObjectModel, tier: str = "edge") -> None:
        self.tier[-1].set_result(reply(model, hops=(Hop("cloud"), Hop(tier))))
        self.background.run()

    def holders(self, *nodes: NodeId) -> None:
        self.store_answers(*map(holder_item, nodes))


def model_in(result: Future[Reply]) -> ObjectModel:
    (model,) = models_of(result.result(0), ["a"]).models
    return model


def forged(model: ObjectModel) -> ObjectModel:
    """A model with the features of another object under the name of this one."""
    return replace(model, views=random_model("b", seed=7).views)
