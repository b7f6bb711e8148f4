"""Real peer nodes with keys, each on its own host in a network of namespaces."""

import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

import zmq

from nearsight.common.rpc import transport
from nearsight.common.rpc.allow_list import allow_client
from nearsight.common.rpc.security import KeyFiles, generate_keys
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.links.namespaces import Namespace
from support.faulty_network import FaultyNetwork
from support.namespaces import on
from support.waiting import wait_until


class PeerHosts:
    """A network with hosts on which a test starts nodes, for a ``with`` block."""

    def __init__(self, folder: Path, hosts: int, **settings: Any) -> None:
        self._folder = folder
        self._network = FaultyNetwork(hosts)
        self._open = ExitStack()
        self._settings = {"period_s": 0.4, "departure_s": 1.2, "ping_timeout_s": 0.5, **settings}
        self._contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
        self._lock = threading.Lock()
        self.nodes: list[PeerNode] = []

    @property
    def network(self) -> FaultyNetwork:
        return self._network

    def keys(self, name: str, *, allow: bool = True) -> KeyFiles:
        """A new identity, which all nodes allow."""
        keys = generate_keys(self._folder / "keys", name)
        if allow:
            allow_client(keys.public_file, self._folder / "peers")
        return keys

    def settings(self, keys: KeyFiles, **changes: Any) -> PeerSettings:
        return PeerSettings.model_validate(
            {
                "listen": "tcp://0.0.0.0:0",
                "secret_key_file": keys.secret_file,
                "allowed": self._folder / "peers",
                **self._settings,
                **changes,
            }
        )

    def start(self, host: Namespace, keys: KeyFiles, **changes: Any) -> PeerNode:
        """Start a node on this host."""
        node = PeerNode(self.settings(keys, **changes), device_id=host.address)
        self._open.callback(node.stop, 0.0)
        on(host, node.start)
        self.nodes.append(node)
        return node

    def start_all(self) -> list[PeerNode]:
        """Start a node on each host, each with its own identity."""
        keys = [self.keys(f"device{index}") for index in range(len(self._network.nodes))]
        return [self.start(host, own) for host, own in zip(self._network.nodes, keys, strict=True)]

    def wait_complete(self, *nodes: PeerNode) -> None:
        """Wait until these nodes are peers of each other and of no other node."""
        chosen = nodes or tuple(self.nodes)
        ids = {node.node_id for node in chosen}
        wait_until(
            lambda: all(sees(node) == ids - {node.node_id} for node in chosen),
            what="all nodes being peers of each other",
        )

    def __enter__(self) -> "PeerHosts":
        self._open.enter_context(self._network)
        self._open.callback(lambda: [context.term() for context in self._contexts.values()])
        self._open.enter_context(mock.patch.object(transport, "process_context", self._context_of_the_host))
        return self

    def _context_of_the_host(self) -> zmq.Context[zmq.Socket[bytes]]:
        """ZeroMQ's threads belong to one host; a process on several hosts needs a context for each."""
        host = Path("/proc/thread-self/ns/net").stat().st_ino
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = zmq.Context()
            return self._contexts[host]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def sees(node: PeerNode) -> set[NodeId]:
    return {peer.node_id for peer in node.peers()}


def endpoints(node: PeerNode) -> dict[NodeId, str]:
    return {peer.node_id: peer.endpoint for peer in node.peers()}
