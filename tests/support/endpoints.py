"""Addresses at which a server can be started again.

Ports that the system chooses may become the port of any client while the server is stopped. Those here lie
below that range, and each worker of the tests has its own.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _EACH = 20_000, 1_500
_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_ports = itertools.cycle(range(_FIRST + _number * _EACH, _FIRST + (_number + 1) * _EACH))


def fresh_endpoint() -> str:
    """The address of a free port."""
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)):
                return f"tcp://127.0.0.1:{port}"
    raise AssertionError("unreachable")
