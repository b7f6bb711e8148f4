"""Asks a server for the security mechanism that it uses, in the clear, as every ZeroMQ greeting states it.

ZeroMQ's monitor says only that a handshake ended. A server that wants keys, one that knows none, and a proxy
whose server is gone look the same to it; the greeting tells them apart.
Source: ZMTP 3.1 (ZeroMQ RFC 37), section "greeting".
"""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.parse import urlsplit

_SIGNATURE = b"\xff" + 8 * b"\x00" + b"\x7f"
_MAJOR_VERSION = b"\x03"
_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)


def mechanism_of(endpoint: str, timeout_s: float) -> str | None:
    """What the server at an address uses: "CURVE", "NULL" or "PLAIN"; None if nothing greets in time.

    Parameters
    ----------
    endpoint : str
        tcp://host:port; of other transports nothing can be said.
    timeout_s : float
        Longest wait for the connection, and again for each part of the greeting.
    """
    address = urlsplit(endpoint)
    if address.scheme != "tcp" or address.hostname is None or address.port is None:
        return None
    greeting = b""
    with suppress(OSError), socket.create_connection((address.hostname, address.port), timeout_s) as link:
        # Enough for the other side to state its mechanism, and no claim about ours.
        link.sendall(_SIGNATURE + _MAJOR_VERSION)
        while len(greeting) < _GREETING_BYTES:
            received = link.recv(_GREETING_BYTES - len(greeting))
            if not received:
                break
            greeting += received
    if len(greeting) < _MECHANISM.stop or not greeting.startswith(b"\xff"):
        return None
    return greeting[_MECHANISM].rstrip(b"\x00").decode("ascii", "replace")
