"""Groups of real peer nodes on loopback, and faults of their network."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import failed
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import DeadlineExceeded, Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import Service
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from support.waiting import LONG_S, wait_until


def fast_settings(**changes: Any) -> PeerSettings:
    """Settings without broadcasts, under which no busy node is taken for a dead one."""
    values: dict[str, Any] = {
        "broadcast": "off",
        "period_s": 0.2,
        "departure_s": LONG_S,
        "ping_timeout_s": LONG_S,
        "read_timeout_s": LONG_S,
        "hedge_s": LONG_S,
        **changes,
    }
    return PeerSettings(**values)


class Group:
    """Nodes that are peers of each other."""

    def __init__(self, seed: int = 1, **changes: Any) -> None:
        self.nodes: list[PeerNode] = []
        self._seed = seed
        self._changes = changes

    def add(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        services: Sequence[Service] = (),
        static: Iterable[str] | None = None,
        **changes: Any,
    ) -> PeerNode:
        """Start one more node."""
        known = tuple(node.endpoint for node in self.nodes) if static is None else tuple(static)
        settings = fast_settings(**{"static": known, **self._changes, **changes})
        rng = random.Random(f"{self._seed} {len(self.nodes)} {random.random()}")
        node = PeerNode(settings, device_id=f"d{len(self.nodes)}", clock=clock, rng=rng, services=services)
        self.nodes.append(node)
        node.start()
        return node

    def kill(self, node: PeerNode) -> None:
        """Stop a node without a leave message."""
        self.nodes.remove(node)
        node.stop(0)

    def leave(self, node: PeerNode) -> None:
        """Stop a node cleanly, with a leave message."""
        self.nodes.remove(node)
        node.stop(2)

    def wait_synchronised(self) -> None:
        """Wait until all nodes are peers of each other and have handed over their entries."""
        wait_synchronised(self.nodes)

    def by_id(self, node_id: NodeId) -> PeerNode:
        """The node with this id."""
        return next(node for node in self.nodes if node.node_id == node_id)

    def replicas(self, key: str) -> list[PeerNode]:
        """The replicas of the key, in order."""
        first = self.nodes[0]
        return [self.by_id(node) for node in first.route.nodes_for(key, first.settings.replicas)]

    def outsider(self, key: str) -> PeerNode:
        """A node that is not a replica of the key."""
        return next(node for node in self.nodes if node not in self.replicas(key))

    def key_of(self, *nodes: PeerNode) -> str:
        """A key whose first replicas are these nodes, in this order."""
        return next(
            key
            for key in (f"key {number}" for number in range(100_000))
            if self.replicas(key)[: len(nodes)] == list(nodes)
        )

    def stop(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.stop(0)


@contextmanager
def group(count: int, **changes: Any) -> Iterator[Group]:
    """A group of nodes that have discovered each other."""
    nodes = Group(**changes)
    try:
        for _ in range(count):
            nodes.add()
        nodes.wait_synchronised()
        yield nodes
    finally:
        nodes.stop()


def wait_synchronised(nodes: Sequence[PeerNode]) -> None:
    """Wait until these nodes are peers of each other only, and have handed over their entries.

    A node's connections follow its view; `PeerNode.peers` changes slightly before both.
    """
    ids = {node.node_id for node in nodes}

    def synchronised() -> bool:
        return all(node.route.cluster.view.nodes == ids and node.synchronised() for node in nodes)

    wait_until(synchronised, what="the group synchronised")


class Wire:
    """Intercepts the calls of a node to its peers: cuts connections, loses responses."""

    def __init__(self, node: PeerNode) -> None:
        self._links: Any = node._links
        self._real = {name: getattr(self._links, name) for name in ("call", "ask", "probe")}
        self.cut_off: set[NodeId] = set()
        self.endpoints: set[str] = set()
        self.loses: Callable[[MethodDescriptor], bool] = lambda _: False
        self._links.call = self._call
        self._links.ask = self._ask
        self._links.probe = self._probe

    def cut(self, *others: PeerNode) -> None:
        """Cut the connections to these nodes."""
        self.cut_off |= {node.node_id for node in others}
        self.endpoints |= {node.endpoint for node in others}

    def mend(self) -> None:
        """Restore all connections."""
        self.cut_off, self.endpoints = set(), set()

    def _call(self, node: NodeId, method: MethodDescriptor, request: Message, **rest: Any) -> Future[Reply]:
        if node in self.cut_off:
            self._links._discovery.call_failed(node)
            return failed(Unavailable("cut"))
        future: Future[Reply] = self._real["call"](node, method, request, **rest)
        if not self.loses(method):
            return future
        lost: Future[Reply] = Future()
        future.add_done_callback(lambda _: lost.set_exception(DeadlineExceeded("the answer was lost")))
        return lost

    def _ask(self, node: NodeId, method: MethodDescriptor, request: Message, **rest: Any) -> Reply:
        if node in self.cut_off:
            self._links._discovery.call_failed(node)
            raise Unavailable("cut")
        reply: Reply = self._real["ask"](node, method, request, **rest)
        return reply

    def _probe(self, node: NodeId | None, endpoint: str, *rest: Any) -> Future[Reply]:
        if endpoint in self.endpoints:
            return failed(Unavailable("cut"))
        future: Future[Reply] = self._real["probe"](node, endpoint, *rest)
        return future


def split(half: Sequence[PeerNode], other: Sequence[PeerNode]) -> list[Wire]:
    """Split a group into two; `Wire.mend` each to reconnect the halves.

    Nodes notice it when a call fails, or call `drop`.
    """
    wires = []
    for mine, theirs in ((half, other), (other, half)):
        for node in mine:
            wire = Wire(node)
            wire.cut(*theirs)
            wires.append(wire)
    return wires


def drop(nodes: Sequence[PeerNode], unreachable: Sequence[PeerNode]) -> None:
    """Let these nodes notice that others cannot be reached, as by failed calls, and wait until they left.

    An answer that was in transit at the cut makes a node present again, so one failed call may not suffice.
    """

    def all_left() -> bool:
        seen = [(node, other) for node in nodes for other in unreachable]
        seen = [(node, other) for node, other in seen if other.node_id in node.route.cluster.view.nodes]
        for node, other in seen:
            node._discovery.call_failed(other.node_id)
        return not seen

    wait_until(all_left, what="unreachable nodes dropped")
