"""Default endpoints of the daemons on this machine.

Daemons listen there by default, and the commands and the SDK call them there by default.
"""

from __future__ import annotations

import re
from types import MappingProxyType

DEFAULT_ENDPOINTS = MappingProxyType(
    {
        "cloud": "tcp://127.0.0.1:7000",
        "edge": "tcp://127.0.0.1:7100",
        "device": "tcp://127.0.0.1:7200",
    }
)
"""Daemon → its endpoint."""

_EVERYWHERE = re.compile(r"tcp://(?P<host>\*|0\.0\.0\.0|\[::\]):(?P<port>\d+)")


def endpoint_here(listen: str) -> str:
    """The endpoint for clients on this machine of a daemon that listens at ``listen``; empty if unknown.

    A daemon may listen at all addresses of its machine. At port 0 the system chooses the port, which is
    unknown here.
    """
    if listen.endswith((":0", ":*")):
        return ""
    match = _EVERYWHERE.fullmatch(listen)
    if match is None:
        return listen
    host = "[::1]" if match["host"] == "[::]" else "127.0.0.1"
    return f"tcp://{host}:{match['port']}"
