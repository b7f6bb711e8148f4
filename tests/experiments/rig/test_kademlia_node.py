"""Behaviour of the package ``kademlia``, on which the comparison in figure 6.15 is based."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nearsight.experiments.rig.kademlia_node import KademliaNode, KademliaSettings
from nearsight.experiments.rig.peer_process import value_of

TIMEOUT_S = 100.0


@contextmanager
def network(count: int, settings: KademliaSettings) -> Iterator[Sequence[KademliaNode]]:
    with ExitStack() as stack:
        nodes, ports = [], []
        for number in range(count):
            node = KademliaNode(f"node-{number}", settings)
            stack.callback(node.stop)
            ports.append(_start(node))
            nodes.append(node)
        for node, port in zip(nodes, ports, strict=True):
            node.join([("127.0.0.1", other) for other in ports if other != port], TIMEOUT_S)
        yield nodes


def _start(node: KademliaNode) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    node.start("127.0.0.1", port)
    protocol = node._server.protocol
    protocol._wait_timeout = TIMEOUT_S  # 5 s in the package: a busy machine would look like a lost node
    protocol.transport = CountingTransport(protocol.transport)
    return port


class CountingTransport:
    """Counts datagrams; the package sends only through its attribute ``transport``."""

    def __init__(self, transport: asyncio.DatagramTransport) -> None:
        self._transport = transport
        self.datagrams = 0

    def sendto(self, data: bytes, address: tuple[str, int]) -> None:
        self.datagrams += 1
        self._transport.sendto(data, address)

    def close(self) -> None:
        self._transport.close()


def datagrams(nodes: Sequence[KademliaNode]) -> int:
    return sum(node._server.protocol.transport.datagrams for node in nodes)


def test_with_at_most_k_nodes_every_node_stores_every_value_and_gets_send_nothing() -> None:
    with network(6, KademliaSettings(k=20, alpha=3)) as nodes:
        keys = [f"key-{number}" for number in range(12)]
        for number, key in enumerate(keys):
            assert nodes[number % 6].run(nodes[number % 6].put(key, value_of(key, 64)), TIMEOUT_S)
        others = [
            (node, key) for node in nodes for number, key in enumerate(keys) if nodes[number % 6] is not node
        ]
        assert all(node.holds(key) for node, key in others)
        before = datagrams(nodes)
        assert all(node.run(node.get(key), TIMEOUT_S) == value_of(key, 64) for node, key in others)
        assert datagrams(nodes) == before


def test_a_put_sends_find_and_store_to_every_other_node() -> None:
    with network(6, KademliaSettings(k=20, alpha=3)) as nodes:
        before = datagrams(nodes)
        nodes[0].run(nodes[0].put("key", b"value"), TIMEOUT_S)
        find_and_store, request_and_response = 2, 2
        assert datagrams(nodes) - before == 5 * find_and_store * request_and_response


def test_with_k_of_2_a_value_is_on_about_2_nodes_and_other_nodes_query_them() -> None:
    with network(6, KademliaSettings(k=2, alpha=1)) as nodes:
        nodes[0].run(nodes[0].put("key", b"value"), TIMEOUT_S)
        holders = [node for node in nodes if node.holds("key")]
        assert len(holders) in {2, 3}
        querying = next(node for node in nodes if node not in holders)
        before = datagrams(nodes)
        querying.run(querying.get("key"), TIMEOUT_S)
        assert datagrams(nodes) - before >= 2


def test_the_number_of_copies_may_be_smaller_than_the_bucket_size() -> None:
    with network(6, KademliaSettings(k=20, alpha=3, copies=2)) as nodes:
        known = [sum(len(b) for b in node._server.protocol.router.buckets) for node in nodes]
        assert known == [5] * 6
        nodes[0].run(nodes[0].put("key", b"value"), TIMEOUT_S)
        assert sum(node.holds("key") for node in nodes) in {2, 3}
        assert {node.run(node.get("key"), TIMEOUT_S) for node in nodes} == {b"value"}
