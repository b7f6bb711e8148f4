"""Connections to peers: one channel to each over a common socket; checks keys and counts bytes.

With keys, a peer is the node that proves to own the key from which its id is derived; without keys, the node
that answers at the address. Presence monitors the peers, so connections have no heartbeats, and a call to a
dropped peer fails at once. A connection may be dead without an error (after this device was suspended, or its
address changed). Therefore a ping opens a new connection, which replaces a broken one. Connecting with keys
is expensive, so the connection over which a peer was found is kept for later calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cachetools import LRUCache
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.background.futures import failed
from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded, NearsightError, Unauthenticated, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Channel, ChannelGroup, ChannelSettings, Reply
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.rpc.transport import Transport
from nearsight.device.peers.presence.discovery import Discovery
from nearsight.device.peers.presence.identity import Identity, NodeId, shown
from nearsight.device.peers.settings import PeerSettings

REPORT_EVERY_S = 0.5
"""Minimum time between two reports of a peer's answers to presence [s], unless the peer was in doubt."""
MESSAGE_OVERHEAD_BYTES = 64 * 1024
_REMEMBERED_PEERS = 8192
_SPARE_CHANNELS = 64
_ABSENT = (Unavailable, DeadlineExceeded, Unauthenticated)
"""Errors that mean that the peer cannot be reached, rather than that it refused."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of messages to and from a peer."""

    sent_bytes: int = 0
    received_bytes: int = 0


class TrafficByPeer:
    """Bytes of messages to and from each peer; kept while a peer is absent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: LRUCache[NodeId, Traffic] = LRUCache(_REMEMBERED_PEERS)

    def add(self, node: NodeId, sent_bytes: int, received_bytes: int) -> None:
        """Add the bytes of a call to a node, or of a call from it."""
        with self._lock:
            so_far = self._sums.get(node, Traffic())
            self._sums[node] = Traffic(so_far.sent_bytes + sent_bytes, so_far.received_bytes + received_bytes)

    def of(self, node: NodeId) -> Traffic:
        """The sums for one node."""
        with self._lock:
            return self._sums.get(node, Traffic())


@dataclass(slots=True, eq=False)
class PeerConnection:
    """The connection to one peer."""

    node: NodeId
    endpoint: str
    channel: Channel
    broken: bool = False
    """The last call on it failed."""
    slow: bool = False
    """The peer has exceeded the usual response time; another peer should be asked as well."""
    reported_s: float = float("-inf")
    """Time of the last report to presence that the peer answers."""


class PeerConnections:
    """The connections of a node to its peers. Thread-safe.

    Parameters
    ----------
    own : Identity
        This device, and the keys of its peers.
    settings : PeerSettings
        Secret key, limits, timeouts.
    clock : Clock
        Time of deadlines.
    discovery : Discovery
        Receives answers of peers and failed calls as signs of presence or absence.
    traffic : TrafficByPeer
        Receives the bytes of calls.
    """

    def __init__(
        self,
        own: Identity,
        settings: PeerSettings,
        clock: Clock,
        discovery: Discovery,
        traffic: TrafficByPeer,
    ) -> None:
        self._own = own
        self._secret = settings.secret_key_file
        self._clock = clock
        self._discovery = discovery
        self._channel_settings = ChannelSettings(
            connect_grace_s=0.0,
            connect_timeout_s=settings.ping_timeout_s,
            heartbeat_s=0.0,
            max_attempts=1,
            max_message_bytes=max_message_bytes(settings),
        )
        # One thread for all peers, and one descriptor for each connection.
        self._group = ChannelGroup(clock=clock, transport=Transport(find_reason=False))
        self._lock = threading.Lock()
        self._links: dict[NodeId, PeerConnection] = {}
        self._spare: dict[tuple[NodeId, str], Channel] = {}
        self._traffic = traffic
        self._closed = False
        self._log = get_logger("peers.connections")

    def update(self, peers: Iterable[tuple[NodeId, str]]) -> list[Channel]:
        """Hold connections to these peers, each at its endpoint, and to no others.

        Returns
        -------
        list of Channel
            The channels of dropped connections. Close them after all components have processed the change.
        """
        wanted = dict(peers)
        with self._lock:
            if self._closed:
                return []
            moved = [node for node, link in self._links.items() if wanted.get(node) != link.endpoint]
            dropped = [self._links.pop(node) for node in moved]
            for node, endpoint in wanted.items():
                if node not in self._links:
                    try:
                        channel = self._spare.pop((node, endpoint), None) or self._open(node, endpoint)
                        self._links[node] = PeerConnection(node, endpoint, channel)
                    except NearsightError as error:  # its key was removed after it joined
                        self._log.warning("no connection to a peer", node=shown(node), reason=str(error))
        return [link.channel for link in dropped]

    def _open(self, node: NodeId | None, endpoint: str) -> Channel:
        security = None
        if self._own.allowed is not None and self._secret is not None:
            key = self._own.allowed.public_key(node) if node is not None else None
            if key is None:
                raise Unauthenticated(
                    f"there is no key for the node {shown(node or 0)}",
                    advice="put the peer's NAME.key into the folder of allowed peers",
                )
            security = ClientSecurity(self._secret, key)
        return Channel(
            endpoint,
            client_id=shown(self._own.node_id),
            settings=self._channel_settings,
            security=security,
            clock=self._clock,
            group=self._group,
        )

    def probe(
        self, node: NodeId | None, endpoint: str, method: MethodDescriptor, request: Message, timeout_s: float
    ) -> Future[Reply]:
        """Start a call to an endpoint over a new connection, whether or not a peer is known there.

        Raises
        ------
        NearsightError
            If the node's key is not known, or the endpoint is not valid.
        """
        channel = self._open(node, endpoint)
        future = channel.call(method, request, timeout_s=timeout_s)
        future.add_done_callback(lambda done: self._probed(node, endpoint, channel, done))
        return future

    def call(
        self,
        node: NodeId,
        method: MethodDescriptor,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
    ) -> Future[Reply]:
        """Start a call to a peer; fails with `Unavailable` if it is not connected."""
        link = self._links.get(node)
        if link is None:
            return failed(_absent(node))
        channel = link.channel
        future = channel.call(method, request, timeout_s=timeout_s, blobs=blobs, catalogue=catalogue)
        future.add_done_callback(lambda done: self._ended(link, channel, done))
        return future

    def ask(self, node: NodeId, method: MethodDescriptor, request: Message, *, timeout_s: float) -> Reply:
        """Call a peer and block. A timeout is not reported to presence, as it may be short.

        Raises
        ------
        NearsightError
            The error that the peer returned, or of the call.
        """
        link = self._links.get(node)
        if link is None:
            raise _absent(node)
        channel = link.channel
        try:
            reply = channel.ask(method, request, timeout_s=timeout_s)
        except DeadlineExceeded:
            link.slow = True
            raise
        except NearsightError as error:
            self._failed(link, channel, error)
            raise
        self._answered(link, reply)
        return reply

    def is_slow(self, node: NodeId) -> bool:
        """Whether the peer has exceeded the usual response time."""
        link = self._links.get(node)
        return link is not None and link.slow

    def mark_slow(self, node: NodeId, *, doubt: bool = True) -> None:
        """Mark a peer as slow; with ``doubt``, report to presence that it may have left."""
        link = self._links.get(node)
        if link is not None:
            link.slow = True
            if doubt:
                self._discovery.call_failed(node)

    def mark_all_broken(self) -> None:
        """Mark all connections as broken, after this device was suspended or its address changed."""
        with self._lock:
            for link in self._links.values():
                link.broken = True

    def close(self) -> None:
        """Close all connections; calls on them fail."""
        with self._lock:
            self._closed = True
            channels = [*(link.channel for link in self._links.values()), *self._spare.values()]
            self._links.clear()
            self._spare.clear()
        for channel in channels:
            channel.close()
        self._group.close()

    def _probed(self, node: NodeId | None, endpoint: str, channel: Channel, done: Future[Reply]) -> None:
        """Handle the end of a ping: a working connection replaces a broken one, or is kept for later."""
        unused: Channel | None = channel
        if done.exception() is None:
            reply = done.result()
            node = node or getattr(reply.message, "node_id", None)
            with self._lock:
                link = self._links.get(node) if node else None
                if link is not None and link.endpoint == endpoint:
                    self._traffic.add(link.node, reply.sent_bytes, reply.received_bytes)
                    if link.broken:
                        unused, link.channel = link.channel, channel
                        link.broken = False
                elif node and not self._closed:
                    unused = self._spare.pop((node, endpoint), None)
                    self._spare[node, endpoint] = channel
                    if len(self._spare) > _SPARE_CHANNELS:
                        unused = unused or self._spare.pop(next(iter(self._spare)))
        if unused is not None:
            unused.close()

    def _ended(self, link: PeerConnection, channel: Channel, done: Future[Reply]) -> None:
        error = done.exception()
        if error is None:
            self._answered(link, done.result())
        elif isinstance(error, NearsightError):
            self._failed(link, channel, error)

    def _answered(self, link: PeerConnection, reply: Reply) -> None:
        doubted = link.slow or link.broken
        link.slow = link.broken = False
        self._traffic.add(link.node, reply.sent_bytes, reply.received_bytes)
        now_s = self._clock.monotonic()
        if doubted or now_s - link.reported_s >= REPORT_EVERY_S:
            link.reported_s = now_s
            self._discovery.heard(link.node)

    def _failed(self, link: PeerConnection, channel: Channel, error: NearsightError) -> None:
        if link.channel is channel and self._links.get(link.node) is link and isinstance(error, _ABSENT):
            link.broken = True
            self._discovery.call_failed(link.node)


def max_message_bytes(settings: PeerSettings) -> int:
    """The maximum size of a message between peers: one value of maximum size, or several small ones."""
    return 2 * settings.value_limit_bytes + 16 * MESSAGE_OVERHEAD_BYTES


def _absent(node: NodeId) -> Unavailable:
    return Unavailable(f"the peer {shown(node)} is not connected")
