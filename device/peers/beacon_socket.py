"""The datagrams of discovery: one socket that hears all beacons of the network, and broadcasts out."""

from __future__ import annotations

import contextlib
import socket
import sys
from dataclasses import dataclass

from nearsight.common.errors import AddressInUse
from nearsight.device.peers.addresses import (
    LOOPBACK_BROADCAST,
    broadcast_targets,
    is_loopback,
    is_unspecified,
)
from nearsight.device.peers.beacon import BEACON_BYTES

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
