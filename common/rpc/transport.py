"""Carries the frames of a channel over ZeroMQ: connections one after the other, and the wait for them.

A socket serves a single connection and is then thrown away. What is still on its way when a connection
ends can so never be taken for an answer on the next one, and nothing is sent to a server that is not there.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.sockets import (
    Waker,
    check_endpoint,
    has_message,
    is_tcp_v6,
    receive_message,
    send_message,
)

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_DISCONNECTED
)
_NEVER_MS = 600_000
_GREETING_TIMEOUT_S = 0.3
_SIGNATURE = b"\xff" + 8 * b"\x00" + b"\x7f"
_MAJOR_VERSION = b"\x03"
_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)


class Change(Enum):
    """What happened to a connection."""

    UP = auto()
    REFUSED = auto()
    REJECTED = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A change and, unless the connection is up, the error that it is to the calls."""

    change: Change
    error: NearsightError | None = None


class Transport:
    """Carries frames to one server: a DEALER socket that connects once, and its monitor.

    All but waits and wakes is called under the channel's lock.

    Parameters
    ----------
    endpoint : str
        The server's address.
    settings : ChannelSettings
        Limits and heartbeats.
    security : ClientSecurity or None
        Keys for CURVE.

    Raises
    ------
    ConfigurationError
        If the endpoint is no address or a key cannot be read.
    """

    def __init__(self, endpoint: str, settings: ChannelSettings, security: ClientSecurity | None) -> None:
        self._endpoint = check_endpoint(endpoint)
        self._settings = settings
        self._own_keys = read_secret_key(security.secret_key_file) if security else None
        self._server_key = read_public_key(security.server_public_key) if security else ""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._up = False
        self._proven = False  # one connection with these keys succeeded, so that the keys are right
        self._waker = Waker()
        self._caller_waker = Waker()
        self._all = self._changes_only = _poller_on(self._waker)
        self._caller_poller: select.poll | None = None

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""
        self.disconnect()
        self._socket = dealer = self._context.socket(zmq.DEALER)
        self._configure(dealer)
        self._monitor = dealer.get_monitor_socket(_EVENTS)
        dealer.connect(self._endpoint)
        # Both edge-triggered: look for messages and changes after each wake-up.
        arrivals, changes = (int(one.getsockopt(zmq.FD)) for one in (dealer, self._monitor))
        self._all = _poller_on(self._waker, arrivals, changes)
        self._changes_only = _poller_on(self._waker, changes)
        self._caller_poller = _poller_on(self._caller_waker, arrivals)

    def disconnect(self) -> None:
        """Drop the connection, if any; what was not sent is lost."""
        self._all = self._changes_only = _poller_on(self._waker)
        self._caller_poller = None
        self._up = False
        if self._socket is not None and self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close(linger=0)
        self._socket = self._monitor = None

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""
        if self._socket is None:
            return False
        try:
            send_message(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def has_arrivals(self) -> bool:
        """Whether a message waits that no wait will report, because sending consumed its signal."""
        return self._socket is not None and has_message(self._socket)

    def receive(self, limit: int) -> list[list[Buffer]]:
        """The messages that have arrived, about ``limit`` at most; fewer than that means all."""
        messages: list[list[Buffer]] = []
        while self._socket is not None and len(messages) < limit:
            received = receive_message(self._socket)
            if received is None:
                break
            messages.append(received.frames)
        return messages

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection, up to the change that ended it."""
        found: list[ConnectionEvent] = []
        while self._monitor is not None and has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            found.append(self._interpret(int(event["event"]), int(event["value"])))
            if found[-1].change is not Change.UP:
                break
            self._up = self._proven = True
        return found

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, unless a caller waits for them, arrivals; one thread does."""
        poller = self._all if arrivals else self._changes_only
        for fileno, _ in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._waker.fileno():
                self._waker.clear()

    def wake(self) -> None:
        """Interrupt `wait`; any thread may."""
        self._waker.wake()

    def caller_can_wait(self) -> bool:
        """Whether a caller may wait for arrivals on the connection that there is."""
        return self._caller_poller is not None

    def wait_in_caller(self, timeout_s: float) -> bool:
        """Wait for arrivals, in one caller; False if `wake_caller` interrupts or the connection is gone."""
        poller = self._caller_poller
        if poller is None:
            return False
        for fileno, event in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._caller_waker.fileno():
                self._caller_waker.clear()
                return False
            if event & select.POLLNVAL:
                return False
        return True

    def wake_caller(self) -> None:
        """Interrupt `wait_in_caller`; any thread may."""
        self._caller_waker.wake()

    def close(self) -> None:
        """Give everything back."""
        self.disconnect()
        self._context.term()
        self._waker.close()
        self._caller_waker.close()

    def _configure(self, dealer: zmq.Socket[bytes]) -> None:
        dealer.linger = 0
        dealer.ipv6 = is_tcp_v6(self._endpoint)
        dealer.immediate = True  # without a connection there is no room: we queue, not ZeroMQ
        dealer.reconnect_ivl = _NEVER_MS
        dealer.maxmsgsize = self._settings.max_message_bytes
        dealer.setsockopt(zmq.HANDSHAKE_IVL, int(self._settings.connect_timeout_s * 1000))
        if self._settings.heartbeat_s > 0:
            heartbeat_ms = int(self._settings.heartbeat_s * 1000)
            dealer.heartbeat_ivl = heartbeat_ms
            dealer.heartbeat_timeout = dealer.heartbeat_ttl = 3 * heartbeat_ms
        if self._own_keys is not None:
            dealer.curve_serverkey = self._server_key.encode()
            dealer.curve_publickey = self._own_keys.public.encode()
            dealer.curve_secretkey = self._own_keys.secret.encode()

    def _interpret(self, event: int, value: int) -> ConnectionEvent:
        endpoint = self._endpoint
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return ConnectionEvent(Change.UP)
        if self._up:
            return ConnectionEvent(Change.LOST, Unavailable(f"{endpoint} went away in mid-request"))
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            key = self._own_keys.public if self._own_keys else ""
            advice = "on that machine run `nearsight keys allow NAME.key --dir ALLOWED`; no restart is needed"
            error = Unauthenticated(f"{endpoint} does not allow the key {key}", advice=advice)
            return ConnectionEvent(Change.REJECTED, error)
        if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
                return self._other_mechanism()
            return _refused(f"what listens at {endpoint} is no nearsight daemon", "is the address right?")
        if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return self._handshake_ended()
        return _refused(f"nobody answers at {endpoint}", "is the daemon running, and is the address right?")

    def _handshake_ended(self) -> ConnectionEvent:
        """The server closed the connection during the handshake: find out why."""
        if not self._proven:
            mechanism = mechanism_of(self._endpoint, _GREETING_TIMEOUT_S)
            if mechanism is not None and mechanism != ("NULL" if self._own_keys is None else "CURVE"):
                return self._other_mechanism()
            if mechanism is not None and self._own_keys is not None:
                error = Unauthenticated(
                    f"{self._endpoint} closed the connection in the handshake: "
                    f"it does not own the public key {self._server_key}",
                    advice="copy that server's NAME.key file again",
                )
                return ConnectionEvent(Change.REJECTED, error)
        return _refused(
            f"{self._endpoint} closed the connection in the handshake", "is the daemon behind it running?"
        )

    def _other_mechanism(self) -> ConnectionEvent:
        if self._own_keys is None:
            error = Unauthenticated(
                f"{self._endpoint} lets in only clients with a key",
                advice="make one with `nearsight keys generate NAME --dir keys` and have it allowed there",
            )
        else:
            error = Unauthenticated(
                f"{self._endpoint} does not use keys, so that nobody knows who it is",
                advice="start that daemon with its keys, or connect without one",
            )
        return ConnectionEvent(Change.REJECTED, error)


def _refused(message: str, advice: str) -> ConnectionEvent:
    return ConnectionEvent(Change.REFUSED, Unavailable(message, advice=advice))


def _poller_on(waker: Waker, *filenos: int) -> select.poll:
    # Made anew for each connection: another thread may still poll the last one.
    poller = select.poll()
    for fileno in (waker.fileno(), *filenos):
        poller.register(fileno, select.POLLIN)
    return poller


def mechanism_of(endpoint: str, timeout_s: float) -> str | None:
    """Ask a server for its security mechanism, which every ZeroMQ greeting states in the clear.

    ZeroMQ's monitor says only that a handshake ended. A server that wants keys, one that knows none, and a
    proxy whose server is gone look the same to it; the greeting tells them apart. Source: ZMTP 3.1 (ZeroMQ
    RFC 37), section "greeting".

    Parameters
    ----------
    endpoint : str
        tcp://host:port; of other transports nothing can be said.
    timeout_s : float
        Longest wait for the connection, and again for each part of the greeting.

    Returns
    -------
    str or None
        "CURVE", "NULL" or "PLAIN"; None if nothing greets in time.
    """
    address = urlsplit(endpoint)
    if address.scheme != "tcp" or address.hostname is None or address.port is None:
        return None
    greeting = b""
    with suppress(OSError), socket.create_connection((address.hostname, address.port), timeout_s) as link:
        # Enough for the server to state its mechanism; ours is not stated.
        link.sendall(_SIGNATURE + _MAJOR_VERSION)
        while len(greeting) < _GREETING_BYTES:
            received = link.recv(_GREETING_BYTES - len(greeting))
            if not received:
                break
            greeting += received
    if len(greeting) < _MECHANISM.stop or not greeting.startswith(b"\xff"):
        return None
    return greeting[_MECHANISM].rstrip(b"\x00").decode("ascii", "replace")
