"""A device in the peer network: combines presence, routing and the key-value store."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import fields, replace
from functools import partial

from nearsight.common.background.futures import flat, in_thread, then
from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.rpc.call import Reply
from nearsight.common.rpc.endpoints import split_name
from nearsight.common.rpc.security import ServerSecurity
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.common.rpc.service import Deadline, Service
from nearsight.device.peers.presence.addresses import own_endpoint
from nearsight.device.peers.presence.discovery import Discovery, PeersService
from nearsight.device.peers.presence.identity import Identity, NodeId, is_node_id
from nearsight.device.peers.presence.peer import Peer, PingReply
from nearsight.device.peers.report import HOLDS, PeersReport, PeerStatus, presence_facts, store_facts
from nearsight.device.peers.routing.cluster_view import ClusterView, View
from nearsight.device.peers.routing.connections import PeerConnections, TrafficByPeer, max_message_bytes
from nearsight.device.peers.routing.kroute import KRoute
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.handover import HandoverWorker
from nearsight.device.peers.store.kvstore import KVStore
from nearsight.device.peers.store.local_store import Place
from nearsight.device.peers.store.replica_calls import ReplicaCalls
from nearsight.device.peers.store.service import StoreService
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.protos.peers_pb2 import DESCRIPTOR, LeaveRequest, PingRequest, PingResponse

_PEERS = DESCRIPTOR.services_by_name["Peers"]
PING = _PEERS.methods_by_name["Ping"]
LEAVE = _PEERS.methods_by_name["Leave"]
RESEND_EVERY_S = 2.0
LEAVE_TIMEOUT_S = 0.5
QUERY_EVERY_S = 0.5
"""Minimum time between two queries of peers for reports [s]."""
QUERY_TIMEOUT_S = 0.3
"""Maximum time that a report waits for answers of peers [s]; without an answer it shows the previous one."""
LONGEST_DEVICE_ID = 200
"""Maximum number of characters of a peer's name that are kept; a peer may send any text."""
TIER = "peer"
_HEARTBEAT_S = 3600.0
"""Heartbeat period of the server [s]. Presence detects departures; heartbeats only close connections of
devices that vanished. With the default of 5 s, heartbeats between 20 idle devices caused 14 times the bytes
of their beacons."""


class PeerNode:
    """A device in the peer network.

    Parameters
    ----------
    settings : PeerSettings
        Address, keys, limits.
    device_id : str
        Name of the device for people.
    clock : Clock
        The time.
    rng : random.Random or None
        For the node id without keys, the incarnation and jitter; by default seeded by the system.
    services : sequence of Service
        Further services for peers, e.g. models.
    model_count : callable
        Returns the number of models that this device can provide; by default 0.
    traffic : TrafficByPeer or None
        Bytes by peer, to which ``services`` add theirs.

    Raises
    ------
    ConfigurationError
        If an address or key cannot be used.
    """

    def __init__(
        self,
        settings: PeerSettings,
        *,
        device_id: str,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        services: Sequence[Service] = (),
        model_count: Callable[[], int] = lambda: 0,
        traffic: TrafficByPeer | None = None,
    ) -> None:
        self.settings = settings
        self.device_id = device_id
        self._clock = clock
        self._model_count = model_count
        rng = rng or random.SystemRandom()
        self.identity = own = Identity.of(settings, rng)
        self.node_id = own.node_id
        """The node id of this device."""
        self._watchers: list[Callable[[], None]] = []
        self._queried_s = float("-inf")
        self._answers: dict[NodeId, tuple[PingReply, float]] = {}
        self._stopped = False
        self._discovery = Discovery(own, settings, self._ping, self._peers_changed, self._slept, clock=clock)
        self.beacon_counters = self._discovery.beacon_counts
        """Counters of beacons since the start."""
        self._cluster = ClusterView(own.node_id, View.of(own.node_id, own.incarnation, ()))
        self._traffic = traffic or TrafficByPeer()
        self._links = PeerConnections(own, settings, clock, self._discovery, self._traffic)
        self.route = KRoute(self._cluster, self._links)
        """Calls to the devices that are responsible for a key."""
        self._shared = SharedStore(settings, own.incarnation, clock)
        self._shared.place_by(self._place)
        self._handover = HandoverWorker(self._shared, self.route, settings, clock)
        self._service = StoreService(
            self._shared,
            self._cluster,
            misplaced=self._handover.misplaced,
            offers_requested=self._handover.offers_requested,
            traffic=self._traffic,
        )
        self._timers = BackgroundWorker(clock, "peers-timers")
        self._calls = ReplicaCalls(self.route, self._service, settings, clock, self._timers, rng)
        self.store = KVStore(self._calls, rng)
        """The key-value store that the devices share."""
        secret, allowed = settings.secret_key_file, settings.allowed
        self._server = RpcServer(
            [PeersService(self._describe, self._discovery), self._service, *services],
            tier=TIER,
            settings=ServerSettings(
                listen=settings.listen,
                max_message_bytes=max_message_bytes(settings),
                heartbeat_s=_HEARTBEAT_S,
            ),
            security=ServerSecurity(secret, allowed) if secret and allowed else None,
            clock=clock,
        )

    @property
    def endpoint(self) -> str:
        """The endpoint of this device for peers, with its actual port."""
        return self.settings.advertise or self._server.endpoint

    def start(self) -> None:
        """Serve peers, and look for them.

        Raises
        ------
        AddressInUse, ConfigurationError
            If the server cannot listen on the address.
        """
        try:
            self._server.start()
            self._timers.start()
            self._timers.submit(self._resend, name="resend", after_s=RESEND_EVERY_S)
            self._handover.start()
            self._discovery.start(self._server.endpoint)
        except NearsightError:
            self.stop(0.0)
            raise

    def stop(self, grace_s: float = 2.0) -> None:
        """Hand over the entries of this node, announce the departure and stop; safe to call twice.

        Parameters
        ----------
        grace_s : float
            Maximum duration [s]; 0: stop without any message, as in a power failure.
        """
        if self._stopped:
            return
        self._stopped = True
        deadline = Deadline.after(grace_s, self._clock)
        hands_over = grace_s > 0 and bool(self.peers())
        if hands_over:
            self._handover.leave(deadline.remaining_s())
            self._announce_departure(min(grace_s, LEAVE_TIMEOUT_S))
        self.store.close()
        if hands_over:  # entries written meanwhile; from now on writes fail, as no peer would get them
            self._handover.leave(deadline.remaining_s())
        self._server.stop(min(grace_s, LEAVE_TIMEOUT_S))
        self._discovery.stop(farewell=grace_s > 0)
        self._links.close()
        self._handover.stop()
        self._timers.stop(self.settings.read_timeout_s)

    def peers(self) -> tuple[Peer, ...]:
        """The live peers, including suspects."""
        return self._discovery.peers()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` on a thread of presence whenever peers joined or left; it must not block."""
        self._watchers.append(changed)

    def synchronised(self) -> bool:
        """Whether all peers have handed over the entries for this node, in the current view."""
        return self._cluster.synchronised(self._cluster.view.digest)

    def held_keys(self) -> tuple[str, ...]:
        """The keys of all entries held here, including deleted ones."""
        return self._shared.keys()

    def report(self) -> PeersReport:
        """A report about this node and its peers. The peers are queried first, with a short timeout."""
        discovery, entries = self._discovery, self._shared.entries
        self._query_peers()
        complete = "complete" if self.synchronised() else "not yet complete"
        facts = [
            *presence_facts(discovery.beacon_counts, discovery.counts),
            (HOLDS, f"{len(entries)} keys, {entries.size_bytes} bytes, {complete}"),
            *store_facts(entries.counts, self._calls.counts, self._service.counts, self._handover.counts),
        ]
        peers = [
            PeerStatus.of(
                self._with_last_answer(peer), self._traffic.of(peer.node_id), discovery.seconds_since
            )
            for peer in discovery.known()
        ]
        return PeersReport(self.node_id, self.device_id, self.endpoint, peers, facts)

    def _query_peers(self) -> None:
        now_s, timeout_s = self._clock.monotonic(), self.settings.ping_timeout_s
        if now_s - self._queried_s < QUERY_EVERY_S:
            return
        self._queried_s = now_s

        def record(node: NodeId, reply: Reply) -> None:
            self._answers[node] = _ping_reply(reply), self._clock.monotonic() - now_s

        nodes = {peer.node_id for peer in self.peers()}
        self._answers = {node: self._answers[node] for node in nodes & self._answers.keys()}
        calls = {node: self._links.call(node, PING, PingRequest(), timeout_s=timeout_s) for node in nodes}
        wait([then(call, partial(record, node)) for node, call in calls.items()], QUERY_TIMEOUT_S)

    def _with_last_answer(self, peer: Peer) -> Peer:
        """A peer with its last answer to a query for reports, unless it restarted since."""
        reply, round_trip_s = self._answers.get(peer.node_id, (None, 0.0))
        if reply is None or reply.incarnation != peer.incarnation:
            return peer
        return replace(peer, reply=reply, round_trip_s=round_trip_s)

    def _describe(self) -> PingResponse:
        return PingResponse(
            node_id=self.node_id,
            incarnation=self.identity.incarnation,
            device_id=self.device_id,
            keys=len(self._shared.entries),
            store_bytes=self._shared.entries.size_bytes,
            models=self._model_count(),
        )

    def _ping(self, node: NodeId | None, endpoint: str) -> Future[PingReply]:
        if not split_name(endpoint)[0]:
            return self._ping_now(node, endpoint)
        # Resolving a name may take many seconds, and must not block presence.
        return flat(in_thread(partial(self._ping_now, node, endpoint), "peers-name"))

    def _ping_now(self, node: NodeId | None, endpoint: str) -> Future[PingReply]:
        request = PingRequest(
            node_id=self.node_id,
            endpoint=own_endpoint(self._server.endpoint, self.settings.advertise, endpoint),
            incarnation=self.identity.incarnation,
        )
        call = self._links.probe(node, endpoint, PING, request, self.settings.ping_timeout_s)
        return then(call, _ping_reply)

    def _peers_changed(self, peers: tuple[Peer, ...]) -> None:
        """Update connections, routing and hand-over. Called on the thread of presence."""
        before = self._cluster.view
        view = View.of(
            self.node_id, self.identity.incarnation, ((peer.node_id, peer.incarnation) for peer in peers)
        )
        dropped = self._links.update((peer.node_id, peer.endpoint) for peer in peers)
        if view.digest != before.digest:
            self._cluster.update(view)
            self._shared.place_by(self._place)
            for node in before.nodes - view.nodes:
                self._shared.claimant_gone(node)
            self._handover.changed(before, view)
        for channel in dropped:
            channel.close()
        for watcher in self._watchers:
            watcher()

    def _slept(self) -> None:
        self._links.mark_all_broken()
        self._cluster.discard_reports()
        self._handover.resynchronise()

    def _place(self, key: str) -> Place:
        replicas = self.route.nodes_for(key, self.settings.replicas)
        if self.node_id not in replicas:
            return Place.SPARE
        return Place.FIRST if replicas[0] == self.node_id else Place.REPLICA

    def _resend(self) -> None:
        self._timers.submit(self._resend, name="resend", after_s=RESEND_EVERY_S)
        self.store.resend()

    def _announce_departure(self, timeout_s: float) -> None:
        request = LeaveRequest(node_id=self.node_id, incarnation=self.identity.incarnation)
        calls = [self._links.call(peer.node_id, LEAVE, request, timeout_s=timeout_s) for peer in self.peers()]
        wait(calls, timeout_s)


def _ping_reply(reply: Reply) -> PingReply:
    message: PingResponse = reply.message
    if not is_node_id(message.node_id):
        raise Unavailable("the answering node has no valid id")
    told = PingReply(**{field.name: getattr(message, field.name) for field in fields(PingReply)})
    return replace(told, device_id=told.device_id[:LONGEST_DEVICE_ID])
