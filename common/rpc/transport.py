"""Carries the frames of channels over ZeroMQ: one socket for all their connections, and the wait for it.

A ROUTER socket connects to every server, so a connection takes one descriptor and no thread. Each attempt to
connect has its own routing id. Therefore a message of an ended connection is never taken for an answer on the
next one, and nothing is sent to an unreachable server.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from concurrent.futures import Future

import zmq
from zmq import zmq_poll
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.rpc.endpoints import LONGEST_PATH_BYTES, split_name, split_tcp
from nearsight.common.rpc.envelope import LARGEST_HEADER, Buffer
from nearsight.common.rpc.links import Link, refusal
from nearsight.common.rpc.names import NameResolver
from nearsight.common.rpc.settings import PENDING_LIMIT_MAX
from nearsight.common.rpc.sockets import Waker, out_of_descriptors, process_context

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_DISCONNECTED
)
_COPY_BELOW_BYTES = 65536
"""Sending without a copy involves pyzmq's collector thread, which costs more than copying 64 KiB."""

# Plain integers: pyzmq's enums take more time than the sending.
_POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_NEVER_MS = 600_000
_SPELLINGS = 256
_PATH_SPELLINGS = 4
_UNREAD_MESSAGES = 2 * PENDING_LIMIT_MAX
"""Maximum number of unread messages of a connection; half of them may be late answers. A connection with more
has no heartbeats. If it then fails, an assertion of libzmq aborts this process."""

_LOST_HEARTBEATS = 3
"""Consecutive heartbeats without a TCP acknowledgement after which the server's machine counts as lost."""

_UNANSWERED_HEARTBEATS = 30
"""Consecutive heartbeats without an answer after which the server counts as hung. libzmq counts only complete
frames as answers. Over a slow network, a large frame may take longer than three heartbeats, and so may a
frame after a large request."""


class Transport:
    """Carries frames to servers: a ROUTER socket that connects to each once per attempt, and its monitor.

    All methods except waits and wakes are called under the lock of the channels' group.

    Parameters
    ----------
    find_reason : bool
        Read the greeting of a server that ends a handshake, to find its reason; other channels wait for this.
    """

    def __init__(self, *, find_reason: bool = True) -> None:
        self._ask_why = find_reason
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._by_name: dict[bytes, Link] = {}
        self._by_address: dict[str, Link] = {}
        self._attempts = 0
        self._failed: list[tuple[Link, NearsightError | None]] = []
        self._waker = Waker()
        self._caller_waker = Waker()
        self.wake, self.wake_caller = self._waker.wake, self._caller_waker.wake
        """Interrupt `wait` or `wait_in_caller`; any thread may call them."""
        self._all = self._changes_only = _poller_on(self._waker)
        self._caller_poller = _poller_on(self._caller_waker)
        self._names = NameResolver()
        self._looked_up: dict[Link, Future[str]] = {}

    def connect(self, link: Link) -> None:
        """Begin one attempt to connect; replaces an existing connection."""
        self.disconnect(link)
        host, _ = split_name(link.endpoint)
        if host:
            self._looked_up[link] = lookup = self._names.look_up(host, link.turn)
            lookup.add_done_callback(lambda _: self.wake())
            link.turn += 1
        else:
            self._connect(link, link.endpoint)

    def _connect(self, link: Link, endpoint: str) -> None:
        """Begin to connect to an endpoint that is an address."""
        try:
            router = self._socket or self._open()
            address = self._free_spelling(endpoint)
            _configure(router, link, endpoint)
            name = b"%x" % self._attempts
            router.setsockopt(zmq.CONNECT_ROUTING_ID, name)
            router.connect(address)
        except zmq.ZMQError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE, errno.EINVAL}:
                raise
            invalid = Unavailable(f"{link.endpoint} is not an address", advice="write tcp://HOST:PORT")
            reason = invalid if error.errno == errno.EINVAL else out_of_descriptors()
            self._failed.append((link, reason))
            return
        link.name, link.address = name, address
        self._by_name[name] = self._by_address[address] = link

    def disconnect(self, link: Link) -> None:
        """Close the connection, if any; unsent messages are lost."""
        if link.name and self._socket is not None:
            self._socket.disconnect(link.address)
            del self._by_name[link.name]
            self._by_address.pop(link.address, None)
        link.name, link.up = b"", False
        self._looked_up.pop(link, None)
        self._failed = [one for one in self._failed if one[0] is not link]

    def send(self, link: Link, frames: Sequence[Buffer]) -> bool:
        """Send a complete message or nothing; False without room or connection. Views must be flat bytes."""
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
        """The received messages, at most about ``limit``; fewer than that means all."""
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

    def changes(self) -> list[tuple[Link, NearsightError | None]]:
        """The connections that are up (None), and the errors of those that ended or were refused."""
        if self._looked_up:
            self._take_names()
        found, self._failed = self._failed, []
        while self._monitor is not None and zmq_poll([(self._monitor, _POLLIN)], 0):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            link = self._by_address.get(bytes(event["endpoint"]).decode())
            if link is None:  # of an abandoned attempt
                continue
            kind, value = int(event["event"]), int(event["value"])
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                link.up = link.proven = True
                link.turn -= 1  # the next attempt begins with this address
                found.append((link, None))
                continue
            del self._by_address[link.address]
            if link.up:
                lost = f"{link.endpoint}: the connection was lost during the request"
                found.append((link, Unavailable(lost)))
            else:
                found.append((link, refusal(link, kind, value, find_reason=self._ask_why)))
        return found

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for events, `wake` and, unless a caller waits for them, messages; called by one thread."""
        poller = self._all if arrivals else self._changes_only
        for fileno, _ in poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._waker.descriptor:
                self._waker.clear()

    def caller_can_wait(self) -> bool:
        """Whether a caller may wait for messages."""
        return self._socket is not None

    def wait_in_caller(self, timeout_s: float) -> bool:
        """Wait for messages, in one caller; False if `wake_caller` interrupts."""
        for fileno, _ in self._caller_poller.poll(timeout_s * 1000.0 + 0.5):
            if fileno == self._caller_waker.descriptor:
                self._caller_waker.clear()
                return False
        return True

    def close(self) -> None:
        """Close all sockets and descriptors."""
        if self._socket is not None and self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close(linger=0)
        self._socket = self._monitor = None
        self._waker.close()
        self._caller_waker.close()

    def _take_names(self) -> None:
        """Connect to the servers whose names were resolved."""
        for link, lookup in [one for one in self._looked_up.items() if one[1].done()]:
            del self._looked_up[link]
            error = lookup.exception()
            if isinstance(error, Unavailable):
                self._failed.append((link, error))
            else:
                self._connect(link, f"tcp://{lookup.result()}:{split_name(link.endpoint)[1]}")

    def _free_spelling(self, endpoint: str) -> str:
        for _ in range(_SPELLINGS):
            self._attempts += 1
            address = _spelled(endpoint, self._attempts)
            if address not in self._by_address:
                return address
        raise RuntimeError(f"more than {_SPELLINGS} connections to {endpoint}")

    def _open(self) -> zmq.Socket[bytes]:
        """Open the socket and its monitor, at the first attempt."""
        router = process_context().socket(zmq.ROUTER)
        try:
            router.linger = 0
            router.router_mandatory = True
            router.reconnect_ivl = _NEVER_MS
            # Set once: libzmq 4.3.5 sends a change of this option to all connections of the socket, also to
            # one that it has just freed after a failed handshake. Then the process crashes.
            router.rcvhwm = _UNREAD_MESSAGES
            self._monitor = router.get_monitor_socket(_EVENTS)
        except zmq.ZMQError:
            router.close()
            raise
        self._socket = router
        # Both are edge-triggered: check for messages and events after each wake-up.
        arrivals, changes = (int(one.getsockopt(zmq.FD)) for one in (router, self._monitor))
        self._all = _poller_on(self._waker, arrivals, changes)
        self._changes_only = _poller_on(self._waker, changes)
        self._caller_poller = _poller_on(self._caller_waker, arrivals)
        return router


def _configure(router: zmq.Socket[bytes], link: Link, endpoint: str) -> None:
    """Set the options of connections that begin from now on."""
    settings = link.settings
    router.ipv6 = endpoint.startswith("tcp://[")
    # Limit of one frame, with the overhead of encryption.
    router.maxmsgsize = settings.max_message_bytes + LARGEST_HEADER
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
    """An equivalent spelling of the address, by which ZeroMQ's events identify the attempt to connect."""
    host, port = split_tcp(endpoint)
    if host:
        return f"tcp://{host}:{'0' * (attempt % _SPELLINGS)}{port}"
    scheme, _, rest = endpoint.partition("://")
    extra = "/" if rest.startswith("/") else "./"
    room = (LONGEST_PATH_BYTES - len(os.fsencode(rest))) // len(extra)
    return f"{scheme}://{extra * (attempt % min(_PATH_SPELLINGS, room + 1))}{rest}"


def _poller_on(waker: Waker, *filenos: int) -> select.poll:
    poller = select.poll()
    for fileno in (waker.descriptor, *filenos):
        poller.register(fileno, select.POLLIN)
    return poller
