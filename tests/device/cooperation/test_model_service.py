"""What a device hands out to its peers: the models that it holds, nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nearsight.common.catalogue.answers import models_of
from nearsight.common.clock import Deadline, ManualClock
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.recognition.codec import model_digest
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.sharing import MOST_MODELS, PeerModelService
from nearsight.device.cooperation.trust import ModelDigest, Verdict, verify
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.protos.catalogue_pb2 import (
    AddObjectsRequest,
    GetObjectModelsRequest,
    ListCataloguesRequest,
    ListObjectsRequest,
    RemoveObjectsRequest,
)
from support.objects import random_model, same_model

MODELS = {name: random_model(name, seed) for seed, name in enumerate("abc")}


class Scene:
    """A device with three models, asked by a peer."""

    def __init__(self) -> None:
        self.held = HeldModels(10**6)
        for model in MODELS.values():
            self.held.put(model, 100)
        self.account = CooperationAccount()
        self.traffic: list[tuple[NodeId, int, int]] = []
        self.service = PeerModelService("museum", self.held, self.account, self.count)

    def count(self, node: NodeId, sent_bytes: int, received_bytes: int) -> None:
        self.traffic.append((node, sent_bytes, received_bytes))

    def context(self, catalogue: str = "museum") -> CallContext:
        deadline = Deadline.after(1.0, ManualClock())
        return CallContext(deadline=deadline, catalogue=catalogue, client_id=shown(NodeId(7)))

    def ask(self, *names: str, catalogue: str = "museum") -> Reply:
        context = self.context(catalogue)
        response = self.service.get_object_models(GetObjectModelsRequest(object_ids=names), context)
        return Reply(response, tuple(map(memoryview, context.response_blobs)), (), 0, 100)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_models_that_are_held_are_handed_out_and_counted(scene: Scene) -> None:
    reply = scene.ask("c", "x", "a", "c")
    fetched = models_of(reply, ["c", "x", "a"])
    assert [model.object_id for model in fetched.models] == ["c", "a"]
    assert fetched.missing == ("x",)
    assert all(same_model(model, MODELS[model.object_id]) for model in fetched.models)
    account = scene.account
    assert account.served_models == 2
    assert account.served_bytes >= 2 * 40 * (4 + 32 + 2)


def test_what_is_handed_out_is_traffic_with_the_one_who_asked(scene: Scene) -> None:
    reply = scene.ask("c", "x")
    ((node, sent_bytes, received_bytes),) = scene.traffic
    assert node == NodeId(7)
    assert sent_bytes == reply.message.ByteSize() + sum(map(len, reply.blobs))
    assert received_bytes == GetObjectModelsRequest(object_ids=["c", "x"]).ByteSize()


def test_what_is_handed_out_passes_the_judgement_of_others(scene: Scene) -> None:
    right = ModelDigest(1, model_digest(MODELS["a"]))
    assert verify(scene.ask("a"), "a", right, 10**6) is Verdict.RIGHT
    assert verify(scene.ask("x"), "x", right, 10**6) is Verdict.MISSING
    assert verify(scene.ask("b"), "b", right, 10**6) is Verdict.WRONG
    assert verify(scene.ask("a"), "a", ModelDigest(2, right.digest), 10**6) is Verdict.OUTDATED
    assert verify(scene.ask("a"), "a", right, 99) is Verdict.WRONG


def test_handing_out_does_not_count_as_use(scene: Scene) -> None:
    small = HeldModels(2 * MODELS["a"].size_bytes)
    scene.service = PeerModelService("museum", small, scene.account, scene.count)
    small.put(MODELS["a"], 100)
    small.put(MODELS["b"], 100)
    scene.ask("a")
    assert small.put(MODELS["c"], 100) == {"a"}


def test_other_catalogues_and_too_many_ids_are_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        scene.ask("a", catalogue="library")
    with pytest.raises(InvalidArgument):
        scene.ask(*map(str, range(MOST_MODELS + 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda scene: scene.service.list_objects(ListObjectsRequest(), scene.context()),
        lambda scene: scene.service.list_catalogues(ListCataloguesRequest(), scene.context()),
        lambda scene: scene.service.add_objects(AddObjectsRequest(), scene.context()),
        lambda scene: scene.service.remove_objects(RemoveObjectsRequest(), scene.context()),
    ],
)
def test_everything_else_is_refused(scene: Scene, call: Callable[[Scene], object]) -> None:
    with pytest.raises(InvalidArgument, match="no more"):
        call(scene)
