"""Answers peers that ask who is there, or say that they go away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidArgument, Unauthenticated
from nearsight.common.rpc.service import CallContext, Service
from nearsight.device.peers.addresses import host_and_port
from nearsight.device.peers.node_id import NodeId, is_node_id, node_id_of_key, shown
from nearsight.protos.peers_pb2 import (
    DESCRIPTOR,
    LeaveRequest,
    LeaveResponse,
    PingRequest,
    PingResponse,
)


@dataclass(frozen=True, slots=True)
class PresenceEvents:
    """Who is told of peers that call.

    Parameters
    ----------
    introduced : callable
        A node asked, and said where it answers itself: id, endpoint, incarnation.
    left : callable
        A node goes away: id, incarnation.
    """

    introduced: Callable[[NodeId, str, int], None]
    left: Callable[[NodeId, int], None]


def proven_id(claimed: int, context: CallContext) -> NodeId:
    """The node that a call comes from.

    Raises
    ------
    InvalidArgument
        If the claimed number is no id.
    Unauthenticated
        If the caller's key belongs to another node.
    """
    if not is_node_id(claimed):
        raise InvalidArgument(f"{claimed} is not the id of a node")
    if context.peer_key is not None and node_id_of_key(context.peer_key) != claimed:
        raise Unauthenticated(f"this key does not belong to the node {shown(claimed)}")
    return NodeId(claimed)


def caller_of(context: CallContext) -> NodeId:
    """The node that calls; without keys, the one that it says that it is; 0 if that is none."""
    if context.peer_key is not None:
        return node_id_of_key(context.peer_key)
    try:
        return NodeId(int(context.client_id, 16))
    except ValueError:
        return NodeId(0)


class PeersService(Service):
    """Presence. Answers on a worker of its own: a device whose store is flooded is still there.

    Parameters
    ----------
    describe : callable
        What this node says of itself.
    events : PresenceEvents
        Told of callers.
    """

    descriptor: ClassVar[ServiceDescriptor] = DESCRIPTOR.services_by_name["Peers"]
    own_worker: ClassVar[bool] = True

    def __init__(self, describe: Callable[[], PingResponse], events: PresenceEvents) -> None:
        self._describe = describe
        self._events = events

    def ping(self, request: PingRequest, context: CallContext) -> PingResponse:
        """Show that this node is there; a caller that names itself and its address becomes known.

        Raises
        ------
        InvalidArgument
            If the caller's address is none that can be connected to.
        Unauthenticated
            If it claims to be somebody else.
        """
        if request.node_id:
            node = proven_id(request.node_id, context)
            if request.endpoint:
                host_and_port(request.endpoint)
                self._events.introduced(node, request.endpoint, request.incarnation)
        return self._describe()

    def leave(self, request: LeaveRequest, context: CallContext) -> LeaveResponse:
        """A peer goes away."""
        self._events.left(proven_id(request.node_id, context), request.incarnation)
        return LeaveResponse()
