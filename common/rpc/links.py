"""The connection of one channel: its state, and the reason why a server refused it."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

import zmq

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.endpoints import check_endpoint, split_tcp
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.sockets import out_of_descriptors
from nearsight.common.rpc.zmtp import MECHANISM, SIGNATURE, Crowded, NoRoom

_GREETING_TIMEOUT_S = 0.3
_MAJOR_VERSION = b"\x03"
_NO_ROOM = int(NoRoom.status)
_CROWDED = (int(Crowded.status), int(zmq.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND))
"""Values of libzmq's event if the server had no room for a connection; the second if the server has not begun
its part of the handshake."""


class Link:
    """State of one channel's connection in a transport.

    Parameters
    ----------
    endpoint : str
        The server's address.
    settings : ChannelSettings
        Limits and heartbeats.
    security : ClientSecurity or None
        Keys for CURVE. Either all links of a transport have keys, or none has.

    Raises
    ------
    ConfigurationError
        If the endpoint is not an address or a key cannot be read.
    """

    __slots__ = ("address", "endpoint", "name", "own_keys", "proven", "server_key", "settings", "turn", "up")

    def __init__(self, endpoint: str, settings: ChannelSettings, security: ClientSecurity | None) -> None:
        self.endpoint = check_endpoint(endpoint)
        self.settings = settings
        self.own_keys = read_secret_key(security.secret_key_file) if security else None
        self.server_key = read_public_key(security.server_public_key) if security else ""
        self.name = b""
        """Routing id of the current attempt at the socket; empty if there is no attempt."""
        self.address = ""
        """Spelling of the endpoint in the current attempt."""
        self.turn = 0
        """Index of the host's address for the next attempt; it increases after a failed attempt."""
        self.up = False
        self.proven = False  # a connection with these keys succeeded, so the keys are right


def mechanism_of(endpoint: str, timeout_s: float) -> str | None:
    """Read the security mechanism of a server from its ZeroMQ greeting, which is not encrypted.

    ZeroMQ's monitor reports only that a handshake ended. It does not distinguish a server that requires keys,
    one that uses no keys, and a proxy whose server is down; the greeting does. Source: ZMTP 3.1 (ZeroMQ RFC
    37), section "greeting".

    Parameters
    ----------
    endpoint : str
        tcp://host:port; other transports give None.
    timeout_s : float
        Timeout of the connection, and again of the greeting.

    Returns
    -------
    str or None
        "CURVE", "NULL" or "PLAIN"; None if no greeting arrives in time.
    """
    host, port = split_tcp(endpoint)
    if not port.isdecimal():
        return None
    greeting = b""
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout_s) as link:
        # This is enough for the server to send its mechanism; ours is not sent.
        link.sendall(SIGNATURE + _MAJOR_VERSION)
        until_s = time.monotonic() + timeout_s
        while len(greeting) < MECHANISM.stop and (left_s := until_s - time.monotonic()) > 0:
            link.settimeout(left_s)
            part = link.recv(MECHANISM.stop - len(greeting))
            if not part:
                break
            greeting += part
    if len(greeting) < MECHANISM.stop or not greeting.startswith(b"\xff"):
        return None
    return greeting[MECHANISM].rstrip(b"\x00").decode("ascii", "replace")


def refusal(link: Link, event: int, value: int, *, find_reason: bool) -> NearsightError:
    """The error and the advice for a failed attempt to connect.

    Parameters
    ----------
    link : Link
        The connection that failed.
    event, value : int
        Of the socket's monitor (``zmq_socket_monitor(3)``).
    find_reason : bool
        Read the greeting of a server that ends a handshake, to find its reason.
    """
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == _NO_ROOM:
        return Unavailable(
            f"{link.endpoint} has too many connections, most of them with this key",
            advice="close some, give clients keys of their own, or raise `server.connections_limit` there",
        )
    if value in _CROWDED:
        return Unavailable(f"{link.endpoint} has too many connections", advice="try again in a moment")
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        key = link.own_keys.public if link.own_keys else ""
        advice = "on that machine run `nearsight keys allow NAME.key --dir ALLOWED`; no restart is needed"
        return Unauthenticated(f"{link.endpoint} does not allow the key {key}", advice=advice)
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return _other_mechanism(link)
        what = f"the server at {link.endpoint} is not a nearsight daemon"
        return Unavailable(what, advice="is the address right?")
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return _handshake_ended(link, find_reason=find_reason)
    try:  # without a free descriptor, no attempt to connect can succeed
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return out_of_descriptors()
    advice = "is the daemon running, and is the address right?"
    error = Unavailable(f"no server answers at {link.endpoint}", advice=advice)
    error.reached = False
    return error


def _handshake_ended(link: Link, *, find_reason: bool) -> NearsightError:
    """Find the reason why the server closed the connection during the handshake."""
    if find_reason and not link.proven:
        mechanism = mechanism_of(link.endpoint, _GREETING_TIMEOUT_S)
        if mechanism is not None and mechanism != ("NULL" if link.own_keys is None else "CURVE"):
            return _other_mechanism(link)
        if mechanism is not None and link.own_keys is not None:
            return Unauthenticated(
                f"{link.endpoint} closed the connection in the handshake: "
                f"it does not own the public key {link.server_key}",
                advice="copy that server's NAME.key file again",
            )
    return Unavailable(
        f"{link.endpoint} closed the connection in the handshake", advice="is the daemon behind it running?"
    )


def _other_mechanism(link: Link) -> NearsightError:
    if link.own_keys is None:
        return Unauthenticated(
            f"{link.endpoint} accepts only clients with a key",
            advice="make one with `nearsight keys generate NAME --dir keys` and have it allowed there",
        )
    return Unauthenticated(
        f"{link.endpoint} does not use keys, so its identity cannot be checked",
        advice="start that daemon with its keys, or connect without one",
    )
