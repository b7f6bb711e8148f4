"""One membership that a test drives: its clock, received beacons, and answers to pings."""

import random
from collections.abc import Callable

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.membership import Action, Membership
from nearsight.device.peers.presence.peer import PeerState, PingReply
from nearsight.device.peers.presence.pings import Ping
from nearsight.device.peers.settings import PeerSettings

OWN, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)
HERE, THERE, ELSEWHERE = "tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000", "tcp://10.0.0.3:7000"
SETTINGS = PeerSettings(period_s=5, departure_s=15, ping_timeout_s=1)
FIRST, SECOND = PingReply(OTHER, 20), PingReply(OTHER, 21)


class Driven:
    """One membership whose time a test controls."""

    def __init__(
        self, settings: PeerSettings = SETTINGS, static: tuple[tuple[NodeId | None, str], ...] = ()
    ) -> None:
        self.membership = Membership(OWN, 10, settings, static=static, rng=random.Random(1))
        self.membership.listen_at(HERE)
        self.now_s = 100.0
        self.first = self.after(0.0)

    def told(self, event: Callable[..., None], *facts: object) -> tuple[Action, ...]:
        """Report an event to the membership; returns the resulting actions."""
        self.membership.advance(self.now_s)
        event(*facts)
        return self.membership.take_actions()

    def after(self, seconds: float) -> tuple[Action, ...]:
        self.now_s += seconds
        return self.told(self.membership.tick)

    def beacon(self, node_id: NodeId = OTHER, endpoint: str = THERE) -> tuple[Action, ...]:
        return self.told(self.membership.beacon, node_id, endpoint)

    def beacon_ping(self, node_id: NodeId = OTHER, endpoint: str = THERE) -> Ping:
        return only_ping(self.beacon(node_id, endpoint))

    def answer(self, ping: Ping, reply: PingReply = FIRST) -> tuple[Action, ...]:
        return self.told(self.membership.ping_answered, ping, reply, 0.01)

    def fail(self, ping: Ping) -> tuple[Action, ...]:
        return self.told(self.membership.ping_failed, ping)

    def fail_twice(self, ping: Ping) -> tuple[Action, ...]:
        """Let a ping and its retry fail, as of a peer that has left."""
        return self.fail(only_ping(self.fail(ping)))

    def pings_after_a_failed_call(self) -> tuple[Ping, ...]:
        """Pings that follow when a call of `OTHER` fails, two seconds later."""
        self.after(2.0)
        actions = self.told(self.membership.call_failed, OTHER)
        return tuple(action for action in actions if isinstance(action, Ping))

    def state(self, node_id: NodeId = OTHER) -> PeerState | None:
        return next((peer.state for peer in self.membership.known() if peer.node_id == node_id), None)

    def endpoints(self) -> dict[str, PeerState]:
        """Endpoints of the peers in the view, and their states."""
        return {peer.endpoint: peer.state for peer in self.membership.live()}

    def sees(self) -> set[NodeId]:
        return {peer.node_id for peer in self.membership.live()}


def only_ping(actions: tuple[Action, ...]) -> Ping:
    pings = [action for action in actions if isinstance(action, Ping)]
    assert len(pings) == 1, actions
    return pings[0]
