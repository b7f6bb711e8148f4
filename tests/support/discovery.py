"""Devices that discover each other over real datagrams, within one process; pings are function calls."""

import socket
from concurrent.futures import Future
from types import TracebackType

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import Unavailable
from nearsight.device.peers.presence.discovery import Discovery
from nearsight.device.peers.presence.identity import AllowedPeers, Identity, NodeId
from nearsight.device.peers.presence.peer import Peer, PingReply
from nearsight.device.peers.settings import PeerSettings
from nearsight.experiments.rig.peer_group import free_udp_port
from support.waiting import wait_until


def broadcast(data: bytes, port: int, times: int = 1) -> None:
    """Broadcast any data on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind(("127.0.0.1", 0))
        for _ in range(times):
            sender.sendto(data, ("127.255.255.255", port))


class Device:
    """One device of a `Neighbourhood`."""

    def __init__(
        self,
        group: "Neighbourhood",
        own: Identity,
        endpoint: str,
        *,
        settings: PeerSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._group = group
        self.own = own
        self.endpoint = endpoint
        self.asked: list[tuple[NodeId | None, str]] = []
        self.changes: list[set[NodeId]] = []
        self.slept = 0
        self.answers = True
        self.discovery = Discovery(
            own,
            settings or group.settings,
            self._ping,
            self._changed,
            self._slept,
            clock=clock,
        )

    def start(self) -> None:
        self.discovery.start(self.endpoint)

    def sees(self) -> set[NodeId]:
        return {peer.node_id for peer in self.discovery.peers()}

    def _ping(self, node_id: NodeId | None, endpoint: str) -> Future[PingReply]:
        self.asked.append((node_id, endpoint))
        future: Future[PingReply] = Future()
        there = self._group.at(endpoint)
        if there is None:
            future.set_exception(Unavailable("no device at this address"))
        elif there.answers:
            there.discovery.introduced(self.own.node_id, self.endpoint, self.own.incarnation)
            future.set_result(PingReply(there.own.node_id, there.own.incarnation))
        return future  # if the device does not answer, the test completes the future

    def _changed(self, peers: tuple[Peer, ...]) -> None:
        self.changes.append({peer.node_id for peer in peers})

    def _slept(self) -> None:
        self.slept += 1


class Neighbourhood:
    """Devices on loopback with their own beacon port, for a ``with`` block."""

    def __init__(self, **settings: object) -> None:
        self.port = free_udp_port()
        self.settings = PeerSettings.model_validate(
            {"beacon_port": self.port, "period_s": 0.2, "departure_s": 600.0, **settings}
        )
        self.devices: list[Device] = []

    def add(
        self,
        number: int,
        *,
        endpoint: str = "",
        start: bool = True,
        allowed: AllowedPeers | None = None,
        **others: object,
    ) -> Device:
        own = Identity(NodeId(number), 1000 + number, allowed=allowed)
        endpoint = endpoint or f"tcp://127.0.0.1:{10_000 + number}"
        device = Device(self, own, endpoint, **others)  # type: ignore[arg-type]
        self.devices.append(device)
        if start:
            device.start()
        return device

    def at(self, endpoint: str) -> Device | None:
        return next((device for device in self.devices if device.endpoint == endpoint), None)

    def remove(self, device: Device, *, farewell: bool = True) -> None:
        self.devices.remove(device)
        device.discovery.stop(farewell=farewell)

    def wait_complete(self) -> None:
        ids = {device.own.node_id for device in self.devices}
        wait_until(
            lambda: all(device.sees() == ids - {device.own.node_id} for device in self.devices),
            what="all nodes being peers of each other",
        )

    def __enter__(self) -> "Neighbourhood":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for device in self.devices:
            device.discovery.stop(farewell=False)
