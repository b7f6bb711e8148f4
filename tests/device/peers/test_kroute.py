"""Which devices are responsible for a key, and calls to them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import ClassVar

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InternalError, InvalidArgument, Unavailable
from nearsight.common.rpc.client import Reply
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


def test_all_devices_name_the_same_devices_for_a_key(named: Group) -> None:
    for number in range(20):
        found = {node.route.nodes_for(f"key {number}", 2) for node in named.nodes}
        assert len(found) == 1
        assert len(*found) == 2


def test_more_replicas_than_devices_are_all_devices(named: Group) -> None:
    assert set(named.nodes[0].route.nodes_for("k", 9)) == {node.node_id for node in named.nodes}


def test_a_call_reaches_the_device_and_its_errors_come_back(named: Group) -> None:
    node, receiver = named.nodes[0], named.nodes[1]

    def call(*blobs: bytes) -> Reply:
        future = node.route.call(
            receiver.node_id, CHECK, HealthRequest(), timeout_s=S, blobs=blobs, catalogue="c"
        )
        return future.result(S)

    reply = call()
    assert (reply.message.daemon, reply.message.version) == ("1", shown(node.node_id))  # type: ignore[attr-defined]
    assert bytes(reply.blobs[0]) == b"c"
    with pytest.raises(InvalidArgument, match="refused"):
        call(b"refuse")
    with pytest.raises(InternalError):
        call(b"crash")


def test_a_device_that_is_not_there_cannot_be_reached(named: Group) -> None:
    call = named.nodes[0].route.call(NodeId(5), CHECK, HealthRequest(), timeout_s=S)
    with pytest.raises(Unavailable, match="0000000000000005"):
        call.result(S)
