"""Presence on the network: the thread that runs `Membership`, with its beacons and pings.

One thread owns the membership. Other threads report events of peers (`heard`, `call_failed` and so on) and do
not block. The results are passed to ``changed`` from that one thread, in order.
"""

from __future__ import annotations

import random
import select
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InvalidArgument
from nearsight.common.logging import get_logger
from nearsight.common.rpc.service import CallContext, Service
from nearsight.common.rpc.sockets import Waker
from nearsight.device.peers.presence.addresses import (
    OwnAddresses,
    broadcast_targets,
    host_and_port,
    is_loopback,
)
from nearsight.device.peers.presence.beacons import BeaconExchange
from nearsight.device.peers.presence.identity import Identity, NodeId, proven_id, shown
from nearsight.device.peers.presence.membership import Actions, Membership
from nearsight.device.peers.presence.peer import Announce, Change, Event, Peer
from nearsight.device.peers.presence.pings import Ask, Ping, Pinger
from nearsight.device.peers.settings import PeerSettings
from nearsight.protos import peers_pb2

_LONGEST_WAIT_S = 1.0
"""Maximum time between two iterations [s]; also the delay until a device notices that it was suspended."""


class Discovery:
    """Finds the peers nearby and monitors them. Before `start` there are none.

    Its callbacks run on its own thread and must be short.

    Parameters
    ----------
    own : Identity
        This device, and the devices to share with.
    settings : PeerSettings
        Addresses, period, departure time.
    ping : callable
        Starts ``Peers.Ping`` at an endpoint, with the key of the node given (None: there are no keys), and
        returns a future of the answer, which ends by ``ping_timeout_s``. It may be called with this device's
        own id. A `NearsightError` that it raises counts as a missing answer.
    changed : callable
        Receives the live peers whenever one of them joined, was dropped, moved or restarted.
    slept : callable
        Called after this device was suspended, or its address changed: its data about peers may be outdated,
        and its connections may be dead. Called before the peers are pinged, and before ``changed``.
    clock : Clock
        The time.

    Raises
    ------
    ConfigurationError
        If there is no key for a static peer.
    """

    def __init__(
        self,
        own: Identity,
        settings: PeerSettings,
        ping: Ask,
        changed: Callable[[tuple[Peer, ...]], None],
        slept: Callable[[], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._own = own
        self._settings = settings
        self._changed = changed
        self._slept = slept
        self._clock = clock
        self._log = get_logger("peers.discovery")
        allowed = own.allowed
        static = [
            (allowed.node_named(peer.name) if allowed is not None else None, peer.endpoint)
            for peer in settings.static_peers()
        ]
        rng = random.Random()  # for the jitter of beacons, and the next stranger to ping
        self._membership = seen = Membership(own.node_id, own.incarnation, settings, static=static, rng=rng)
        self._beacons = BeaconExchange(own, settings)
        self.beacon_counts = self._beacons.counts
        self.counts = seen.counts
        """Counters of beacons, and of presence events, since the start."""
        self._addresses = OwnAddresses("")
        self._pinger = Pinger(
            ping,
            partial(self._queue, seen.ping_answered),
            partial(self._queue, seen.ping_failed),
            partial(self._queue, seen.ping_dropped),
            clock,
            rng,
        )
        self._events: deque[Callable[[], None]] = deque()
        self._heard: dict[NodeId, float] = {}
        self._lock = threading.RLock()
        self._waker = Waker()
        self._stopping = False
        self._offset_s = 0.0
        self._last = (clock.monotonic(), clock.wall())
        self._descriptor: int | None = None
        self._thread = threading.Thread(target=self._run, name="peers-discovery", daemon=True)

    def peers(self) -> tuple[Peer, ...]:
        """The live peers, including suspects; thread-safe."""
        with self._lock:
            return self._membership.live()

    def known(self) -> tuple[Peer, ...]:
        """All peers, including those that have not answered yet; thread-safe."""
        with self._lock:
            return self._membership.known()

    def seconds_since(self, time_s: float) -> float:
        """Seconds since a time of a `Peer`, including time in which the device was suspended."""
        with self._lock:
            return self._now_s() - time_s

    def start(self, endpoint: str) -> None:
        """Start to look for peers.

        Parameters
        ----------
        endpoint : str
            The endpoint that this device's server listens on, with its actual port.

        Raises
        ------
        AddressInUse
            If the port of the beacons cannot be used.
        """
        settings = self._settings
        host, port = host_and_port(endpoint)
        if settings.advertise:
            port = host_and_port(settings.advertise)[1]
        self._membership.listen_at(settings.advertise or endpoint)
        self._addresses = OwnAddresses(host)
        self._descriptor = self._beacons.open(host, port)
        if self._descriptor is not None and not broadcast_targets(host, settings.broadcast):
            self._log.warning(
                "beacons need IPv4, so other devices will not find this one",
                advice="listen on an IPv4 address or on [::], or name static peers and set broadcast = off",
            )
        self._thread.start()

    def stop(self, *, farewell: bool = True) -> None:
        """Stop; safe to call twice.

        Parameters
        ----------
        farewell : bool
            Broadcast that this device leaves, so that all peers ping it at once. Stop the server first,
            otherwise these pings succeed.
        """
        if self._stopping:
            return
        self._stopping = True
        if self._thread.is_alive():
            self._waker.wake()
            self._thread.join()
            if farewell:
                self._beacons.announce(leaving=True)
        self._beacons.close()
        self._waker.close()

    def introduced(self, node_id: NodeId, endpoint: str, incarnation: int) -> None:
        """Report that a peer proved its id in a ping and gave its own endpoint.

        Raises
        ------
        InvalidArgument
            If the endpoint is not of the form tcp://HOST:PORT, or on another machine although there are no
            keys.
        """
        host, _ = host_and_port(endpoint)
        if self._own.allowed is None and not is_loopback(host):
            raise InvalidArgument("without keys, peers must be on the same machine")
        self._queue(self._membership.introduced, node_id, endpoint, incarnation)

    def left(self, node_id: NodeId, incarnation: int) -> None:
        """Report that a peer proved its id and announced that it leaves."""
        self._queue(self._membership.left, node_id, incarnation)

    def heard(self, node_id: NodeId) -> None:
        """Report that a message came from a peer. Cheap, so that it can be called for every answer."""
        self._heard[node_id] = self._clock.monotonic() + self._offset_s

    def call_failed(self, node_id: NodeId) -> None:
        """Report that a call to a peer was not answered."""
        self._queue(self._membership.call_failed, node_id)

    def _queue(self, event: Callable[..., None], *facts: object) -> None:
        """Queue an event for the thread of the membership."""
        self._events.append(partial(event, *facts))
        self._waker.wake()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._waker.descriptor, select.POLLIN)
        if self._descriptor is not None:
            poller.register(self._descriptor, select.POLLIN)
        while not self._stopping:
            try:
                self._process()
            except Exception:  # noqa: BLE001  one bad datagram or callback must not stop discovery for good
                self._log.exception("an iteration of discovery failed")
            with self._lock:
                wait_s = self._membership.next_due_s() - self._now_s()
            poller.poll(1000 * min(max(wait_s, 0.001), _LONGEST_WAIT_S))
            self._waker.clear()

    def _process(self) -> None:
        """Process all events since the last iteration."""
        beacons, membership = self._beacons.receive(), self._membership
        with self._lock:
            now_s = self._now_s()
            membership.advance(now_s)
            if self._addresses.changed(now_s):
                membership.readdressed()
            while self._heard:
                membership.heard(*self._heard.popitem())
            while self._events:
                self._events.popleft()()
            for beacon, host in beacons:
                if beacon.leaving:
                    membership.leaving(beacon.node_id)
                else:
                    membership.beacon(beacon.node_id, f"tcp://{host}:{beacon.port}")
            membership.tick()
            actions = membership.take_actions()
        self._carry_out(actions)
        self._pinger.pump()

    def _now_s(self) -> float:
        # The monotonic clock stops while a machine is suspended, the wall clock does not.
        monotonic_s, wall_s = self._clock.monotonic(), self._clock.wall()
        suspended_s = (wall_s - self._last[1]) - (monotonic_s - self._last[0])
        if suspended_s > self._settings.departure_s:  # smaller differences may come from setting the clock
            self._offset_s += suspended_s
        self._last = (monotonic_s, wall_s)
        return monotonic_s + self._offset_s

    def _carry_out(self, actions: Actions) -> None:
        changes = {action.change for action in actions if isinstance(action, Event)}
        if changes & {Change.SLEPT, Change.READDRESSED}:
            self._slept()  # before any other action: answers to pings may arrive immediately
        for action in actions:
            match action:
                case Ping():
                    self._pinger.begin(action)
                case Announce():
                    self._beacons.announce()
                    self._drop_forbidden()
                case Event():
                    self._log_event(action)
        if changes & {Change.JOINED, Change.GONE, Change.MOVED}:
            self._changed(self.peers())

    def _drop_forbidden(self) -> None:
        """Drop peers whose key is not allowed any more. Otherwise those that answer calls would stay."""
        allowed = self._own.allowed
        if allowed is None:
            return
        for peer in self.peers():
            if allowed.public_key(peer.node_id) is None:
                self._queue(self._membership.forbidden, peer.node_id)

    def _log_event(self, event: Event) -> None:
        details = dict(event.details)
        if (peer := event.peer) is not None:
            details |= {"node": shown(peer.node_id), "device": peer.device_id, "endpoint": peer.endpoint}
        if event.change is Change.CONFLICT:
            advice = "give each device a key of its own with `nearsight keys generate`"
            self._log.warning(event.change.value, **details, advice=advice)
        else:
            self._log.info(event.change.value, **details)


class PeersService(Service):
    """Serves the pings and departures of peers.

    It has a worker of its own, so that a device still answers pings when its store is overloaded.

    Parameters
    ----------
    describe : callable
        Returns the description of this node for ping answers.
    discovery : Discovery
        Receives the endpoints and departures of callers.
    """

    descriptor: ClassVar[ServiceDescriptor] = peers_pb2.DESCRIPTOR.services_by_name["Peers"]
    own_worker: ClassVar[bool] = True

    def __init__(self, describe: Callable[[], peers_pb2.PingResponse], discovery: Discovery) -> None:
        self._describe = describe
        self._discovery = discovery

    def ping(self, request: peers_pb2.PingRequest, context: CallContext) -> peers_pb2.PingResponse:
        """Answer a ping. A caller that states its id and endpoint is reported to the membership.

        Raises
        ------
        InvalidArgument
            If the stated id is not a node id, or the endpoint cannot be used (see `Discovery.introduced`).
        Unauthenticated
            If the caller claims the id of another node.
        """
        if request.node_id:
            node = proven_id(request.node_id, context)
            if request.endpoint:
                self._discovery.introduced(node, request.endpoint, request.incarnation)
        return self._describe()

    def leave(self, request: peers_pb2.LeaveRequest, context: CallContext) -> peers_pb2.LeaveResponse:
        """Record that a peer leaves."""
        self._discovery.left(proven_id(request.node_id, context), request.incarnation)
        return peers_pb2.LeaveResponse()
