"""Addresses to listen on and to connect to, checked before ZeroMQ sees them."""

from __future__ import annotations

import ipaddress
import re

from nearsight.common.errors import ConfigurationError

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:\[\]/]+):(?P<port>\d{1,5}|\*)")


def check_endpoint(endpoint: str) -> str:
    """Return the endpoint if it is of a form that nearsight uses.

    Raises
    ------
    ConfigurationError
        If it is not.
    """
    match = _TCP.fullmatch(endpoint)
    if match:
        port = match["port"]
        if port == "*" or int(port) <= 65535:
            return endpoint
    elif endpoint.startswith(("ipc://", "inproc://")) and len(endpoint.partition("://")[2]) > 0:
        return endpoint
    raise ConfigurationError(
        f"{endpoint!r} is not an address",
        advice="write tcp://HOST:PORT or ipc://PATH, e.g. tcp://127.0.0.1:7000",
    )


def is_tcp_v6(endpoint: str) -> bool:
    """Whether the address is of IPv6, which ZeroMQ must be told."""
    return endpoint.startswith("tcp://[")


def is_local(endpoint: str) -> bool:
    """Whether only processes of this machine can reach the address."""
    match = _TCP.fullmatch(endpoint)
    if match is None:
        return True
    host = match["host"].strip("[]")
    if host in {"localhost", "lo"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
