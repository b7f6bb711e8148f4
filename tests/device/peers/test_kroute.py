"""Calls addressed by key."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InternalError, InvalidArgument, Unavailable
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.protos.health_pb2 import DESCRIPTOR, HealthRequest, HealthResponse
from support.peer_nodes import Group

S = 5.0
HEALTH = DESCRIPTOR.services_by_name["Health"]
CHECK = HEALTH.methods_by_name["Check"]


class _Named(Service):
    """Says who answered; in several ways."""

    descriptor: ClassVar[ServiceDescriptor] = HEALTH

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, request: HealthRequest, context: CallContext) -> HealthResponse | Future[HealthResponse]:
        match bytes(context.blobs[0]) if context.blobs else b"":
            case b"refuse":
                raise InvalidArgument("refused")
            case b"crash":
                raise ZeroDivisionError
            case b"later":
                later: Future[HealthResponse] = Future()
                later.set_result(HealthResponse(daemon=self._name))
                return later
        context.response_blobs.append(context.catalogue.encode())
        return HealthResponse(daemon=self._name, version=context.client_id)


@pytest.fixture(scope="module")
def named() -> Iterator[Group]:
    nodes = Group()
    try:
        for number in range(3):
            nodes.add(services=[_Named(str(number))])
        nodes.settle()
        yield nodes
    finally:
        nodes.stop()


def test_all_devices_reach_the_same_devices_for_a_key(named: Group) -> None:
    for number in range(20):
        key = f"key {number}"
        answers = {
            tuple(
                call.result(S).message.daemon
                for call in node.route.send(key, CHECK, HealthRequest(), timeout_s=S, replicas=2)
            )
            for node in named.nodes
        }
        expected = tuple(str(named.nodes.index(node)) for node in named.replicas(key))
        assert answers == {expected}


def test_more_replicas_than_devices_are_all_devices(named: Group) -> None:
    assert len(named.nodes[0].route.send("k", CHECK, HealthRequest(), timeout_s=S, replicas=9)) == 3


@pytest.mark.parametrize("target", [0, 1])
def test_a_call_to_the_own_device_is_like_any_other(named: Group, target: int) -> None:
    node, receiver = named.nodes[0], named.nodes[target]

    def call(blob: bytes = b"") -> Future[object]:
        blobs = [blob] if blob else []
        return node.route.call(  # type: ignore[return-value]
            receiver.node_id, CHECK, HealthRequest(), timeout_s=S, blobs=blobs, catalogue="c"
        )

    reply = call().result(S)
    assert (reply.message.daemon, reply.message.version) == (str(target), shown(node.node_id))  # type: ignore[attr-defined]
    assert bytes(reply.blobs[0]) == b"c"  # type: ignore[attr-defined]
    assert call(b"later").result(S).message.daemon == str(target)  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="refused"):
        call(b"refuse").result(S)
    with pytest.raises(InternalError):
        call(b"crash").result(S)


def test_a_device_that_is_not_there_cannot_be_reached(named: Group) -> None:
    call = named.nodes[0].route.call(NodeId(5), CHECK, HealthRequest(), timeout_s=S)
    with pytest.raises(Unavailable, match="0000000000000005"):
        call.result(S)


def test_every_call_takes_one_hop(named: Group) -> None:
    for number in range(20):
        for node in named.nodes:
            (call,) = node.route.send(f"key {number}", CHECK, HealthRequest(), timeout_s=S)
            assert len(call.result(S).hops) <= 1  # none at all if this device is responsible itself
