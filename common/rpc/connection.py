"""One connection of a client: a DEALER socket that connects once, and what its monitor says about it.

A socket serves a single connection and is then thrown away. What is still on its way when a connection ends
can so never be taken for an answer on the next one, and nothing is sent to a server that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import zmq
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.address import is_tcp_v6
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.frames import has_message, receive_message, send_message
from nearsight.common.rpc.greeting import mechanism_of
from nearsight.common.rpc.security import KeyPair
from nearsight.common.rpc.settings import ChannelSettings

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
