"""Beacons: datagrams of 13 bytes in which every device broadcasts its id and port (dissertation, 5.3.2).

======  =====  ==========================================
offset  bytes  field, big endian
======  =====  ==========================================
0       2      ``ns``
2       1      version
3       2      TCP port that answers pings; 0: leaving
5       8      node id
======  =====  ==========================================

The IP address is the sender address of the datagram. Anybody can send a beacon. Therefore a beacon only
causes the receiver to send a ping over TCP.
"""

from __future__ import annotations

import socket
import struct
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
from nearsight.device.peers.presence.identity import Identity, NodeId, is_node_id
from nearsight.device.peers.settings import NO_BROADCAST, PeerSettings

MAGIC = b"ns"
VERSION = 1
_FORMAT = struct.Struct(">2sBHQ")
BEACON_BYTES = _FORMAT.size
UDP_IP_HEADER_BYTES = 28
"""Bytes of the UDP and IPv4 headers of a datagram."""
BATCH = 64
"""Datagrams that are read at a time, so that a flood of them does not delay timers."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """The content of a beacon."""

    node_id: NodeId
    """The sender. The beacon does not prove it."""
    port: int
    """The sender's TCP port; 0 if it leaves."""

    @property
    def leaving(self) -> bool:
        """Whether the sender announces that it leaves."""
        return self.port == 0


def encode_beacon(beacon: Beacon) -> bytes:
    """The datagram, `BEACON_BYTES` long."""
    return _FORMAT.pack(MAGIC, VERSION, beacon.port, beacon.node_id)


def decode_beacon(data: bytes) -> Beacon:
    """Decode a datagram. Any device may have sent it.

    Raises
    ------
    InvalidMessage
        If it is not a beacon of this version.
    """
    if len(data) != BEACON_BYTES:
        raise InvalidMessage(f"a beacon has {BEACON_BYTES} bytes, not {len(data)}")
    magic, version, port, node_id = _FORMAT.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise InvalidMessage(f"not a beacon of version {VERSION}")
    if not is_node_id(node_id):
        raise InvalidMessage("a beacon without a valid node id")
    return Beacon(NodeId(node_id), port)


@dataclass(slots=True)
class BeaconCounts:
    """Counters of beacons; bytes include the headers of UDP and IP."""

    sent: int = 0
    sent_bytes: int = 0
    send_errors: int = 0
    received: int = 0
    received_bytes: int = 0
    """Of all datagrams except this device's own, which did not cross the network."""
    malformed: int = 0
    strangers: int = 0
    """Beacons from nodes whose key is not allowed; without keys, from other machines."""


class BeaconExchange:
    """Broadcasts this device's beacons, and filters those received. Used by one thread.

    Parameters
    ----------
    own : Identity
        This device, and the devices to share with. Without keys, only beacons of this machine are accepted.
    settings : PeerSettings
        Port and address of all beacons; with ``broadcast`` "off" nothing is sent or received.
    """

    def __init__(self, own: Identity, settings: PeerSettings) -> None:
        self.counts = BeaconCounts()
        """Counters of beacons since the start."""
        self._own = Beacon(own.node_id, 0)
        self._allowed = own.allowed
        self._host = ""
        self._port = settings.beacon_port
        self._broadcast = settings.broadcast
        self._socket: socket.socket | None = None
        self._log = get_logger("peers.beacons")
        self._failing: set[str] = set()

    def open(self, host: str, port: int) -> int | None:
        """Start listening; returns the descriptor to poll, None if beacons are off.

        Parameters
        ----------
        host : str
            IP address that the TCP server listens on. Beacons are sent from it, as peers connect to the
            sender address.
        port : int
            The TCP port under which peers reach this device.

        Raises
        ------
        AddressInUse
            If another program uses the port of the beacons and does not share it.
        """
        self._own = Beacon(self._own.node_id, port)
        if self._broadcast == NO_BROADCAST:
            return None
        self._host = host
        # A socket bound to loopback's broadcast address receives nothing from other machines.
        address = LOOPBACK_BROADCAST if is_loopback(host) and not self._broadcast else ""
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            receiver.setblocking(False)
            receiver.bind((address, self._port))
        except OSError as error:
            receiver.close()
            raise AddressInUse(
                f"cannot listen for beacons on UDP port {self._port}: {error.strerror}",
                advice="end the program that uses it, or set another beacon_port on all devices",
            ) from error
        self._socket = receiver
        return receiver.fileno()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    def receive(self) -> list[tuple[Beacon, str]]:
        """Beacons of possible peers and of devices that use this one's id, each with its sender address."""
        accepted: list[tuple[Beacon, str]] = []
        if self._socket is None:
            return accepted
        try:
            for _ in range(BATCH):
                # One byte more than a beacon is enough to recognise datagrams that are too long.
                data, (host, _) = self._socket.recvfrom(BEACON_BYTES + 1)
                if (beacon := self._accepted(data, host)) is not None:
                    accepted.append((beacon, host))
        except BlockingIOError:  # there are no more
            pass
        except OSError as error:
            self._failed("beacons cannot be received", error)
            return accepted
        self._failing.discard("beacons cannot be received")
        return accepted

    def announce(self, *, leaving: bool = False) -> None:
        """Broadcast a beacon, or with ``leaving`` the announcement that this device leaves."""
        if self._allowed is not None and not leaving:
            self._allowed.refresh()
        data = encode_beacon(Beacon(self._own.node_id, 0) if leaving else self._own)
        try:
            times = self._send(data)
        except OSError as error:
            self.counts.send_errors += 1
            self._failed("beacons cannot be sent", error)
            return
        self._failing.discard("beacons cannot be sent")
        self.counts.sent += times
        self.counts.sent_bytes += times * (len(data) + UDP_IP_HEADER_BYTES)

    def _send(self, data: bytes) -> int:
        """Broadcast to each network; returns the number of networks. Fails if no network accepted it."""
        targets = broadcast_targets(self._host, self._broadcast)
        if not targets:
            return 0
        sent = 0
        failure: OSError | None = None
        # A new socket each time: the addresses of this machine change while it runs.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if not is_unspecified(self._host):
                # This also selects the network if there is no route to 255.255.255.255.
                sender.bind((self._host, 0))
            for target in targets:
                try:
                    sender.sendto(data, (target, self._port))
                    sent += 1
                except OSError as error:  # this network is down, others may work
                    failure = error
        if failure is not None and sent == 0:
            raise failure
        return sent

    def _failed(self, what: str, error: OSError) -> None:
        if what not in self._failing:  # log it once, not at every beacon
            self._log.warning(what, reason=error.strerror)
        self._failing.add(what)

    def _accepted(self, data: bytes, host: str) -> Beacon | None:
        try:
            beacon = decode_beacon(data)
        except InvalidMessage:
            beacon = None
        same_id = beacon is not None and beacon.node_id == self._own.node_id
        if beacon is not None and same_id and beacon.port in {self._own.port, 0} and is_own_address(host):
            return None
        self.counts.received += 1
        self.counts.received_bytes += len(data) + UDP_IP_HEADER_BYTES
        if beacon is None:
            self.counts.malformed += 1
            return None
        allowed = self._allowed
        if is_loopback(host) if allowed is None else same_id or allowed.public_key(beacon.node_id):
            return beacon
        self.counts.strangers += 1
        return None
