"""Membership of the peers as a pure state machine: events in, actions out (Cachier dissertation, 5.3.2).

A node whose beacon or ping is received is *joining* until it answers a ping over TCP under the same id. Then
it is *live*. If no message of it arrives for the departure time, or a call to it fails, it is *suspect* and
pinged. It is dropped only if two consecutive pings fail. Suspects remain in `live`, as lost frames must not
move any keys.

Beacons prove nothing, therefore they can only cause pings. Pings are limited: one at a time for each address,
with back-off for an address whose pings fail. The data kept about strangers is bounded.

The *incarnation* distinguishes processes that use the same id. Another incarnation at the same endpoint is a
restart: the new process has none of the data that the old one held, so the peer is reported as gone and
joined. After an answer from a new endpoint the old endpoint is pinged as well. If that ping fails, the same
process has moved, or another process has replaced it. If both endpoints answer, the same process has an alias
(it is on two networks). Two processes with one id are a conflict: the first one stays, and the conflict is
reported.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import FIFOCache

from nearsight.device.peers.presence.identity import NodeId, shown
from nearsight.device.peers.presence.peer import (
    NEVER,
    NOT_DUE,
    Announce,
    Change,
    Event,
    Peer,
    PeerState,
    PingReply,
    TrackedPeer,
)
from nearsight.device.peers.presence.pings import Ping, PingLimits
from nearsight.device.peers.settings import PeerSettings

Action = Ping | Announce | Event
Actions = tuple[Action, ...]

JITTER = 0.1
"""Fraction of the period by which beacons are shifted at random, so that those of many devices spread out."""
MIN_PING_GAP_S = 0.5
"""Minimum time between the last answer of a peer and a ping because it became suspect [s]."""
PINGS_BEFORE_GONE = 2
"""Consecutive failed pings after which a peer is dropped. A radio channel may lose a frame of the handshake,
and TCP may retransmit it only after the ping has timed out."""
REMEMBERED_DEPARTURES = 1024


@dataclass(slots=True)
class MembershipCounts:
    """Counters of presence events."""

    joined: int = 0
    gone: int = 0
    moved: int = 0
    conflicts: int = 0
    slept: int = 0
    pings: int = 0
    pings_failed: int = 0
    impostors: int = 0
    """Answers to pings under another id than the expected one."""
    over_limit: int = 0
    """Unknown nodes that were ignored because the limit of peers was reached."""


class Membership:
    """The peers of this device and their states. Not thread-safe: one thread owns it.

    Call `advance` with the time, then report events, then carry out `take_actions`.

    Parameters
    ----------
    own : NodeId
        This device.
    incarnation : int
        Random number of this process.
    settings : PeerSettings
        Period, departure time, limits.
    static : sequence of (NodeId or None, str)
        Peers to ping without beacons: the id, None without keys, and the endpoint.
    rng : random.Random
        For the jitter of the beacons.
    """

    def __init__(
        self,
        own: NodeId,
        incarnation: int,
        settings: PeerSettings,
        *,
        static: Sequence[tuple[NodeId | None, str]] = (),
        rng: random.Random,
    ) -> None:
        self.own = own
        self.incarnation = incarnation
        self.counts = MembershipCounts()
        self._settings = settings
        self._rng = rng
        self._nodes: dict[NodeId, TrackedPeer] = {}
        self._own_endpoints: set[str] = set()
        self._static = {where: who for who, where in static if who != own}
        self._at_static: dict[str, NodeId] = {}
        """The node that last answered at each endpoint. Without keys, a restarted node has another id."""
        self._pings = PingLimits(settings.period_s)
        self._left: FIFOCache[NodeId, int] = FIFOCache(REMEMBERED_DEPARTURES)
        self._now_s = float("inf")
        self._announce_s = float("-inf")
        self._static_s = float("-inf")
        self._actions: list[Action] = []

    def listen_at(self, endpoint: str) -> None:
        """Add an endpoint of this device itself."""
        self._own_endpoints.add(endpoint)
        self._static.pop(endpoint, None)

    def advance(self, now_s: float) -> None:
        """Set the time of the next events [s]; it must not decrease.

        A gap above the departure time means that this device was suspended.
        """
        gap_s, self._now_s = now_s - self._now_s, now_s
        if gap_s > self._settings.departure_s:
            self.counts.slept += 1
            self._actions.append(Event(Change.SLEPT, details={"seconds": round(gap_s, 1)}))
            self._suspect_all()

    def take_actions(self) -> Actions:
        """The actions that result from the events since the last call."""
        actions, self._actions = tuple(self._actions), []
        return actions

    def live(self) -> tuple[Peer, ...]:
        """Peers that joined and were not dropped, including suspects, ordered by id."""
        return tuple(peer for peer in self.known() if peer.state is not PeerState.JOINING)

    def known(self) -> tuple[Peer, ...]:
        """All peers, including those that have not answered yet, ordered by id."""
        return tuple(self._nodes[node_id].peer() for node_id in sorted(self._nodes))

    def next_due_s(self) -> float:
        """Time at which `tick` must be called next, unless events come first."""
        due_s = [self._announce_s]
        if self._static:
            due_s.append(self._static_s)
        for node in self._nodes.values():
            due_s.append(node.due_s)
            if node.state is PeerState.LIVE:
                due_s.append(node.heard_s + self._settings.departure_s)
        return min(due_s)

    def tick(self) -> None:
        """Send beacons and pings that are due, and mark silent peers as suspect."""
        if self._now_s >= self._announce_s:
            self._actions.append(Announce())
            self._announce_s = self._now_s + self._settings.period_s * (1 + JITTER * self._rng.uniform(-1, 1))
        for node in self._nodes.values():
            if node.state is PeerState.LIVE and self._now_s >= node.heard_s + self._settings.departure_s:
                self._suspect(node, "silent")
            if self._now_s >= node.due_s:
                self._check(node)
        if self._static and self._now_s >= self._static_s:
            self._ping_static_peers()
            self._static_s = self._now_s + self._settings.period_s

    def beacon(self, node_id: NodeId, endpoint: str) -> None:
        """A beacon came from this endpoint. It may be forged."""
        node = self._nodes.get(node_id)
        if node_id == self.own:
            if endpoint not in self._own_endpoints:
                self._ping(node_id, endpoint)
        elif node is None:
            self._add_stranger(node_id, endpoint)
        elif node.answers_at(endpoint):
            node.sign_of_life(self._now_s)
        else:
            self._ping(node_id, endpoint)

    def leaving(self, node_id: NodeId) -> None:
        """A beacon announces that its sender leaves. It may be forged, so the peer is pinged."""
        node = self._nodes.get(node_id)
        if node is not None and node.state is PeerState.LIVE:
            self._suspect(node, "left")

    def introduced(self, node_id: NodeId, endpoint: str, incarnation: int) -> None:
        """A node that proved its id pinged this one, and stated its own endpoint."""
        node = self._nodes.get(node_id)
        if node_id == self.own:
            return
        if node is None:
            self._pings.reset(node_id, endpoint)
            self._add_stranger(node_id, endpoint)
        elif node.incarnation != incarnation:
            self._ping(node_id, endpoint, force=True)
        else:
            node.sign_of_life(self._now_s)
            if not node.answers_at(endpoint):
                self._ping(node_id, endpoint)

    def ping_answered(self, ping: Ping, reply: PingReply, round_trip_s: float) -> None:
        """A ping was answered."""
        if ping.node_id is not None and reply.node_id != ping.node_id:
            self.counts.impostors += 1
            self.ping_failed(ping)
            return
        self._pings.ended(ping)
        if reply.node_id == self.own:
            if reply.incarnation == self.incarnation:
                self.listen_at(ping.endpoint)
            else:
                self._conflict(self.own, ping.endpoint)
            return
        if ping.endpoint in self._static:
            self._at_static[ping.endpoint] = reply.node_id
        self._answered(ping.endpoint, reply)
        node = self._nodes.get(reply.node_id)
        if node is not None and node.endpoint == ping.endpoint:
            node.round_trip_s = round_trip_s
            self._pings.reset(ping.node_id, ping.endpoint)

    def ping_failed(self, ping: Ping) -> None:
        """A ping failed, or was not answered in time."""
        if not self._pings.ended(ping):
            return  # the ping started before this device was suspended
        self.counts.pings_failed += 1
        self._pings.back_off(ping.node_id, ping.endpoint, self._now_s)
        node = self._nodes.get(ping.node_id) if ping.node_id is not None else None
        if node is None:
            return
        if not node.joined:
            self._remove_stranger(node.node_id)
            return
        node.aliases.pop(ping.endpoint, None)
        node.unanswered += ping.endpoint == node.endpoint
        if ping.endpoint == node.endpoint or node.endpoint_failed:
            self._give_up_endpoint(node)

    def ping_dropped(self, ping: Ping) -> None:
        """A ping was not started because too many strangers wait; the next beacon may cause another one."""
        if self._pings.ended(ping) and ping.node_id is not None:
            self._remove_stranger(ping.node_id)

    def heard(self, node_id: NodeId, at_s: float) -> None:
        """A peer answered a call at ``at_s``. Unlike a beacon, this shows that the peer can be reached."""
        node = self._nodes.get(node_id)
        if node is not None and node.joined:
            node.sign_of_life(at_s)
            if at_s > node.suspected_s:
                node.confirm()

    def call_failed(self, node_id: NodeId) -> None:
        """A call to a peer was not answered."""
        node = self._nodes.get(node_id)
        if node is not None and node.joined:
            self._suspect(node, "unreachable")

    def left(self, node_id: NodeId, incarnation: int) -> None:
        """A peer proved its id and announced that it leaves."""
        node = self._nodes.get(node_id)
        if node is None or node.incarnation in {0, incarnation}:
            self._left[node_id] = incarnation
        if node is not None and node.incarnation == incarnation:
            self._drop(node, "left")

    def forbidden(self, node_id: NodeId) -> None:
        """The key of a node is not allowed any more."""
        node = self._nodes.get(node_id)
        if node is not None:
            self._drop(node, "forbidden")

    def readdressed(self) -> None:
        """This device's address changed: its connections are dead, and peers must receive the new address."""
        self._suspect_all()
        self._actions.append(Event(Change.READDRESSED))

    def _suspect_all(self) -> None:
        self._announce_s = self._static_s = float("-inf")
        self._pings.reset_all()  # pings in progress fail for reasons that do not concern the peers
        for node in self._nodes.values():
            node.other_answer, node.answered_s = None, NEVER
            if node.joined:
                self._suspect(node, "silent")
            else:
                self._ping(node.node_id, node.endpoint, force=True)

    def _ping(self, node_id: NodeId | None, endpoint: str, *, force: bool = False) -> bool:
        if self._pings.is_under_way(node_id, endpoint):
            return True
        node = self._nodes.get(node_id) if node_id is not None else None
        joined = node is not None and node.joined
        if not force and not self._pings.may_ping(node_id, endpoint, self._now_s, joined=joined):
            return False
        self.counts.pings += 1
        urgent = node is not None and node.answers_at(endpoint)
        self._actions.append(self._pings.start(node_id, endpoint, urgent=urgent))
        return True

    def _add_stranger(self, node_id: NodeId, endpoint: str) -> None:
        if self._is_full():
            self.counts.over_limit += 1
        elif self._ping(node_id, endpoint):
            self._nodes[node_id] = TrackedPeer(node_id, endpoint, self._now_s, self._now_s)

    def _is_full(self) -> bool:
        # Strangers that have not answered do not count: beacons of invented nodes could fill the limit.
        return sum(node.joined for node in self._nodes.values()) >= self._settings.max_peers

    def _remove_stranger(self, node_id: NodeId) -> None:
        node = self._nodes.get(node_id)
        if node is not None and not node.joined and not self._pings.is_pinging(node_id):
            del self._nodes[node_id]

    def _suspect(self, node: TrackedPeer, why: str) -> None:
        node.suspect(why)
        node.suspected_s = self._now_s
        earliest_s = node.answered_s + MIN_PING_GAP_S
        if self._now_s >= earliest_s:
            self._check(node)
        else:
            node.due_s = earliest_s

    def _check(self, node: TrackedPeer) -> None:
        node.due_s = NOT_DUE
        for endpoint in (node.endpoint, *node.aliases):
            self._ping(node.node_id, endpoint, force=True)

    def _answered(self, endpoint: str, reply: PingReply) -> None:
        node = self._nodes.get(reply.node_id)
        if self._left.get(reply.node_id) == reply.incarnation:
            if node is not None and not node.joined:
                del self._nodes[node.node_id]
        elif node is None or not node.joined:
            self._join(endpoint, reply)
        elif endpoint != node.endpoint:
            self._answered_at_other(node, endpoint, reply)
        elif reply.incarnation != node.incarnation:
            self._drop(node, "restarted")
            self._join(endpoint, reply)
        else:
            node.reply, node.answered_s, node.endpoint_failed = reply, self._now_s, False
            node.sign_of_life(self._now_s)
            node.confirm()
            self._keep_endpoint(node)

    def _answered_at_other(self, node: TrackedPeer, endpoint: str, reply: PingReply) -> None:
        node.other_answer = (endpoint, reply)
        if node.endpoint_failed:
            self._give_up_endpoint(node)
        elif endpoint not in node.aliases:
            self._ping(node.node_id, node.endpoint, force=True)

    def _keep_endpoint(self, node: TrackedPeer) -> None:
        """Handle an answer of its endpoint: an answer from elsewhere is an alias or a conflict."""
        if node.other_answer is None:
            return
        endpoint, reply = node.other_answer
        node.other_answer = None
        if reply.incarnation == node.incarnation:
            node.add_alias(endpoint)
            self._pings.reset(node.node_id, endpoint)
        else:
            self._conflict(node.node_id, endpoint)

    def _give_up_endpoint(self, node: TrackedPeer) -> None:
        """Handle a failed endpoint: a process that answered elsewhere replaces it, or the peer is dropped."""
        if node.other_answer is not None:
            endpoint, reply = node.other_answer
            if reply.incarnation == node.incarnation:
                before = node.endpoint
                node.reply, node.answered_s = reply, self._now_s
                node.sign_of_life(self._now_s)
                node.move(endpoint)
                self.counts.moved += 1
                self._actions.append(Event(Change.MOVED, node.peer(), {"before": before}))
            else:
                self._drop(node, "replaced")
                self._join(endpoint, reply)
        elif any(self._pings.is_under_way(node.node_id, alias) for alias in node.aliases):
            node.endpoint_failed = True
        elif node.unanswered < PINGS_BEFORE_GONE:
            # Beacons may still arrive from it, but a peer that cannot be reached is of no use.
            node.suspect(node.suspicion or "unreachable")
            self._check(node)
        else:
            self._drop(node, node.suspicion)

    def _join(self, endpoint: str, reply: PingReply) -> None:
        if self._is_full():
            self.counts.over_limit += 1
            self._remove_stranger(reply.node_id)
            return
        node = TrackedPeer(reply.node_id, endpoint, self._now_s, self._now_s, reply, answered_s=self._now_s)
        self._nodes[node.node_id] = node
        self.counts.joined += 1
        self._actions.append(Event(Change.JOINED, node.peer()))

    def _drop(self, node: TrackedPeer, why: str) -> None:
        del self._nodes[node.node_id]
        if node.joined:
            self.counts.gone += 1
            self._actions.append(Event(Change.GONE, node.peer(), {"why": why}))
            self._pings.reset_node(node.node_id)  # a second device with this id may be the only one now

    def _conflict(self, node_id: NodeId, endpoint: str) -> None:
        self.counts.conflicts += 1
        self._pings.back_off(node_id, endpoint, self._now_s)
        details = {"node": shown(node_id), "second": endpoint}
        self._actions.append(Event(Change.CONFLICT, details=details))

    def _ping_static_peers(self) -> None:
        endpoints = {node.endpoint for node in self._nodes.values()}
        for endpoint, node_id in self._static.items():
            if endpoint not in endpoints and self._at_static.get(endpoint, node_id) not in self._nodes:
                self._ping(node_id, endpoint, force=True)
