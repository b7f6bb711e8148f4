"""Which addresses may be pinged now: beacons may be forged, and must not make this device a nuisance."""

from __future__ import annotations

from collections import OrderedDict

from nearsight.device.peers.node_id import NodeId
from nearsight.device.peers.presence_actions import Ping

LONGEST_BACKOFF_PERIODS = 4.0
ADDRESSES_AT_A_TIME = 2
"""Addresses of one node that are pinged at the same time because of beacons."""
REMEMBERED_ADDRESSES = 1024

Address = tuple[NodeId | None, str]


class PingRation:
    """Pings under way, and addresses that failed.

    Of each address one ping is under way at a time. One that fails again and again is asked less and less
    often, but every few periods still.

    Parameters
    ----------
    period_s : float
        Of the beacons.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._number = 0
        self._under_way: dict[Address, int] = {}
        self._failures: OrderedDict[Address, tuple[int, float]] = OrderedDict()

    def is_under_way(self, node_id: NodeId | None, endpoint: str) -> bool:
        """Whether this address is being pinged."""
        return (node_id, endpoint) in self._under_way

    def asks_for(self, node_id: NodeId) -> bool:
        """Whether any address of this node is being pinged."""
        return any(asked == node_id for asked, _ in self._under_way)

    def may_ask(self, node_id: NodeId | None, endpoint: str, now_s: float) -> bool:
        """Whether a beacon is reason enough to ping the address."""
        _, earliest_s = self._failures.get((node_id, endpoint), (0, now_s))
        at_once = sum(asked == node_id for asked, _ in self._under_way)
        return now_s >= earliest_s and at_once < ADDRESSES_AT_A_TIME

    def ask(self, node_id: NodeId | None, endpoint: str, *, urgent: bool) -> Ping:
        """A new ping, under way from now on."""
        self._number += 1
        self._under_way[node_id, endpoint] = self._number
        return Ping(node_id, endpoint, self._number, urgent)

    def ended(self, ping: Ping) -> bool:
        """A ping has come to its end; whether it was still awaited."""
        address = (ping.node_id, ping.endpoint)
        awaited = self._under_way.get(address) == ping.number
        if awaited:
            del self._under_way[address]
        return awaited

    def back_off(self, node_id: NodeId | None, endpoint: str, now_s: float) -> None:
        """The address was of no use."""
        address = (node_id, endpoint)
        count = self._failures.get(address, (0, 0.0))[0] + 1
        periods = 0.0 if count == 1 else min(2.0 ** (count - 2), LONGEST_BACKOFF_PERIODS)
        self._failures[address] = (count, now_s + periods * self._period_s)
        self._failures.move_to_end(address)
        if len(self._failures) > REMEMBERED_ADDRESSES:
            self._failures.popitem(last=False)

    def forgive(self, node_id: NodeId | None, endpoint: str) -> None:
        """The address is worth a ping again."""
        self._failures.pop((node_id, endpoint), None)

    def forgive_node(self, node_id: NodeId) -> None:
        """All addresses of the node are."""
        for address in [address for address in self._failures if address[0] == node_id]:
            del self._failures[address]

    def start_over(self) -> None:
        """Await nothing any more, and forgive all."""
        self._under_way.clear()
        self._failures.clear()
