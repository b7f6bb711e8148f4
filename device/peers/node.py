"""One device among its peers: presence, routing and the key-value store, wired together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import SYSTEM_CLOCK, Clock, Deadline
from nearsight.common.errors import ConfigurationError, InternalError, NearsightError, Unavailable
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.security import KeyPair, ServerSecurity, read_secret_key
from nearsight.common.rpc.server import RpcServer, ServerObserver, ServerSettings
from nearsight.common.rpc.service import Service
from nearsight.common.rpc.sockets import is_local
from nearsight.device.peers.presence.addresses import own_endpoint
from nearsight.device.peers.presence.discovery import (
    BeaconCounts,
    Discovery,
    DiscoveryHooks,
    OwnNode,
    PeersService,
    PresenceEvents,
)
from nearsight.device.peers.presence.identity import (
    AllowedPeers,
    NodeId,
    is_node_id,
    node_id_of_key,
    random_node_id,
)
from nearsight.device.peers.presence.peer import Peer, PingReply
from nearsight.device.peers.report import NodeCounts, PeersReport, PeerStatus, facts_of
from nearsight.device.peers.routing.cluster_view import ClusterView, View
from nearsight.device.peers.routing.connections import LinkEvents, PeerConnections, Traffic, max_message_bytes
from nearsight.device.peers.routing.kroute import Delivery, KRoute, OwnServices
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.peers.store.handover import HandoverWorker
from nearsight.device.peers.store.kvstore import KVStore, StoreClient
from nearsight.device.peers.store.local_store import Place
from nearsight.device.peers.store.replica_calls import Own
from nearsight.device.peers.store.service import StoreEvents, StoreService
from nearsight.device.peers.store.shared_store import SharedStore
from nearsight.protos.peers_pb2 import DESCRIPTOR, LeaveRequest, PingRequest, PingResponse

_PEERS = DESCRIPTOR.services_by_name["Peers"]
PING = _PEERS.methods_by_name["Ping"]
LEAVE = _PEERS.methods_by_name["Leave"]
RESEND_EVERY_S = 2.0
GOODBYE_S = 0.5
REFRESH_EVERY_S = 0.5
"""Reports make peers tell what they hold so often at most."""
REFRESH_WITHIN_S = 0.3
"""A report waits so long for what peers say, then shows what they said before."""
TIER = "peer"


@dataclass(frozen=True, slots=True)
class _Identity:
    node_id: NodeId
    keys: KeyPair | None
    allowed: AllowedPeers | None


def _identity_of(settings: PeerSettings, rng: random.Random) -> _Identity:
    if settings.allowed is not None and settings.secret_key_file is None:
        raise ConfigurationError(
            f"peers.allowed is {str(settings.allowed)!r}, but this device has no key of its own",
            advice="make one with `nearsight keys generate NAME --dir keys` and set peers.secret_key_file, "
            "or security.secret_key_file of the device daemon",
        )
    if settings.allowed is None and not is_local(settings.listen):
        raise ConfigurationError(
            f"peers on other machines can reach {settings.listen}, which needs keys",
            advice="set peers.allowed to a folder with the *.key files of the devices to share with "
            "(`nearsight keys allow KEY --dir FOLDER`), or listen on tcp://127.0.0.1:0",
        )
    if settings.secret_key_file is None or settings.allowed is None:
        return _Identity(random_node_id(rng), None, None)
    keys = read_secret_key(settings.secret_key_file)
    return _Identity(node_id_of_key(keys.public), keys, AllowedPeers(settings.allowed))


class PeerNode:
    """A device among its peers.

    Parameters
    ----------
    settings : PeerSettings
        Address, keys, limits.
    device_id : str
        Name for people.
    clock : Clock
        The time.
    rng : random.Random or None
        Node id without keys, incarnation, jitter; by default seeded by the system.
    services : sequence of Service
        Further services for peers, e.g. models.
    held : callable or None
        How many models this device can hand out.
    observer : ServerObserver or None
        Told of every call that peers make.

    Attributes
    ----------
    node_id : NodeId
        Who this device is.
    store : KVStore
        What the devices hold together.
    route : KRoute
        Calls to the devices that are responsible for a key.

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
        held: Callable[[], int] | None = None,
        observer: ServerObserver | None = None,
    ) -> None:
        self.settings = settings
        self.device_id = device_id
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._held = held
        identity = _identity_of(settings, self._rng)
        self.node_id = identity.node_id
        self.incarnation = int(random_node_id(self._rng))
        self._allowed = identity.allowed
        self._discovery: Discovery | None = None
        self._watchers: list[Callable[[tuple[Peer, ...]], None]] = []
        self._refreshed_s = float("-inf")
        self._started = False
        self._stopped = False
        self._cluster = ClusterView(self.node_id, View.of(self.node_id, self.incarnation, ()))
        key_of = self._allowed.public_key if self._allowed is not None else lambda _: None
        self._links = PeerConnections(
            self.node_id, settings, clock, key_of, LinkEvents(self._heard_of, self._failed_to_reach)
        )
        self._shared = SharedStore(settings, self.incarnation, clock)
        self._handover = HandoverWorker(
            self.node_id, self._shared, self._cluster, self._links, settings, clock
        )
        self._service = StoreService(
            self._shared,
            self._cluster,
            self._belongs_here,
            StoreEvents(self._handover.misplaced, self._handover.asked, self._links.count_served),
        )
        presence = PeersService(self._describe, PresenceEvents(self._introduced, self._left))
        all_services = [presence, self._service, *services]
        public_key = identity.keys.public if identity.keys is not None else None
        self.route = KRoute(
            self.node_id,
            self._cluster,
            Delivery(self._links, OwnServices(all_services, self.node_id, public_key, clock)),
        )
        self._timers = BackgroundWorker(clock, "peers-timers")
        self._client = StoreClient(
            self.route,
            self._links,
            Own(self._shared, self._service, self._cluster),
            settings,
            clock,
            self._timers,
            self._rng,
        )
        self.store = KVStore(self._client, self._shared, settings, self._rng)
        self._shared.place_by(self._place)
        self._server = RpcServer(
            all_services,
            tier=TIER,
            settings=ServerSettings(listen=settings.listen, max_message_bytes=max_message_bytes(settings)),
            security=_server_security(settings),
            clock=clock,
            observer=observer,
        )

    @property
    def endpoint(self) -> str:
        """Where peers reach this device, its port resolved."""
        return self.settings.advertise or self._server.endpoint

    def start(self) -> None:
        """Serve peers, and look for them.

        Raises
        ------
        AddressInUse, ConfigurationError
            If the address cannot be listened on.
        """
        self._server.start()
        try:
            discovery = Discovery(
                OwnNode(self.node_id, self.incarnation, self._server.endpoint),
                self.settings,
                DiscoveryHooks(self._ping, self._peers_changed, self._slept),
                allowed=self._allowed,
                clock=self._clock,
            )
            self._timers.start()
            self._timers.submit(self._resend, name="resend", after_s=RESEND_EVERY_S)
            self._handover.start()
            self._started = True
            self._discovery = discovery
            discovery.start()
        except NearsightError:
            self.stop(0.0)
            self._server.stop(0.0)
            raise

    def stop(self, grace_s: float = 2.0) -> None:
        """Hand over what peers should hold now, say goodbye and end; safe to call twice.

        Parameters
        ----------
        grace_s : float
            How long that may take; 0: go without a word, as if the device lost its power.
        """
        if self._stopped or not self._started:
            return
        self._stopped = True
        deadline = Deadline.after(grace_s, self._clock)
        if grace_s > 0 and self.peers():
            self._handover.leave(deadline.remaining_s())
            self._say_goodbye(min(grace_s, GOODBYE_S))
            # What was written while it was handed over.
            self._handover.leave(deadline.remaining_s())
        self._server.stop(min(grace_s, GOODBYE_S))
        if self._discovery is not None:
            self._discovery.stop(farewell=grace_s > 0)
        self._links.close()
        self._handover.stop()
        self._timers.stop(self.settings.read_timeout_s)
        self._client.close()

    def peers(self) -> tuple[Peer, ...]:
        """The peers that are there, suspects among them."""
        return self._discovery.peers() if self._discovery is not None else ()

    def watch(self, changed: Callable[[tuple[Peer, ...]], None]) -> None:
        """Have ``changed`` called, on a thread of presence, whenever peers came or went; it must not wait."""
        self._watchers.append(changed)

    def synchronised(self) -> bool:
        """Whether all peers have handed over what belongs here, given who is there."""
        return self._cluster.synchronised(self._cluster.view.digest)

    def held_keys(self) -> tuple[str, ...]:
        """The keys of all entries that are here, deleted ones included."""
        return self._shared.keys()

    @property
    def beacon_counters(self) -> BeaconCounts:
        """Beacons so far."""
        return self._discovery.beacon_counts if self._discovery is not None else BeaconCounts()

    def traffic(self) -> dict[NodeId, Traffic]:
        """Bytes of messages to and from each peer, those that are gone included."""
        return self._links.traffic()

    def count_served(self, node: NodeId, sent_bytes: int, received_bytes: int) -> None:
        """Add the traffic of a call to one of the further services to that of the node that made it."""
        self._links.count_served(node, sent_bytes, received_bytes)

    def report(self) -> PeersReport:
        """What there is to say about peers; they are asked before, and have a moment to answer."""
        discovery = self._discovery
        now_s = self._clock.monotonic()
        if discovery is not None and now_s - self._refreshed_s >= REFRESH_EVERY_S:
            self._refreshed_s = now_s
            discovery.refresh(REFRESH_WITHIN_S)
        known = discovery.known() if discovery is not None else ()
        traffic = self._links.traffic()
        since = discovery.seconds_since if discovery is not None else (lambda _: 0.0)
        counts = NodeCounts(
            discovery.beacon_counts if discovery is not None else None,
            discovery.counts if discovery is not None else None,
            self._client.counts,
            self._service.counts,
            self._handover.counts,
            self._shared.counts,
        )
        return PeersReport(
            self.node_id,
            self.device_id,
            self.endpoint,
            [_status(peer, traffic.get(peer.node_id, Traffic()), since) for peer in known],
            facts_of(counts, len(self._shared), self._shared.size_bytes, synchronised=self.synchronised()),
        )

    def _describe(self) -> PingResponse:
        return PingResponse(
            node_id=self.node_id,
            incarnation=self.incarnation,
            device_id=self.device_id,
            keys=len(self._shared),
            store_bytes=self._shared.size_bytes,
            models=self._held() if self._held is not None else 0,
        )

    def _ping(self, node: NodeId | None, endpoint: str) -> Future[PingReply]:
        request = PingRequest(
            node_id=self.node_id,
            endpoint=own_endpoint(self._server.endpoint, self.settings.advertise, endpoint),
            incarnation=self.incarnation,
        )
        call = self._links.probe(node, endpoint, PING, request, self.settings.ping_timeout_s)
        answer: Future[PingReply] = Future()
        call.add_done_callback(lambda done: _answer_ping(done, answer))
        return answer

    def _peers_changed(self, peers: tuple[Peer, ...]) -> None:
        """On the thread of presence."""
        before = self._cluster.view
        view = View.of(self.node_id, self.incarnation, ((peer.node_id, peer.incarnation) for peer in peers))
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
            watcher(peers)

    def _slept(self) -> None:
        self._links.doubt_all()
        self._cluster.forget()
        self._handover.resynchronise()

    def _introduced(self, node: NodeId, endpoint: str, incarnation: int) -> None:
        if self._discovery is not None:
            self._discovery.introduced(node, endpoint, incarnation)

    def _left(self, node: NodeId, incarnation: int) -> None:
        if self._discovery is not None:
            self._discovery.left(node, incarnation)

    def _heard_of(self, node: NodeId) -> None:
        if self._discovery is not None:
            self._discovery.heard(node)

    def _failed_to_reach(self, node: NodeId) -> None:
        if self._discovery is not None:
            self._discovery.call_failed(node)

    def _place(self, key: str) -> Place:
        replicas = self.route.nodes_for(key, self.settings.replicas)
        if self.node_id not in replicas:
            return Place.SPARE
        return Place.FIRST if replicas[0] == self.node_id else Place.REPLICA

    def _belongs_here(self, key: str) -> bool:
        return self.node_id in self.route.nodes_for(key, self.settings.replicas)

    def _resend(self) -> None:
        self._timers.submit(self._resend, name="resend", after_s=RESEND_EVERY_S)
        self.store.resend()

    def _say_goodbye(self, timeout_s: float) -> None:
        request = LeaveRequest(node_id=self.node_id, incarnation=self.incarnation)
        calls = [self._links.call(peer.node_id, LEAVE, request, timeout_s=timeout_s) for peer in self.peers()]
        wait(calls, timeout_s)


def _server_security(settings: PeerSettings) -> ServerSecurity | None:
    if settings.secret_key_file is None or settings.allowed is None:
        return None
    return ServerSecurity(settings.secret_key_file, settings.allowed)


def _answer_ping(done: Future[Reply], answer: Future[PingReply]) -> None:
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
        return
    message = done.result().message
    if not isinstance(message, PingResponse):
        answer.set_exception(InternalError("a ping was answered with something else"))
    elif not is_node_id(message.node_id):
        answer.set_exception(Unavailable("who answers there has no id"))
    else:
        answer.set_result(
            PingReply(
                NodeId(message.node_id),
                message.incarnation,
                message.device_id,
                message.keys,
                message.store_bytes,
                message.models,
            )
        )


def _status(peer: Peer, traffic: Traffic, since: Callable[[float], float]) -> PeerStatus:
    reply = peer.reply
    return PeerStatus(
        node_id=peer.node_id,
        device_id=peer.device_id,
        endpoint=peer.endpoint,
        state=peer.state.value,
        heard_s_ago=since(peer.heard_s),
        present_s=since(peer.since_s),
        keys=reply.keys if reply is not None else 0,
        store_bytes=reply.store_bytes if reply is not None else 0,
        models=reply.models if reply is not None else 0,
        sent_bytes=traffic.sent_bytes,
        received_bytes=traffic.received_bytes,
        round_trip_ms=1000 * peer.round_trip_s,
    )
