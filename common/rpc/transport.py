"""Carries the frames of channels over ZeroMQ: one socket for all their connections, and the wait for it.

A ROUTER socket connects to every server, so that a connection takes one descriptor and no thread. Each
attempt to connect has a name of its own: what is still on its way when a connection ends can so never be
taken for an answer on the next one, and nothing is sent to a server that is not there.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

import zmq
from zmq import zmq_poll
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import NearsightError, Unauthenticated, Unavailable
from nearsight.common.rpc.envelope import LARGEST_HEADER, Buffer
from nearsight.common.rpc.names import NameResolver, split_name
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.sockets import Waker, check_endpoint, is_tcp_v6, out_of_descriptors, process_context
from nearsight.common.rpc.zmtp import Crowded, NoRoom

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_DISCONNECTED
)
_COPY_BELOW_BYTES = 65536
"""Sending without a copy costs a hand-over to pyzmq's collector thread: more than copying 64 KiB."""

# Plain integers: pyzmq's enums cost more than the sending.
_POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_NEVER_MS = 600_000
_SPELLINGS = 256
_PATH_SPELLINGS = 4  # the path of a socket is short
_GREETING_TIMEOUT_S = 0.3
_SIGNATURE = b"\xff" + 8 * b"\x00" + b"\x7f"
_MAJOR_VERSION = b"\x03"
_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)
_NO_ROOM = int(NoRoom.status)
_CROWDED = (int(Crowded.status), int(zmq.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND))
"""What libzmq says if the server had no room; the second where it has not begun its part of the handshake."""

_LOST_HEARTBEATS = 3
"""Heartbeats in a row that the server's machine does not acknowledge if it is gone."""

_UNANSWERED_HEARTBEATS = 30
"""Heartbeats in a row that the server does not answer if it hangs. For libzmq only whole frames are answers.
Over a slow network a large one takes longer than three heartbeats, and so does one behind a large request."""


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


class Link:
    """What a transport knows of one channel's connection.

    Parameters
    ----------
    endpoint : str
        The server's address.
    settings : ChannelSettings
        Limits and heartbeats.
    security : ClientSecurity or None
        Keys for CURVE. The links of one transport all have keys, or none has.

    Raises
    ------
    ConfigurationError
        If the endpoint is no address or a key cannot be read.
    """

    __slots__ = ("address", "endpoint", "name", "own_keys", "proven", "server_key", "settings", "turn", "up")

    def __init__(self, endpoint: str, settings: ChannelSettings, security: ClientSecurity | None) -> None:
        self.endpoint = check_endpoint(endpoint)
        self.settings = settings
        self.own_keys = read_secret_key(security.secret_key_file) if security else None
        self.server_key = read_public_key(security.server_public_key) if security else ""
        self.name = b""
        """Of the current attempt, as the socket knows it; empty without one."""
        self.address = ""
        """The endpoint as it was spelled in the current attempt."""
        self.turn = 0
        """Which address of its name the next attempt takes: after one that failed, the one behind it."""
        self.up = False
        self.proven = False  # one connection with these keys succeeded, so that the keys are right


class Transport:
    """Carries frames to servers: a ROUTER socket that connects to each once per attempt, and its monitor.

    All but waits and wakes is called under the lock of the channels' group.

    Parameters
    ----------
    ask_why : bool
        Ask a server that ends a handshake for its reason; others wait meanwhile.
    """

    def __init__(self, *, ask_why: bool = True) -> None:
        self._ask_why = ask_why
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._by_name: dict[bytes, Link] = {}
        self._by_address: dict[str, Link] = {}
        self._attempts = 0
        self._failed: list[tuple[Link, ConnectionEvent]] = []
        self._waker = Waker()
        self._caller_waker = Waker()
        self.wake, self.wake_caller = self._waker.wake, self._caller_waker.wake
        """Interrupt `wait` or `wait_in_caller`; any thread may."""
        self._all = self._changes_only = _poller_on(self._waker)
        self._caller_poller = _poller_on(self._caller_waker)
        self._names = NameResolver(self.wake)
        self._looked_up: dict[Link, int] = {}  # and in which attempt

    def connect(self, link: Link) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""
        self.disconnect(link)
        host, _ = split_name(link.endpoint)
        if host:
            self._looked_up[link] = self._attempts = self._attempts + 1
            self._names.look_up(self._attempts, host, link.turn)
            link.turn += 1
        else:
            self._connect(link, link.endpoint)

    def _connect(self, link: Link, endpoint: str) -> None:
        """Begin to connect to an endpoint without a name."""
        try:
            router = self._socket or self._open()
            address = self._free_spelling(endpoint)
            _configure(router, link, endpoint)
            name = b"%x" % self._attempts
            router.setsockopt(zmq.CONNECT_ROUTING_ID, name)
            router.connect(address)
        except zmq.ZMQError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
            self._failed.append((link, ConnectionEvent(Change.REFUSED, out_of_descriptors())))
            return
        link.name, link.address = name, address
        self._by_name[name] = self._by_address[address] = link

    def disconnect(self, link: Link) -> None:
        """Drop the connection, if any; what was not sent is lost."""
        if link.name and self._socket is not None:
            self._socket.disconnect(link.address)
            del self._by_name[link.name]
            self._by_address.pop(link.address, None)
        link.name, link.up = b"", False
        self._looked_up.pop(link, None)

    def send(self, link: Link, frames: Sequence[Buffer]) -> bool:
        """Send a message or nothing of it; False if there is no room or no connection. Views must be flat."""
        if self._socket is None or not link.name:
            return False
        last = len(frames) - 1
        try:
            self._socket.send(link.name, _NOBLOCK_MORE)
            for index, frame in enumerate(frames):
                flags = _NOBLOCK if index == last else _NOBLOCK_MORE
                self._socket.send(frame, flags, len(frame) < _COPY_BELOW_BYTES)
        except zmq.ZMQError as error:
            if error.errno not in {errno.EAGAIN, errno.EHOSTUNREACH}:
                raise
            return False
        return True

    def has_arrivals(self) -> bool:
        """Whether a message waits that no wait will report, because sending consumed its signal."""
        return self._socket is not None and bool(zmq_poll([(self._socket, _POLLIN)], 0))

    def receive(self, limit: int) -> list[tuple[Link, list[Buffer]]]:
        """The messages that have arrived, about ``limit`` at most; fewer than that means all."""
        messages: list[tuple[Link, list[Buffer]]] = []
        while self._socket is not None and len(messages) < limit:
            try:
                part = self._socket.recv(_NOBLOCK, False)
            except zmq.Again:
                break
            link, frames = self._by_name.get(part.bytes), list[Buffer]()
            while part.more:
                part = self._socket.recv(_NOBLOCK, False)
                frames.append(part.buffer)
            if link is not None:
                messages.append((link, frames))
        return messages

    def changes(self) -> list[tuple[Link, ConnectionEvent]]:
        """What happened to the connections; of each up to the change that ended it."""
        if self._looked_up:  # else what the resolver found is of attempts that were given up
            self._take_names()
        found, self._failed = self._failed, []
        while self._monitor is not None and zmq_poll([(self._monitor, _POLLIN)], 0):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            link = self._by_address.get(bytes(event["endpoint"]).decode())
            if link is None:  # of an attempt that was given up
                continue
            kind, value = int(event["event"]), int(event["value"])
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                link.up = link.proven = True
                link.turn -= 1  # this address is the first to be asked again
                found.append((link, ConnectionEvent(Change.UP)))
                continue
            del self._by_address[link.address]
            if link.up:
                error = Unavailable(f"{link.endpoint} went away in mid-request")
                found.append((link, ConnectionEvent(Change.LOST, error)))
            else:
                found.append((link, _refused_by(link, kind, value, ask_why=self._ask_why)))
        return found

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, unless a caller waits for them, arrivals; one thread does."""
        poller = self._all if arrivals else self._changes_only
        for fileno, _ in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._waker.descriptor:
                self._waker.clear()

    def caller_can_wait(self) -> bool:
        """Whether a caller may wait for arrivals."""
        return self._socket is not None

    def wait_in_caller(self, timeout_s: float) -> bool:
        """Wait for arrivals, in one caller; False if `wake_caller` interrupts."""
        for fileno, _ in self._caller_poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._caller_waker.descriptor:
                self._caller_waker.clear()
                return False
        return True

    def close(self) -> None:
        """Give everything back."""
        if self._socket is not None and self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close(linger=0)
        self._socket = self._monitor = None
        self._waker.close()
        self._caller_waker.close()

    def _take_names(self) -> None:
        """Connect where a name was looked up."""
        for attempt, address in self._names.found():
            link = next((one for one, latest in self._looked_up.items() if latest == attempt), None)
            if link is None:  # it was given up
                continue
            del self._looked_up[link]
            if isinstance(address, Unavailable):
                self._failed.append((link, ConnectionEvent(Change.REFUSED, address)))
            else:
                self._connect(link, f"tcp://{address}:{split_name(link.endpoint)[1]}")

    def _free_spelling(self, endpoint: str) -> str:
        for _ in range(_SPELLINGS):
            self._attempts += 1
            address = _spelled(endpoint, self._attempts)
            if address not in self._by_address:
                return address
        raise RuntimeError(f"more than {_SPELLINGS} connections to {endpoint}")

    def _open(self) -> zmq.Socket[bytes]:
        """Open the socket and its monitor, with the first attempt."""
        router = process_context().socket(zmq.ROUTER)
        try:
            router.linger = 0
            router.router_mandatory = True
            router.reconnect_ivl = _NEVER_MS
            self._monitor = router.get_monitor_socket(_EVENTS)
        except zmq.ZMQError:
            router.close()
            raise
        self._socket = router
        # Both edge-triggered: look for messages and changes after each wake-up.
        arrivals, changes = (int(one.getsockopt(zmq.FD)) for one in (router, self._monitor))
        self._all = _poller_on(self._waker, arrivals, changes)
        self._changes_only = _poller_on(self._waker, changes)
        self._caller_poller = _poller_on(self._caller_waker, arrivals)
        return router


def _configure(router: zmq.Socket[bytes], link: Link, endpoint: str) -> None:
    """Set what holds for the connections that are begun from now on."""
    settings = link.settings
    router.ipv6 = is_tcp_v6(endpoint)
    router.maxmsgsize = settings.max_message_bytes + LARGEST_HEADER  # of a frame, with what encrypts it
    # As many answers may come late. A connection with more unread has no heartbeats; if it then breaks, an
    # assertion of libzmq ends this process.
    router.rcvhwm = 2 * settings.pending_limit
    router.setsockopt(zmq.HANDSHAKE_IVL, int(settings.connect_timeout_s * 1000))
    heartbeat_ms = int(settings.heartbeat_s * 1000)
    router.heartbeat_ivl = heartbeat_ms
    router.tcp_maxrt = _LOST_HEARTBEATS * heartbeat_ms
    router.heartbeat_timeout = _UNANSWERED_HEARTBEATS * heartbeat_ms
    if link.own_keys is not None:
        router.curve_serverkey = link.server_key.encode()
        router.curve_publickey = link.own_keys.public.encode()
        router.curve_secretkey = link.own_keys.secret.encode()


def _spelled(endpoint: str, attempt: int) -> str:
    """The same address in other letters: by them ZeroMQ's events tell one attempt to connect from another."""
    scheme, _, rest = endpoint.partition("://")
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        return f"tcp://{host}:{'0' * (attempt % _SPELLINGS)}{port}"
    extra = ("/" if rest.startswith("/") else "./") * (attempt % _PATH_SPELLINGS)
    return f"{scheme}://{extra}{rest}"


def _refused_by(link: Link, event: int, value: int, *, ask_why: bool) -> ConnectionEvent:
    """An attempt to connect failed: say why."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == _NO_ROOM:
        return _refused(
            f"{link.endpoint} has too many connections, most of them with this key",
            "close some, give clients keys of their own, or raise `server.connections_limit` there",
        )
    if value in _CROWDED:
        return _refused(f"{link.endpoint} has too many connections", "try again in a moment")
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        key = link.own_keys.public if link.own_keys else ""
        advice = "on that machine run `nearsight keys allow NAME.key --dir ALLOWED`; no restart is needed"
        error = Unauthenticated(f"{link.endpoint} does not allow the key {key}", advice=advice)
        return ConnectionEvent(Change.REJECTED, error)
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return _other_mechanism(link)
        return _refused(f"what listens at {link.endpoint} is no nearsight daemon", "is the address right?")
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return _handshake_ended(link, ask_why=ask_why)
    if not _has_descriptors():
        return ConnectionEvent(Change.REFUSED, out_of_descriptors())
    advice = "is the daemon running, and is the address right?"
    return _refused(f"nobody answers at {link.endpoint}", advice, reached=False)


def _handshake_ended(link: Link, *, ask_why: bool) -> ConnectionEvent:
    """The server closed the connection during the handshake: find out why."""
    if ask_why and not link.proven:
        mechanism = mechanism_of(link.endpoint, _GREETING_TIMEOUT_S)
        if mechanism is not None and mechanism != ("NULL" if link.own_keys is None else "CURVE"):
            return _other_mechanism(link)
        if mechanism is not None and link.own_keys is not None:
            error = Unauthenticated(
                f"{link.endpoint} closed the connection in the handshake: "
                f"it does not own the public key {link.server_key}",
                advice="copy that server's NAME.key file again",
            )
            return ConnectionEvent(Change.REJECTED, error)
    return _refused(
        f"{link.endpoint} closed the connection in the handshake", "is the daemon behind it running?"
    )


def _other_mechanism(link: Link) -> ConnectionEvent:
    if link.own_keys is None:
        error = Unauthenticated(
            f"{link.endpoint} lets in only clients with a key",
            advice="make one with `nearsight keys generate NAME --dir keys` and have it allowed there",
        )
    else:
        error = Unauthenticated(
            f"{link.endpoint} does not use keys, so that nobody knows who it is",
            advice="start that daemon with its keys, or connect without one",
        )
    return ConnectionEvent(Change.REJECTED, error)


def _has_descriptors() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _refused(message: str, advice: str, *, reached: bool = True) -> ConnectionEvent:
    error = Unavailable(message, advice=advice)
    error.reached = reached
    return ConnectionEvent(Change.REFUSED, error)


def _poller_on(waker: Waker, *filenos: int) -> select.poll:
    poller = select.poll()
    for fileno in (waker.descriptor, *filenos):
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
