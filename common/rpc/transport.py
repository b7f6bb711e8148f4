"""What a channel needs of whatever carries its frames: ZeroMQ, or a server in the same process."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ClientSecurity, KeyPair, read_public_key, read_secret_key
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.sockets import (
    Waker,
    check_endpoint,
    has_message,
    is_tcp_v6,
    receive_message,
    send_message,
)


class Transport(Protocol):
    """Carries frames to one server; all but waits and wakes is called under the channel's lock."""

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""

    def disconnect(self) -> None:
        """Drop the connection, if any."""

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection, up to the change that ended it."""

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""

    def receive(self, limit: int) -> list[list[Buffer]]:
        """The messages that have arrived, about ``limit`` at most; fewer than that means all."""

    def has_arrivals(self) -> bool:
        """Whether a message waits that no wait will report, because sending consumed its signal."""

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, unless a caller drives, arrivals; one thread does."""

    def wake(self) -> None:
        """Interrupt `wait`; any thread may."""

    def can_drive(self) -> bool:
        """Whether a caller may wait for arrivals on the connection that there is."""

    def drive(self, timeout_s: float) -> bool:
        """Wait for arrivals, in a caller; False if it was interrupted. One caller does at a time."""

    def wake_driver(self) -> None:
        """Interrupt `drive`; any thread may."""

    def close(self) -> None:
        """Give everything back."""


class ZmqTransport:
    """The `Transport` to a server elsewhere.

    Parameters
    ----------
    endpoint : str
        The server's address.
    settings : ChannelSettings
        Limits and heartbeats.
    security : ClientSecurity or None
        Keys.

    Raises
    ------
    ConfigurationError
        If the endpoint is no address or a key cannot be read.
    """

    def __init__(self, endpoint: str, settings: ChannelSettings, security: ClientSecurity | None) -> None:
        self._endpoint = check_endpoint(endpoint)
        self._settings = settings
        self._keys = (
            ClientKeys(read_secret_key(security.secret_key_file), read_public_key(security.server_public_key))
            if security
            else None
        )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connection: Connection | None = None
        self._proven = False
        self._waker = Waker()
        self._driver_waker = Waker()
        self._all = self._poller_on(self._waker)
        self._changes_only = self._poller_on(self._waker)
        self._driver: select.poll | None = None

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""
        self.disconnect()
        self._connection = Connection(
            self._context, self._endpoint, self._settings, self._keys, proven=self._proven
        )
        arrivals, changes = self._connection.filenos()
        self._all = self._poller_on(self._waker, arrivals, changes)
        self._changes_only = self._poller_on(self._waker, changes)
        self._driver = self._poller_on(self._driver_waker, arrivals)

    def disconnect(self) -> None:
        """Drop the connection, if any."""
        self._all = self._changes_only = self._poller_on(self._waker)
        self._driver = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""
        return self._connection is not None and self._connection.send(frames)

    def has_arrivals(self) -> bool:
        """Whether a message waits; sending may have consumed the signal of its arrival."""
        return self._connection is not None and self._connection.has_arrivals()

    def receive(self, limit: int) -> list[list[Buffer]]:
        """The messages that have arrived, ``limit`` at most; fewer than that means all."""
        return self._connection.receive(limit) if self._connection else []

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection, up to the change that ended it."""
        found: list[ConnectionEvent] = []
        for event in self._connection.changes() if self._connection else []:
            found.append(event)
            self._proven = self._proven or event.change is Change.UP
            if event.change is not Change.UP:
                break
        return found

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, if asked to, arrivals."""
        poller = self._all if arrivals else self._changes_only
        for fileno, _ in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._waker.fileno():
                self._waker.clear()

    def wake(self) -> None:
        """Interrupt `wait`."""
        self._waker.wake()

    def can_drive(self) -> bool:
        """Whether there is a connection to wait on."""
        return self._driver is not None

    def drive(self, timeout_s: float) -> bool:
        """Wait for arrivals; False if `wake_driver` interrupted it or the connection is gone."""
        poller = self._driver
        if poller is None:
            return False
        for fileno, event in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._driver_waker.fileno():
                self._driver_waker.clear()
                return False
            if event & select.POLLNVAL:
                return False
        return True

    def wake_driver(self) -> None:
        """Interrupt `drive`."""
        self._driver_waker.wake()

    def close(self) -> None:
        """Give everything back."""
        self.disconnect()
        self._context.term()
        self._waker.close()
        self._driver_waker.close()

    def _poller_on(self, waker: Waker, *filenos: int) -> select.poll:
        # Made anew for each connection: another thread may still poll the last one.
        poller = select.poll()
        for fileno in (waker.fileno(), *filenos):
            poller.register(fileno, select.POLLIN)
        return poller


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


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The client's identity, and who the server must be (Z85)."""

    own: KeyPair
    server_public: str


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


class Connection:
    """One attempt to connect and the connection that may come of it. Not thread-safe.

    Parameters
    ----------
    context : zmq.Context
        Of the channel.
    endpoint : str
        The server's address.
    settings : ChannelSettings
        Limits and heartbeats.
    keys : ClientKeys or None
        For CURVE.
    proven : bool
        A connection with these keys succeeded before, so that the keys are right.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        settings: ChannelSettings,
        keys: ClientKeys | None,
        *,
        proven: bool,
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._proven = proven
        self._up = False
        self._socket = context.socket(zmq.DEALER)
        self._configure(settings)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(endpoint)

    def filenos(self) -> list[int]:
        """The descriptors to poll; edge-triggered, so `receive` and `changes` after each wake-up."""
        return [int(self._socket.getsockopt(zmq.FD)), int(self._monitor.getsockopt(zmq.FD))]

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room for it now."""
        try:
            send_message(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def has_arrivals(self) -> bool:
        """Whether a message waits; sending may have consumed the signal of its arrival."""
        return has_message(self._socket)

    def receive(self, limit: int) -> list[list[Buffer]]:
        """The messages that have arrived, ``limit`` at most; fewer than that means all."""
        messages: list[list[Buffer]] = []
        while len(messages) < limit:
            received = receive_message(self._socket)
            if received is None:
                break
            messages.append(received.frames)
        return messages

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection since the last call."""
        found: list[ConnectionEvent] = []
        while has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            found.append(self._interpret(int(event["event"]), int(event["value"])))
        return found

    def close(self) -> None:
        """Close the sockets; what was not sent is dropped."""
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close(linger=0)

    def _configure(self, settings: ChannelSettings) -> None:
        socket = self._socket
        socket.linger = 0
        socket.ipv6 = is_tcp_v6(self._endpoint)
        socket.immediate = True  # without a connection there is no room: we queue, not ZeroMQ
        socket.reconnect_ivl = _NEVER_MS
        socket.maxmsgsize = settings.max_message_bytes
        socket.setsockopt(zmq.HANDSHAKE_IVL, int(settings.connect_timeout_s * 1000))
        if settings.heartbeat_s > 0:
            heartbeat_ms = int(settings.heartbeat_s * 1000)
            socket.heartbeat_ivl = heartbeat_ms
            socket.heartbeat_timeout = 3 * heartbeat_ms
            socket.heartbeat_ttl = 3 * heartbeat_ms
        if self._keys is not None:
            socket.curve_serverkey = self._keys.server_public.encode()
            socket.curve_publickey = self._keys.own.public.encode()
            socket.curve_secretkey = self._keys.own.secret.encode()

    def _interpret(self, event: int, value: int) -> ConnectionEvent:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._up = True
            return ConnectionEvent(Change.UP)
        if self._up:
            return ConnectionEvent(Change.LOST, Unavailable(f"{self._endpoint} went away in mid-request"))
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return ConnectionEvent(Change.REJECTED, self._key_not_allowed())
        if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return self._protocol_failure(value)
        if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return self._handshake_ended()
        return ConnectionEvent(
            Change.REFUSED,
            Unavailable(
                f"nobody answers at {self._endpoint}",
                advice="is the daemon running, and is the address right?",
            ),
        )

    def _protocol_failure(self, value: int) -> ConnectionEvent:
        if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return self._other_mechanism()
        error = Unavailable(
            f"what listens at {self._endpoint} is no nearsight daemon", advice="is the address right?"
        )
        return ConnectionEvent(Change.REFUSED, error)

    def _handshake_ended(self) -> ConnectionEvent:
        """The server closed the connection without a word: find out why."""
        if not self._proven:
            mechanism = mechanism_of(self._endpoint, _GREETING_TIMEOUT_S)
            expected = "CURVE" if self._keys is not None else "NULL"
            if mechanism is not None and mechanism != expected:
                return self._other_mechanism()
            if mechanism is not None and self._keys is not None:
                return ConnectionEvent(Change.REJECTED, self._wrong_server_key())
        error = Unavailable(
            f"{self._endpoint} closed the connection in the handshake",
            advice="is the daemon behind it running?",
        )
        return ConnectionEvent(Change.REFUSED, error)

    def _other_mechanism(self) -> ConnectionEvent:
        if self._keys is None:
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

    def _key_not_allowed(self) -> Unauthenticated:
        key = self._keys.own.public if self._keys else ""
        return Unauthenticated(
            f"{self._endpoint} does not allow the key {key}",
            advice="on that machine run `nearsight keys allow NAME.key --dir ALLOWED`; no restart is needed",
        )

    def _wrong_server_key(self) -> Unauthenticated:
        key = self._keys.server_public if self._keys else ""
        return Unauthenticated(
            f"{self._endpoint} closed the connection in the handshake: it does not own the public key {key}",
            advice="copy that server's NAME.key file again",
        )


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
