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
from nearsight.device.peers.settings import NO_BROADCAST

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


class BeaconSocket:
    """A UDP socket that receives beacons and broadcasts them. Used by one thread.

    Parameters
    ----------
    port : int
        UDP port of all beacons.
    broadcast : str
        The setting; "off": nothing is sent or received.
    """

    def __init__(self, port: int, broadcast: str) -> None:
        self._host = ""
        self._port = port
        self._broadcast = broadcast
        self._socket: socket.socket | None = None

    def open(self, host: str) -> int | None:
        """Start listening; returns the descriptor to poll, None if beacons are off.

        Parameters
        ----------
        host : str
            The host that the TCP server listens on. Beacons are sent from this address, as peers connect to
            the sender address.

        Raises
        ------
        AddressInUse
            If another program uses the port and does not share it.
        """
        if self._broadcast == NO_BROADCAST:
            return None
        self._host = "127.0.0.1" if host == "localhost" else host
        # A socket bound to loopback's broadcast address receives nothing from other machines.
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
        return receiver.fileno()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    def receive(self) -> list[tuple[bytes, str]]:
        """At most `BATCH` datagrams that have arrived, each with the address of its sender."""
        datagrams: list[tuple[bytes, str]] = []
        with contextlib.suppress(BlockingIOError):
            while self._socket is not None and len(datagrams) < BATCH:
                # One byte more than a beacon is enough to recognise datagrams that are too long.
                data, (host, _) = self._socket.recvfrom(BEACON_BYTES + 1)
                datagrams.append((data, host))
        return datagrams

    def send(self, data: bytes) -> int:
        """Broadcast to each network; returns the number of networks.

        Raises
        ------
        OSError
            If no network accepted it.
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
    """Sends this device's beacons, and filters those received. Used by one thread.

    Parameters
    ----------
    node_id : NodeId
        This device.
    allowed : AllowedPeers or None
        Devices to share with; None without keys. Without keys, only beacons of this machine are accepted.
    carrier : BeaconSocket
        The socket, opened and closed by this object.
    """

    def __init__(self, node_id: NodeId, allowed: AllowedPeers | None, carrier: BeaconSocket) -> None:
        self.counts = BeaconCounts()
        """Counters of beacons since the start."""
        self.close = carrier.close
        self._own = Beacon(node_id, 0)
        self._allowed = allowed
        self._carrier = carrier
        self._log = get_logger("peers.beacons")
        self._failing: set[str] = set()

    def open(self, host: str, port: int) -> int | None:
        """Start to send and receive beacons for a TCP server at this address; see `BeaconSocket.open`."""
        self._own = Beacon(self._own.node_id, port)
        return self._carrier.open(host)

    def receive(self) -> list[tuple[Beacon, str]]:
        """Beacons of possible peers and of devices that use this one's id, each with its sender address."""
        try:
            datagrams = self._carrier.receive()
        except OSError as error:
            self._failed("beacons cannot be received", error)
            return []
        self._failing.discard("beacons cannot be received")
        accepted = ((self._accepted(data, host), host) for data, host in datagrams)
        return [(beacon, host) for beacon, host in accepted if beacon is not None]

    def announce(self, *, leaving: bool = False) -> None:
        """Broadcast a beacon, or with ``leaving`` the announcement that this device leaves."""
        if self._allowed is not None and not leaving:
            self._allowed.refresh()
        data = encode_beacon(Beacon(self._own.node_id, 0) if leaving else self._own)
        try:
            times = self._carrier.send(data)
        except OSError as error:
            self.counts.send_errors += 1
            self._failed("beacons cannot be sent", error)
            return
        self._failing.discard("beacons cannot be sent")
        self.counts.sent += times
        self.counts.sent_bytes += times * (len(data) + UDP_IP_HEADER_BYTES)

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
