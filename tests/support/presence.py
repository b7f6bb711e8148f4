"""Memberships of many devices on a simulated network: no sockets, no threads, simulated time."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from nearsight.device.peers.presence.identity import NodeId
from nearsight.device.peers.presence.membership import Actions, Membership
from nearsight.device.peers.presence.peer import Announce, Change, Event, PingReply
from nearsight.device.peers.presence.pings import Ping
from nearsight.device.peers.settings import PeerSettings

DELAY_S = 0.002


@dataclass
class SimulatedDevice:
    node_id: NodeId
    endpoint: str
    incarnation: int
    membership: Membership
    running: bool = True
    answers: bool = True
    log: list[tuple[float, Event]] = field(default_factory=list)
    next_tick_s: float = float("inf")
    missed: list[Callable[[], None]] = field(default_factory=list)

    def sees(self) -> set[NodeId]:
        return {peer.node_id for peer in self.membership.live()}


class SimulatedNetwork:
    """Devices on one network. Beacons may be lost; devices that are not running answer no pings."""

    def __init__(self, settings: PeerSettings, *, loss: float = 0.0, seed: int = 1) -> None:
        self.settings = settings
        self.now_s = 0.0
        self.loss = loss
        self.devices: list[SimulatedDevice] = []
        self.beacons = 0
        self.groups: list[set[NodeId]] = []
        self._rng = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def add(self, node_id: int = 0, *, endpoint: str = "") -> SimulatedDevice:
        index = len(self.devices) + 1
        own = NodeId(node_id or index)
        endpoint = endpoint or f"tcp://10.0.0.{index}:7000"
        membership = Membership(
            own,
            1000 + index,
            self.settings,
            rng=random.Random(self._rng.random()),
        )
        membership.listen_at(endpoint)
        device = SimulatedDevice(own, endpoint, 1000 + index, membership)
        self.devices.append(device)
        self._tick(device)
        return device

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.now_s = end_s

    def alive(self) -> list[SimulatedDevice]:
        return [device for device in self.devices if device.running]

    def wake(self, device: SimulatedDevice) -> None:
        device.running = True
        for event in device.missed:
            self.deliver(device, event)
        device.missed.clear()
        self._tick(device)

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def deliver(self, device: SimulatedDevice, event: Callable[[], None]) -> None:
        if device.running:
            device.membership.advance(self.now_s)
            event()
            self._carry_out(device, device.membership.take_actions())

    def _finish(self, device: SimulatedDevice, event: Callable[[], None]) -> None:
        """Complete a ping; if the device is paused, when it continues."""
        if device.running:
            self.deliver(device, event)
        else:
            device.missed.append(event)

    def _tick(self, device: SimulatedDevice) -> None:
        device.next_tick_s = float("inf")
        self.deliver(device, device.membership.tick)

    def _reaches(self, one: SimulatedDevice, other: SimulatedDevice) -> bool:
        return not self.groups or any({one.node_id, other.node_id} <= group for group in self.groups)

    def _carry_out(self, device: SimulatedDevice, actions: Actions) -> None:
        for action in actions:
            match action:
                case Announce():
                    self._broadcast(device)
                case Ping():
                    self._ping(device, action)
                case Event(Change.JOINED | Change.GONE):
                    device.log.append((self.now_s, action))
                case _:
                    pass
        due_s = max(device.membership.next_due_s(), self.now_s)
        if due_s < device.next_tick_s:
            device.next_tick_s = due_s
            self.at(due_s, lambda: self._tick(device))

    def _broadcast(self, sender: SimulatedDevice) -> None:
        self.beacons += 1
        node_id, endpoint = sender.node_id, sender.endpoint
        for other in self.devices:
            if other is sender or not self._reaches(sender, other) or self._rng.random() < self.loss:
                continue
            self.at(
                self.now_s + DELAY_S,
                lambda other=other: self.deliver(other, lambda: other.membership.beacon(node_id, endpoint)),
            )

    def _ping(self, asker: SimulatedDevice, ping: Ping) -> None:
        began_s = self.now_s

        def arrive() -> None:
            asked = next(
                (
                    one
                    for one in self.devices
                    if one.endpoint == ping.endpoint
                    and one.running
                    and one.answers
                    and self._reaches(asker, one)
                ),
                None,
            )
            if asked is None:
                self.at(
                    began_s + self.settings.ping_timeout_s,
                    lambda: self._finish(asker, lambda: asker.membership.ping_failed(ping)),
                )
                return
            self.deliver(
                asked,
                lambda: asked.membership.introduced(asker.node_id, asker.endpoint, asker.incarnation),
            )
            reply = PingReply(asked.node_id, asked.incarnation)
            self.at(
                self.now_s + DELAY_S,
                lambda: self._finish(asker, lambda: asker.membership.ping_answered(ping, reply, 2 * DELAY_S)),
            )

        self.at(self.now_s + DELAY_S, arrive)
