"""Beacons: the 13 bytes that every device broadcasts, "I am here, on this port" (dissertation, 5.3.2).

======  =====  ==========================================
offset  bytes  field, big endian
======  =====  ==========================================
0       2      ``ns``
2       1      version
3       2      TCP port that answers pings; 0: going away
5       8      node id
======  =====  ==========================================

The address is that of the datagram. Anybody can send a beacon: receivers then ask over TCP, nothing more.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from dataclasses import dataclass

from nearsight.common.errors import AddressInUse, InvalidMessage
from nearsight.common.logging import get_logger
from nearsight.device.peers.presence.addresses import (
    LOOPBACK_BROADCAST,
    broadcast_targets,
    is_loopback,
    is_own_address,
    is_unspecified,
)
from nearsight.device.peers.presence.identity import AllowedPeers, NodeId, is_node_id

MAGIC = b"ns"
VERSION = 1
_FORMAT = struct.Struct(">2sBHQ")
BEACON_BYTES = _FORMAT.size
UDP_IP_HEADER_BYTES = 28
"""What a datagram over IPv4 adds to its content."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """A sign of life.

    Parameters
    ----------
    node_id : NodeId
        Who claims to be there.
    port : int
        Its TCP port; 0 if it goes away.
    """

    node_id: NodeId
    port: int

    @property
    def leaving(self) -> bool:
        """Whether the sender says that it goes away."""
        return self.port == 0


def encode_beacon(beacon: Beacon) -> bytes:
    """The datagram, `BEACON_BYTES` long."""
    return _FORMAT.pack(MAGIC, VERSION, beacon.port, beacon.node_id)


def decode_beacon(data: bytes) -> Beacon:
    """The beacon in a datagram from anybody.

    Raises
    ------
    InvalidMessage
        If it is none.
    """
    if len(data) != BEACON_BYTES:
        raise InvalidMessage(f"a beacon has {BEACON_BYTES} bytes, not {len(data)}")
    magic, version, port, node_id = _FORMAT.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise InvalidMessage(f"no beacon of version {VERSION}")
    if not is_node_id(node_id):
        raise InvalidMessage("a beacon without a node id")
    return Beacon(NodeId(node_id), port)


BATCH = 64
"""Datagrams that are read at a time, so that a flood does not keep timers waiting."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """What came, and from which address. One byte more than a beacon is enough to see that it is none."""

    data: bytes
    host: str


class BeaconSocket:
    """Broadcasts in and out. One thread uses it.

    Parameters
    ----------
    host : str
        That the TCP server listens on: the source of the beacons, as that is where peers will look.
    port : int
        UDP port of all beacons.
    broadcast : str
        As in the settings.
    """

    def __init__(self, host: str, port: int, broadcast: str) -> None:
        self._host = "127.0.0.1" if host == "localhost" else host
        self._port = port
        self._broadcast = broadcast
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Begin to listen.

        Raises
        ------
        AddressInUse
            If the port cannot be shared with who has it.
        """
        # Bound to loopback's broadcast address, it does not even hear other machines.
        address = LOOPBACK_BROADCAST if is_loopback(self._host) and not self._broadcast else ""
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not sys.platform.startswith("linux"):
                receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            receiver.setblocking(False)
            receiver.bind((address, self._port))
        except OSError as error:
            receiver.close()
            raise AddressInUse(
                f"cannot listen for beacons on UDP port {self._port}: {error.strerror}",
                advice="end the program that uses it, or set another beacon_port on all devices",
            ) from error
        self._socket = receiver

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()

    def receive(self) -> list[Datagram]:
        """What has arrived, at most `BATCH` datagrams."""
        datagrams: list[Datagram] = []
        with contextlib.suppress(BlockingIOError):
            while self._socket is not None and len(datagrams) < BATCH:
                data, (host, _) = self._socket.recvfrom(BEACON_BYTES + 1)
                datagrams.append(Datagram(data, host))
        return datagrams

    def send(self, data: bytes) -> int:
        """Broadcast to each network; returns to how many.

        Raises
        ------
        OSError
            If none took it.
        """
        targets = broadcast_targets(self._host, self._broadcast)
        if not targets:
            return 0
        sent = 0
        failure: OSError | None = None
        # A new socket each time: the addresses of this machine change while it runs.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if not is_unspecified(self._host):
                # Also chooses the network, where no route leads to 255.255.255.255.
                sender.bind((self._host, 0))
            for target in targets:
                try:
                    sender.sendto(data, (target, self._port))
                    sent += 1
                except OSError as error:  # this network is down, others may not be
                    failure = error
        if failure is not None and sent == 0:
            raise failure
        return sent


@dataclass(slots=True)
class BeaconCounts:
    """Beacons so far; bytes include the headers of UDP and IP."""

    sent: int = 0
    sent_bytes: int = 0
    send_errors: int = 0
    received: int = 0
    received_bytes: int = 0
    """Of all datagrams but this device's own, which did not cross the network."""
    own: int = 0
    malformed: int = 0
    strangers: int = 0
    """Of nodes whose key is not among those allowed, or from other machines where there are no keys."""


@dataclass(frozen=True, slots=True)
class HeardBeacon:
    """A beacon that may be of a peer, or be forged."""

    beacon: Beacon
    host: str

    @property
    def endpoint(self) -> str:
        """Where the sender says that it answers."""
        return f"tcp://{self.host}:{self.beacon.port}"


class BeaconExchange:
    """Says that this device is there, and hears who else is. One thread uses it.

    Parameters
    ----------
    own : Beacon
        What this device says.
    carrier : BeaconSocket or None
        Carries the beacons; None: there are none.
    allowed : AllowedPeers or None
        Whom to share with; None without keys, which is for one machine alone.

    Attributes
    ----------
    counts : BeaconCounts
        Beacons so far.
    """

    def __init__(self, own: Beacon, carrier: BeaconSocket | None, allowed: AllowedPeers | None) -> None:
        self.counts = BeaconCounts()
        self._own = own
        self._carrier = carrier
        self._allowed = allowed
        self._log = get_logger("peers.beacons")
        self._silent = False
        self._deaf = False

    def open(self) -> int | None:
        """Begin to listen; returns the descriptor to poll, None if there is none.

        Raises
        ------
        AddressInUse
            If the port is taken.
        """
        if self._carrier is None:
            return None
        self._carrier.open()
        return self._carrier.fileno()

    def close(self) -> None:
        """Stop listening."""
        if self._carrier is not None:
            self._carrier.close()

    def hear(self) -> list[HeardBeacon]:
        """Beacons that arrived from those who may be peers, and from others with this device's id."""
        if self._carrier is None:
            return []
        try:
            datagrams = self._carrier.receive()
        except OSError as error:
            if not self._deaf:  # once, not every moment
                self._log.warning("beacons cannot be received", reason=error.strerror)
            self._deaf = True
            return []
        self._deaf = False
        return [heard for datagram in datagrams if (heard := self._judge(datagram)) is not None]

    def announce(self) -> None:
        """Say that this device is there."""
        if self._allowed is not None:
            self._allowed.refresh()
        self._send(self._own)

    def say_goodbye(self) -> None:
        """Say that it goes away."""
        self._send(Beacon(self._own.node_id, 0))

    def _judge(self, datagram: Datagram) -> HeardBeacon | None:
        try:
            beacon = decode_beacon(datagram.data)
        except InvalidMessage:
            beacon = None
        if beacon is not None and self._is_own(beacon, datagram.host):
            self.counts.own += 1
            return None
        self.counts.received += 1
        self.counts.received_bytes += len(datagram.data) + UDP_IP_HEADER_BYTES
        if beacon is None:
            self.counts.malformed += 1
        elif self._may_share_with(beacon.node_id, datagram.host):
            return HeardBeacon(beacon, datagram.host)
        else:
            self.counts.strangers += 1
        return None

    def _is_own(self, beacon: Beacon, host: str) -> bool:
        return (
            beacon.node_id == self._own.node_id
            and beacon.port in {self._own.port, 0}
            and is_own_address(host)
        )

    def _may_share_with(self, node_id: NodeId, host: str) -> bool:
        if self._allowed is None:
            return is_loopback(host)
        return node_id == self._own.node_id or node_id in self._allowed

    def _send(self, beacon: Beacon) -> None:
        if self._carrier is None:
            return
        data = encode_beacon(beacon)
        try:
            times = self._carrier.send(data)
        except OSError as error:
            self.counts.send_errors += 1
            if not self._silent:  # once, not every few seconds
                self._log.warning("beacons cannot be sent", reason=error.strerror)
            self._silent = True
            return
        self._silent = False
        self.counts.sent += times
        self.counts.sent_bytes += times * (len(data) + UDP_IP_HEADER_BYTES)
