"""Beacons in and out, counted; what no peer can have sent is left out (Cachier dissertation, 5.3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from nearsight.common.errors import InvalidMessage
from nearsight.common.logging import get_logger
from nearsight.device.peers.addresses import is_loopback, is_own_address
from nearsight.device.peers.allowed import AllowedPeers
from nearsight.device.peers.beacon import UDP_IP_HEADER_BYTES, Beacon, decode_beacon, encode_beacon
from nearsight.device.peers.beacon_socket import BeaconSocket, Datagram
from nearsight.device.peers.node_id import NodeId


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
