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
from nearsight.device.peers.settings import NO_BROADCAST

MAGIC = b"ns"
VERSION = 1
_FORMAT = struct.Struct(">2sBHQ")
BEACON_BYTES = _FORMAT.size
UDP_IP_HEADER_BYTES = 28
"""What a datagram over IPv4 adds to its content."""
BATCH = 64
"""Datagrams that are read at a time, so that a flood does not keep timers waiting."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """A sign of life of the node that it names."""

    node_id: NodeId
    """The sender, by its own account."""
    port: int
    """Its TCP port; 0 if it goes away."""

    @property
    def leaving(self) -> bool:
        """Whether the sender says that it goes away."""
        return self.port == 0


def encode_beacon(beacon: Beacon) -> bytes:
    """The datagram, `BEACON_BYTES` long."""
    return _FORMAT.pack(MAGIC, VERSION, beacon.port, beacon.node_id)


def decode_beacon(data: bytes) -> Beacon:
    """Read a datagram, which anybody may have sent.

    Raises
    ------
    InvalidMessage
        If it is no beacon.
    """
    if len(data) != BEACON_BYTES:
        raise InvalidMessage(f"a beacon has {BEACON_BYTES} bytes, not {len(data)}")
    magic, version, port, node_id = _FORMAT.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise InvalidMessage(f"no beacon of version {VERSION}")
    if not is_node_id(node_id):
        raise InvalidMessage("a beacon without a node id")
    return Beacon(NodeId(node_id), port)


class BeaconSocket:
    """One socket that receives all beacons of the network, and broadcasts out. One thread uses it.

    Parameters
    ----------
    port : int
        UDP port of all beacons.
    broadcast : str
        As in the settings; "off": nothing is sent or received.
    """

    def __init__(self, port: int, broadcast: str) -> None:
        self._host = ""
        self._port = port
        self._broadcast = broadcast
        self._socket: socket.socket | None = None

    def open(self, host: str) -> int | None:
        """Begin to listen; returns the descriptor to poll, None if beacons are off.

        Parameters
        ----------
        host : str
            That the TCP server listens on: the source of the beacons, as peers will look there.

        Raises
        ------
        AddressInUse
            If another program has the port and does not share it.
        """
        if self._broadcast == NO_BROADCAST:
            return None
        self._host = "127.0.0.1" if host == "localhost" else host
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
        return receiver.fileno()

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()

    def receive(self) -> list[tuple[bytes, str]]:
        """At most `BATCH` datagrams that have arrived, each with the address of its sender."""
        datagrams: list[tuple[bytes, str]] = []
        with contextlib.suppress(BlockingIOError):
            while self._socket is not None and len(datagrams) < BATCH:
                # One byte more than a beacon is enough to see that it is none.
                data, (host, _) = self._socket.recvfrom(BEACON_BYTES + 1)
                datagrams.append((data, host))
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
    malformed: int = 0
    strangers: int = 0
    """Of nodes whose key is not among those allowed, or from other machines where there are no keys."""


class BeaconExchange:
    """Sends this device's beacons, and receives those that a peer may have sent. One thread uses it.

    Parameters
    ----------
    node_id : NodeId
        This device.
    allowed : AllowedPeers or None
        Whom to share with; None without keys, which is for one machine alone.
    carrier : BeaconSocket
        Carries the beacons; owned: opened and closed with this.
    """

    def __init__(self, node_id: NodeId, allowed: AllowedPeers | None, carrier: BeaconSocket) -> None:
        self.counts = BeaconCounts()
        """Beacons so far."""
        self.close = carrier.close
        self._own = Beacon(node_id, 0)
        self._allowed = allowed
        self._carrier = carrier
        self._log = get_logger("peers.beacons")
        self._failing: set[str] = set()

    def open(self, host: str, port: int) -> int | None:
        """Begin to send and receive, for a TCP server at this address; as `BeaconSocket.open`."""
        self._own = Beacon(self._own.node_id, port)
        return self._carrier.open(host)

    def receive(self) -> list[tuple[Beacon, str]]:
        """Beacons that a peer may have sent, or a device with this one's id, each with its address."""
        try:
            datagrams = self._carrier.receive()
        except OSError as error:
            self._failed("beacons cannot be received", error)
            return []
        self._failing.discard("beacons cannot be received")
        judged = ((self._judge(data, host), host) for data, host in datagrams)
        return [(beacon, host) for beacon, host in judged if beacon is not None]

    def announce(self, *, leaving: bool = False) -> None:
        """Say that this device is there, or that it goes away."""
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
        if what not in self._failing:  # once, not every few seconds
            self._log.warning(what, reason=error.strerror)
        self._failing.add(what)

    def _judge(self, data: bytes, host: str) -> Beacon | None:
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
