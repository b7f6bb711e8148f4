"""Announcements of this device's models in the store, and serving them to peers."""

import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

import pytest

from nearsight.common.catalogue.answers import models_of
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument, NotFound, Unavailable
from nearsight.common.recognition.codec import model_digest, object_model_to_bytes
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext, Deadline
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.context import CooperationContext
from nearsight.device.cooperation.protocol import holder_item, model_item, model_key
from nearsight.device.cooperation.sharing import LIFE_S, MOST_MODELS, RENEW_S, ModelSharing, PeerModelService
from nearsight.device.cooperation.trust import ModelDigest, Verdict, verify
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.routing.connections import TrafficByPeer
from nearsight.device.prefetching.held_models import HeldModels
from nearsight.protos.catalogue_pb2 import (
    AddObjectsRequest,
    GetObjectModelsRequest,
    ListCataloguesRequest,
    ListObjectsRequest,
    RemoveCatalogueRequest,
    RemoveObjectsRequest,
)
from support.manual_background import ManualBackground
from support.objects import random_model, same_model

OWN = NodeId(42)
MODEL = random_model("a")
KEY = model_key("museum", "a", 1)


class Scene:
    """A device whose store records what is written."""

    def __init__(self, share: Literal["redirect", "direct"], *, from_tier: bool = True) -> None:
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.written: list[tuple[str, str, bytes]] = []
        self.answers: list[Exception | None] = []
        self.held = HeldModels(10 * MODEL.size_bytes)
        nobody: Any = None
        context = CooperationContext(
            "museum", OWN, self, nobody, tuple, self.background, self.clock, random.Random(1)
        )
        self.sharing = ModelSharing(context, share, lambda _: from_tier)
        self.held.observer = self.sharing

    def append(self, key: str, item: bytes, *, ttl_s: float | None = None) -> Future[None]:
        assert ttl_s == LIFE_S
        return self._write("append", key, item)

    def remove(self, key: str, item: bytes) -> Future[None]:
        return self._write("remove", key, item)

    def _write(self, what: str, key: str, item: bytes) -> Future[None]:
        self.written.append((what, key, item))
        done: Future[None] = Future()
        error = self.answers.pop(0) if self.answers else None
        done.set_exception(error) if error else done.set_result(None)
        return done

    def items(self, *_: object, **__: object) -> Future[object]:
        raise NotImplementedError

    merge = counts = items


@pytest.fixture
def scene() -> Scene:
    return Scene("redirect")


def test_a_holder_is_added_when_a_model_came_and_removed_when_it_leaves(scene: Scene) -> None:
    scene.held.put(MODEL, 100)
    scene.held.remove(["a"])
    scene.background.run()
    assert scene.written == [("append", KEY, holder_item(OWN)), ("remove", KEY, holder_item(OWN))]


def test_a_new_version_takes_the_place_of_the_old_one(scene: Scene) -> None:
    scene.held.put(MODEL, 100)
    scene.held.put(replace(MODEL, version=2), 100)
    scene.background.run()
    newer = model_key("museum", "a", 2)
    assert ("remove", KEY, holder_item(OWN)) in scene.written
    assert scene.written[-1] == ("append", newer, holder_item(OWN))


def test_a_late_removal_of_an_old_version_keeps_the_new_one(scene: Scene) -> None:
    scene.sharing.start()
    scene.sharing.added(replace(MODEL, version=2))
    scene.sharing.dropped(MODEL)
    scene.background.advance(RENEW_S)
    assert scene.written[-1] == ("append", model_key("museum", "a", 2), holder_item(OWN))
    assert len(scene.written) == 3


def test_a_model_that_is_too_large_to_be_kept_is_not_announced(scene: Scene) -> None:
    small = HeldModels(MODEL.size_bytes - 1)
    small.observer = scene.sharing
    small.put(MODEL, 100)
    scene.background.run()
    assert scene.written == []


def test_entries_are_renewed_before_they_end(scene: Scene) -> None:
    scene.sharing.start()
    scene.held.put(MODEL, 100)
    assert RENEW_S < LIFE_S / 2
    scene.background.advance(2 * RENEW_S)
    assert scene.written == [("append", KEY, holder_item(OWN))] * 3
    scene.held.remove(["a"])
    scene.background.advance(2 * RENEW_S)
    assert len(scene.written) == 4


def test_a_failed_write_is_repeated_unless_the_model_was_dropped(scene: Scene) -> None:
    scene.answers = [Unavailable("gone"), Unavailable("gone")]
    scene.held.put(MODEL, 100)
    scene.background.advance(20.0)
    assert scene.written == [("append", KEY, holder_item(OWN))] * 3
    scene.answers = [Unavailable("gone")]
    scene.held.put(replace(MODEL, object_id="b"), 100)
    scene.background.run()
    scene.held.remove(["b"])
    scene.background.advance(20.0)
    assert [what for what, key, _ in scene.written if "/b/" in key] == ["append", "remove"]


def test_direct_values_are_stored_by_the_device_that_asked_a_tier() -> None:
    scene = Scene("direct")
    scene.held.put(MODEL, 100)
    scene.held.remove(["a"])
    scene.background.run()
    assert scene.written == [("append", KEY, model_item(object_model_to_bytes(MODEL)))]


def test_direct_values_from_peers_are_not_stored_again() -> None:
    scene = Scene("direct", from_tier=False)
    scene.held.put(MODEL, 100)
    scene.background.run()
    assert scene.written == [("append", KEY, holder_item(OWN))]


def test_a_model_that_the_store_does_not_take_is_announced_instead() -> None:
    scene = Scene("direct")
    scene.answers = [InvalidArgument("too large")]
    scene.held.put(MODEL, 100)
    scene.background.run()
    scene.held.remove(["a"])
    scene.background.run()
    assert [what for what, _, _ in scene.written] == ["append", "append", "remove"]
    assert scene.written[1] == ("append", KEY, holder_item(OWN))


MODELS = {name: random_model(name, seed) for seed, name in enumerate("abc")}


class Server:
    """A device with three models, asked by a peer."""

    def __init__(self) -> None:
        self.held = HeldModels(10**6)
        for model in MODELS.values():
            self.held.put(model, 100)
        self.account = CooperationAccount()
        self.traffic = TrafficByPeer()
        self.service = PeerModelService("museum", self.held, self.account, self.traffic)

    def context(self, catalogue: str = "museum") -> CallContext:
        deadline = Deadline.after(1.0, ManualClock())
        return CallContext(deadline=deadline, catalogue=catalogue, client_id=shown(NodeId(7)))

    def ask(self, *names: str, catalogue: str = "museum") -> Reply:
        context = self.context(catalogue)
        response = self.service.get_object_models(GetObjectModelsRequest(object_ids=names), context)
        return Reply(response, tuple(map(memoryview, context.response_blobs)), (), 0, 100)


@pytest.fixture
def server() -> Server:
    return Server()


def test_models_that_are_held_are_handed_out_and_counted(server: Server) -> None:
    reply = server.ask("c", "x", "a", "c")
    fetched = models_of(reply, ["c", "x", "a"])
    assert [model.object_id for model in fetched.models] == ["c", "a"]
    assert fetched.missing == ("x",)
    assert all(same_model(model, MODELS[model.object_id]) for model in fetched.models)
    account = server.account
    assert account.served_models == 2
    assert account.served_bytes >= 2 * 40 * (4 + 32 + 2)


def test_sent_models_count_as_traffic_with_the_peer(server: Server) -> None:
    reply = server.ask("c", "x")
    traffic = server.traffic.of(NodeId(7))
    assert traffic.sent_bytes == reply.message.ByteSize() + sum(map(len, reply.blobs))
    assert traffic.received_bytes == GetObjectModelsRequest(object_ids=["c", "x"]).ByteSize()


def test_sent_models_pass_the_checks_of_peers(server: Server) -> None:
    right = ModelDigest(1, model_digest(MODELS["a"]))
    assert verify(server.ask("a"), "a", right) is Verdict.RIGHT
    assert verify(server.ask("x"), "x", right) is Verdict.MISSING
    assert verify(server.ask("b"), "b", right) is Verdict.WRONG
    assert verify(server.ask("a"), "a", ModelDigest(2, right.digest)) is Verdict.OUTDATED


def test_handing_out_does_not_count_as_use(server: Server) -> None:
    small = HeldModels(2 * MODELS["a"].size_bytes)
    server.service = PeerModelService("museum", small, server.account, server.traffic)
    small.put(MODELS["a"], 100)
    small.put(MODELS["b"], 100)
    server.ask("a")
    assert small.put(MODELS["c"], 100) == {"a"}


def test_other_catalogues_and_too_many_ids_are_refused(server: Server) -> None:
    with pytest.raises(NotFound):
        server.ask("a", catalogue="library")
    with pytest.raises(InvalidArgument):
        server.ask(*map(str, range(MOST_MODELS + 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda server: server.service.list_objects(ListObjectsRequest(), server.context()),
        lambda server: server.service.list_catalogues(ListCataloguesRequest(), server.context()),
        lambda server: server.service.add_objects(AddObjectsRequest(), server.context()),
        lambda server: server.service.remove_objects(RemoveObjectsRequest(), server.context()),
        lambda server: server.service.remove_catalogue(RemoveCatalogueRequest(), server.context()),
    ],
)
def test_everything_else_is_refused(server: Server, call: Callable[[Server], object]) -> None:
    with pytest.raises(InvalidArgument, match="only provides"):
        call(server)
