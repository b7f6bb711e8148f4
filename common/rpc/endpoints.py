"""Addresses of servers, and the default ones of the daemons on this machine.

Daemons listen at the default addresses, and the commands and the SDK call them there by default.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from types import MappingProxyType

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.interfaces import address_of

DEFAULT_ENDPOINTS = MappingProxyType(
    {
        "cloud": "tcp://127.0.0.1:7000",
        "edge": "tcp://127.0.0.1:7100",
        "device": "tcp://127.0.0.1:7200",
    }
)
"""Daemon → its endpoint."""

LONGEST_PATH_BYTES = 107
"""Maximum length of a socket's path; a limit of the system."""

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:\[\]/]+):(?P<port>[0-9]{1,5}|\*)")
_EVERYWHERE = MappingProxyType({"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"})
"""Host that stands for all addresses of a machine → host for its own clients."""


def split_tcp(endpoint: str) -> tuple[str, str]:
    """Host and port of a TCP address, IPv6 in brackets; two empty strings for any other text."""
    match = _TCP.fullmatch(endpoint)
    return (match["host"], match["port"]) if match else ("", "")


def split_name(endpoint: str) -> tuple[str, str]:
    """Host and port of an endpoint whose host is a name; two empty strings for any other endpoint."""
    host, port = split_tcp(endpoint)
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return ("", "") if host.startswith("[") else (host, port)
    return "", ""


def check_endpoint(endpoint: str) -> str:
    """Return the endpoint if its form is valid.

    Raises
    ------
    ConfigurationError
        If it is not.
    """
    _, port = split_tcp(endpoint)
    scheme, _, path = endpoint.partition("://")
    if scheme == "ipc" and len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        raise ConfigurationError(
            f"{endpoint!r} is not an address: path too long",
            advice=f"choose one of at most {LONGEST_PATH_BYTES} bytes",
        )
    if port == "*" or (port and int(port) <= 65535) or (scheme in {"ipc", "inproc"} and path):
        return endpoint
    raise ConfigurationError(f"{endpoint!r} is not an address", advice="write tcp://HOST:PORT or ipc://PATH")


def is_local(endpoint: str) -> bool:
    """Whether only processes of this machine can reach the address."""
    host, _ = split_tcp(endpoint)
    if host in {"", "localhost", "lo"}:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def endpoint_here(listen: str) -> str:
    """The endpoint for clients on this machine of a daemon that listens at ``listen``; empty if unknown.

    A daemon may listen at all addresses of its machine, or at a network interface. The address is unknown
    here if the system chooses the port (port 0), or the interface has no address.
    """
    host, port = split_tcp(listen)
    if not port:
        return listen
    if port in {"0", "*"}:
        return ""
    try:
        return f"tcp://{_EVERYWHERE.get(host) or listening_address(host)}:{port}"
    except OSError:
        return ""


def listening_address(host: str) -> str:
    """The IPv4 address of the network interface that ``host`` names; ``host`` itself if it names none.

    Raises
    ------
    OSError
        If the interface has no IPv4 address.
    """
    return address_of(host) if host in {name for _, name in socket.if_nameindex()} else host


def same_address(one: str, other: str) -> bool:
    """Whether two endpoints are equal, or have one TCP port, and hosts that share an IP address.

    Names are resolved only if the ports are equal, as this may take many seconds. A name that does not
    resolve has no address.
    """
    (host, port), (other_host, other_port) = split_tcp(one), split_tcp(other)
    if one == other or not port or port != other_port:
        return one == other
    try:
        found, others = (
            {where[0] for *_, where in socket.getaddrinfo(each.strip("[]"), None)}
            for each in (host, other_host)
        )
    except (OSError, UnicodeError):
        return False
    return not found.isdisjoint(others)
