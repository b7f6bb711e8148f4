"""Where daemons are found: the endpoints of this machine if nobody says otherwise.

Daemons listen there by default; the commands and the SDK ask there by default.
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
    """The endpoint at which this machine reaches a daemon that listens at ``listen``; empty if it is unknown.

    A daemon may listen at all addresses of its machine; at port 0 the system chooses the port.
    """
    if listen.endswith((":0", ":*")):
        return ""
    match = _EVERYWHERE.fullmatch(listen)
    if match is None:
        return listen
    host = "[::1]" if match["host"] == "[::]" else "127.0.0.1"
    return f"tcp://{host}:{match['port']}"
