"""Hand-over: recipients of completion messages, pauses, and when copies are dropped."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded
from nearsight.common.rpc.client import Reply
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.routing.cluster_view import ClusterView, View
from nearsight.device.peers.routing.connections import PeerConnections, TrafficByPeer
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.handover import (
    CALM_AFTER_S,
    PAUSE_PER_NODE_S,
    SETTLE_AFTER_S,
    SWEEP_TURNS,
    HandoverWorker,
    Members,
)
from nearsight.device.peers.store.service import NO_VIEW, StoreService
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.device.peers.store.values import Entry, Register
from nearsight.protos.peers_pb2 import OfferRequest, OfferResponse
from support.peer_nodes import group

OWN = NodeId(1)
SETTINGS = PeerSettings()


class _Links:
    """Answers offers, and records their receivers and keys."""

    def __init__(self) -> None:
        self.offered: list[NodeId] = []
        self.keys: list[str] = []
        self.silent: set[NodeId] = set()

    def call(self, node: NodeId, _: object, request: OfferRequest, **__: object) -> Future[Reply]:
        self.offered.append(node)
        self.keys += [message.key for message in request.entries]
        answer: Future[Reply] = Future()
        if node in self.silent:
            answer.set_exception(DeadlineExceeded("silent"))
        else:
            answer.set_result(Reply(OfferResponse(), (), (), 0, 0))
        return answer

    def is_slow(self, _node: NodeId) -> bool:
        return False


class _Device:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.links = _Links()
        self.cluster = ClusterView(OWN, View.of(OWN, 1, ()))
        self.shared = SharedStore(SETTINGS, 1, self.clock)
        route = KRoute(self.cluster, cast(PeerConnections, cast(Any, self.links)))
        self.worker = HandoverWorker(self.shared, route, SETTINGS, self.clock)

    def see(self, count: int) -> None:
        """Change the membership to this number of other nodes, and process the change."""
        before = self.cluster.view
        self.cluster.update(View.of(OWN, 1, [(NodeId(number), 1) for number in range(2, count + 2)]))
        self.worker.changed(before, self.cluster.view)
        self.worker._run()


@pytest.fixture
def device() -> _Device:
    return _Device()


def test_after_joins_each_node_gets_one_completion_message(device: _Device) -> None:
    device.see(5)
    assert sorted(device.links.offered) == [NodeId(number) for number in range(2, 7)]


def test_a_node_that_asks_is_the_only_one_to_get_a_completion_message(device: _Device) -> None:
    device.see(5)
    device.links.offered.clear()
    device.worker.offers_requested(NodeId(4))
    device.worker._run()
    assert device.links.offered == [NodeId(4)]


def test_a_completion_message_is_repeated_only_to_nodes_that_missed_it(device: _Device) -> None:
    device.links.silent = {NodeId(3)}
    device.see(5)
    for _ in range(2):
        device.links.offered.clear()
        device.worker._run()
        assert device.links.offered == [NodeId(3)]
    device.links.silent.clear()
    device.worker._run()
    device.links.offered.clear()
    device.worker._run()
    assert device.links.offered == []


def test_entries_are_offered_again_until_their_new_replica_has_answered(device: _Device) -> None:
    device.see(2)
    for number in range(20):
        device.shared.write(Entry(f"key {number}", value=Register(b"v", device.shared.stamp())))
    device.links.silent = {NodeId(4)}
    device.see(3)
    offered = set(device.links.keys)
    assert offered
    for silent in ({NodeId(4)}, set[NodeId]()):
        device.links.silent = silent
        device.links.keys.clear()
        device.worker._run()
        assert set(device.links.keys) == offered
    device.links.keys.clear()
    device.worker._run()
    assert device.links.keys == []


def test_the_memory_for_a_node_that_receives_nothing_is_bounded(device: _Device) -> None:
    device.links.silent = {NodeId(2)}
    for number in range(100):
        device.see(2 + number % 20)
        device.worker.misplaced(f"key {number} that was evicted")
        device.worker._run()
    assert len(device.worker._members.ever) <= 22
    assert Members(frozenset(map(NodeId, range(9000)))).combined_with(Members()) == Members()
    assert device.worker._misplaced == set()


@pytest.mark.parametrize("keys", [0, 1])
def test_only_entries_that_a_device_has_room_for_are_handed_over(device: _Device, keys: int) -> None:
    shared, misplaced = SharedStore(PeerSettings(max_keys=keys), 1, device.clock), list[str]()
    service = StoreService(
        shared,
        device.cluster,
        misplaced=misplaced.append,
        offers_requested=lambda _: None,
        traffic=TrafficByPeer(),
    )
    service.take(Entry("key", value=Register(b"v", shared.stamp())), NO_VIEW)
    assert len(misplaced) == keys


def test_the_pause_grows_with_the_number_of_nodes_and_is_reset_afterwards(device: _Device) -> None:
    pauses = []
    for count in range(1, 21):
        device.see(count)
        pauses.append(device.worker._pause_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(PAUSE_PER_NODE_S * 21)
    device.clock.advance(CALM_AFTER_S + 0.1)
    before = device.cluster.view
    device.worker.changed(before, before)
    assert device.worker._pause_s == SETTLE_AFTER_S


def test_every_entry_is_compared_once_per_round_of_sweeps(device: _Device) -> None:
    device.see(2)
    keys = [f"key {number}" for number in range(200)]
    for key in keys:
        device.shared.write(Entry(key, value=Register(b"v", device.shared.stamp())))
    parts = []
    for _ in range(SWEEP_TURNS):
        device.links.keys.clear()
        device.worker._sweep()
        parts.append({key for key in device.links.keys if key in keys})
    assert set.union(*parts) == set(keys)
    assert sum(map(len, parts)) == len(keys) and all(parts)


def give_a_copy(node: PeerNode, key: str) -> None:
    shared = node._shared
    assert shared.write(Entry(key, value=Register(b"v", shared.stamp())))[1] is None


def compare_all(node: PeerNode) -> None:
    for _ in range(SWEEP_TURNS):
        node._handover._sweep()


def test_a_surplus_copy_is_kept_if_a_replica_refused_the_entry() -> None:
    with group(3) as nodes:
        a, b, c = nodes.nodes
        key = nodes.key_of(a, b)
        store = b._shared.entries
        store._limits = replace(store._limits, max_keys=0)
        give_a_copy(c, key)
        compare_all(c)
        assert [key in node.held_keys() for node in (a, b, c)] == [True, False, True]


def test_a_surplus_copy_is_kept_if_the_replica_leaves_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with group(2, replicas=1) as nodes:
        goes, stays = nodes.nodes
        key = nodes.key_of(goes)
        give_a_copy(stays, key)
        call = stays._links.call

        def call_and_lose(*args: Any, **kwargs: Any) -> Future[Reply]:
            answer = call(*args, **kwargs)
            stays._cluster.update(View.of(stays.node_id, stays.identity.incarnation, ()))
            return answer

        monkeypatch.setattr(stays._links, "call", call_and_lose)
        compare_all(stays)
        assert key in stays.held_keys()
