"""Rendezvous hashing of keys to devices, and calls to devices."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import InternalError, InvalidArgument, Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId, random_node_id, shown
from nearsight.device.peers.routing.cluster_view import rank
from nearsight.protos.health_pb2 import DESCRIPTOR, HealthRequest, HealthResponse
from support.peer_nodes import Group
from support.waiting import LONG_S

HEALTH = DESCRIPTOR.services_by_name["Health"]
CHECK = HEALTH.methods_by_name["Check"]


class _Named(Service):
    """Answers with its name; fails if a request asks for it."""

    descriptor: ClassVar[ServiceDescriptor] = HEALTH

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, request: HealthRequest, context: CallContext) -> HealthResponse | Future[HealthResponse]:
        match bytes(context.blobs[0]) if context.blobs else b"":
            case b"refuse":
                raise InvalidArgument("refused")
            case b"crash":
                raise ZeroDivisionError
        context.response_blobs.append(context.catalogue.encode())
        return HealthResponse(daemon=self._name, version=context.client_id)


@pytest.fixture(scope="module")
def named() -> Iterator[Group]:
    nodes = Group()
    try:
        for number in range(3):
            nodes.add(services=[_Named(str(number))])
        nodes.wait_synchronised()
        yield nodes
    finally:
        nodes.stop()


def test_all_devices_compute_the_same_replicas_of_a_key(named: Group) -> None:
    for number in range(20):
        found = {node.route.nodes_for(f"key {number}", 2) for node in named.nodes}
        assert len(found) == 1
        assert len(*found) == 2


def test_with_more_replicas_than_devices_all_devices_are_replicas(named: Group) -> None:
    assert set(named.nodes[0].route.nodes_for("k", 9)) == {node.node_id for node in named.nodes}


def test_a_call_reaches_the_device_and_returns_its_answer_or_error(named: Group) -> None:
    node, receiver = named.nodes[0], named.nodes[1]

    def call(*blobs: bytes) -> Reply:
        future = node.route.call(
            receiver.node_id, CHECK, HealthRequest(), timeout_s=LONG_S, blobs=blobs, catalogue="c"
        )
        return future.result(LONG_S)

    reply = call()
    assert (reply.message.daemon, reply.message.version) == ("1", shown(node.node_id))  # type: ignore[attr-defined]
    assert bytes(reply.blobs[0]) == b"c"
    with pytest.raises(InvalidArgument, match="refused"):
        call(b"refuse")
    with pytest.raises(InternalError):
        call(b"crash")


def test_a_call_to_an_unknown_device_is_unavailable(named: Group) -> None:
    call = named.nodes[0].route.call(NodeId(5), CHECK, HealthRequest(), timeout_s=LONG_S)
    with pytest.raises(Unavailable, match="0000000000000005"):
        call.result(LONG_S)


NODES = st.frozensets(st.integers(1, 2**64 - 1).map(NodeId), min_size=1, max_size=50)
KEYS = st.text(min_size=1, max_size=30)


@given(KEYS, NODES, st.integers(0, 2**32))
def test_the_ranking_does_not_depend_on_the_order_of_the_nodes(
    key: str, nodes: frozenset[NodeId], seed: int
) -> None:
    shuffled = random.Random(seed).sample(sorted(nodes), len(nodes))
    ranking = rank(key, shuffled)
    assert ranking == rank(key, nodes)
    assert sorted(ranking) == sorted(nodes)


@given(KEYS, NODES, st.data())
def test_a_node_that_leaves_does_not_change_the_order_of_the_others(
    key: str, nodes: frozenset[NodeId], data: st.DataObject
) -> None:
    left = data.draw(st.sampled_from(sorted(nodes)))
    after = rank(key, nodes - {left})
    assert after == tuple(node for node in rank(key, nodes) if node != left)


@given(st.lists(KEYS, max_size=30), NODES, st.integers(1, 2**64 - 1).map(NodeId), st.integers(1, 3))
def test_only_keys_of_the_joined_node_move(
    keys: list[str], nodes: frozenset[NodeId], joined: NodeId, count: int
) -> None:
    for key in keys:
        before, after = (set(rank(key, there)[:count]) for there in (nodes, nodes | {joined}))
        if joined not in after:
            assert after == before
        else:
            assert after - {joined} <= before


@pytest.mark.parametrize("numbering", ["random", "in a row"])
def test_the_load_is_even_within_a_few_per_cent_at_50_nodes(numbering: str) -> None:
    rng = random.Random(5)
    nodes = [NodeId(n + 1) if numbering == "in a row" else random_node_id(rng) for n in range(50)]
    keys = 40_000
    load = Counter(rank(f"model/museum/{number:04}/1", nodes)[0] for number in range(keys))
    mean = keys / 50
    # The binomial deviation is 3.5 % of the mean at 800 keys per node.
    assert statistics.pstdev(load[node] for node in nodes) < 0.05 * mean
    assert max(load.values()) < 1.12 * mean
    assert min(load.values()) > 0.88 * mean


def test_second_replicas_are_spread_evenly() -> None:
    nodes = [NodeId(7 * number + 1) for number in range(10)]
    pairs = Counter(rank(f"key {number}", nodes)[:2] for number in range(18_000))
    assert len(pairs) == 90
    assert statistics.pstdev(pairs.values()) < 0.1 * 200


def test_the_ranking_is_the_same_in_all_releases() -> None:
    """Devices of different versions must agree: a change needs a new version of the beacon."""
    nodes = [NodeId(number) for number in (1, 2, 3, 2**64 - 1)]
    assert rank("model/museum/0001/1", nodes) == (1, 2**64 - 1, 2, 3)
