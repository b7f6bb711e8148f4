"""Addresses of this device: the endpoint for peers, the targets of beacons, and detection of changes."""

from __future__ import annotations

import ipaddress
import re
import socket

from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.common.rpc.interfaces import own_networks
from nearsight.device.peers.settings import NO_BROADCAST

LOOPBACK_BROADCAST = "127.255.255.255"
ANY_BROADCAST = "255.255.255.255"

_TCP = re.compile(r"tcp://(?P<host>\[[:.%\w-]+\]|[A-Za-z0-9._-]{1,253}):(?P<port>\d{1,5})", re.ASCII)
_UNSPECIFIED = {"0.0.0.0", "::"}


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Split ``tcp://HOST:PORT``; the host is returned without brackets.

    Raises
    ------
    InvalidArgument
        If the text has another form. The endpoint may come from an unknown device.
    """
    match = _TCP.fullmatch(endpoint)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        raise InvalidArgument(f"{endpoint[:80]!r} is not of the form tcp://HOST:PORT")
    return match["host"].strip("[]"), int(match["port"])


def is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of this machine."""
    return host in _UNSPECIFIED


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_address(host: str) -> bool:
    """Whether this machine has the IPv4 address now."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def own_endpoint(listening: str, advertise: str, towards: str) -> str:
    """The endpoint under which one peer reaches this device. Blocks if the peer's host name is looked up.

    Parameters
    ----------
    listening : str
        The endpoint that the server listens on, with its actual port.
    advertise : str
        The setting ``advertise``; may be empty.
    towards : str
        The endpoint of the peer. If the server listens on all addresses, the route to this endpoint decides
        which address is returned.

    Raises
    ------
    Unavailable
        If there is no route to the peer.
    """
    host, port = host_and_port(listening)
    if advertise or not is_unspecified(host):
        return advertise or listening
    peer_host, peer_port = host_and_port(towards)
    family = socket.AF_UNSPEC if ":" in host + peer_host else socket.AF_INET
    try:
        # For fe80::1%eth0, getaddrinfo finds the number of the interface.
        family, *_, address = socket.getaddrinfo(peer_host, peer_port, family, socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # no packet is sent
            probe.connect(address)
            source = str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"there is no route to {towards}: {error}") from error
    return f"tcp://[{source}]:{port}" if ":" in source else f"tcp://{source}:{port}"


def broadcast_targets(host: str, broadcast: str) -> tuple[str, ...]:
    """The IPv4 addresses to which beacons are sent now. Computed for each beacon, as networks change.

    Parameters
    ----------
    host : str
        The host that the server listens on.
    broadcast : str
        The setting: an address, ``off``, or empty to choose automatically.
    """
    if broadcast:
        return () if broadcast == NO_BROADCAST else (broadcast,)
    if is_unspecified(host):
        targets = (str(interface.network.broadcast_address) for interface in own_networks())
        return tuple(dict.fromkeys(targets)) or (ANY_BROADCAST,)
    if ":" in host:
        return ()
    return (LOOPBACK_BROADCAST if is_loopback(host) else ANY_BROADCAST,)


LOOK_EVERY_S = 1.0


class OwnAddresses:
    """Detects changes of this machine's IPv4 addresses, if the server listens on all of them.

    Parameters
    ----------
    host : str
        The host that the server listens on.
    """

    def __init__(self, host: str) -> None:
        self._watched = is_unspecified(host)
        self._known: frozenset[ipaddress.IPv4Interface] = frozenset()
        self._looked_s = float("-inf")

    def changed(self, now_s: float) -> bool:
        """Whether the addresses differ from the previous ones. They are read once a second at most.

        If there are no addresses at all, nothing is reported: the network may return unchanged.
        """
        if not self._watched or now_s < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        found = frozenset(own_networks())
        before, self._known = self._known, found or self._known
        return bool(before) and self._known != before
