"""The sockets of a server: any thread of a pool may receive from a connection and answer through it.

The memory that each client occupies in this process is counted: bytes of unfinished requests, of requests
that wait for their answers, and of unread answers. The total stays below ``memory_limit_bytes``. Beyond it, a
connection of the client that occupies the most is closed. Clients are counted by key or, without keys, by
address. If there are too many connections, the client with the most connections loses idle ones. A client
that has the most connections and repeatedly opens new ones is refused instead, because it would only replace
its own connections.

All connections are in one epoll, each armed for a single event: the thread that receives the event has
exclusive use of the connection's input until it arms the connection again. The lock of a connection orders
all operations on it; a thread never holds two of these locks.
"""

from __future__ import annotations

import contextlib
import errno
import math
import select
import socket as sockets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zmq.utils import z85

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.rpc.allow_list import AllowList
from nearsight.common.rpc.connection_warnings import ConnectionWarnings
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ServerSecurity, read_secret_key
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import DESCRIPTORS_ADVICE, connections_allowed, listen_on
from nearsight.common.rpc.zmtp import (
    FRAME_COST,
    Connection,
    Mechanism,
    NoRoom,
    ProtocolError,
    Refused,
    Session,
)

if TYPE_CHECKING:
    from nearsight.common.metrics import DaemonMetrics

LINGER_S = 0.5
"""Maximum time to send the remaining answers when the server ends."""

_ACCEPTS = 64
_ACCEPT_AGAIN_S = 0.02
_NEWCOMERS_SHARE = 0.5
"""Maximum share of one core for new clients, so that connected clients are served at the same time."""

_NEWCOMERS_BURST_S = 0.05
_ROOM = 32
"""Divisor of the connection limit; the quotient is the number of connections that are closed together,
because finding them takes time."""

_UNPROVEN = 16
"""Divisor of the connection limit; the quotient is the number of connections beyond the limit, for clients
that have not proved their keys."""

_BEGINS_S = 1.0
"""Age up to which a connection without a request counts as used, once its client has proved its key."""

_SETTLED_S = 10.0
"""A connection that was unused for this long may be replaced by another of the same client."""

_CHECK_S = 0.5
"""Interval between checks of connections while a client is silent for too long."""

_IN, _OUT, _ONCE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLONESHOT


class Received(NamedTuple):
    """One received request."""

    frames: list[Buffer]
    occupied_bytes: int
    """Memory that it occupies until it is answered."""
    connection: Connection


class Listener:
    """Accepts connections, receives requests and sends answers.

    Parameters
    ----------
    settings : ServerSettings
        ``listen`` and the limits.
    security : ServerSecurity or None
        Keys and allowed clients; None for a server without encryption.
    poller : select.epoll
        The poller of the threads that call `receive`.
    later : callable
        Takes a function, and the delay of its call in seconds.
    metrics : DaemonMetrics or None
        Receives connection events.
    clock : Clock
        Time of heartbeats.

    Raises
    ------
    AddressInUse
        If the address is taken.
    ConfigurationError
        If it is not an address of this machine, or a key file cannot be used.
    """

    def __init__(
        self,
        settings: ServerSettings,
        security: ServerSecurity | None,
        poller: select.epoll,
        later: Callable[[Callable[[], None], float], None],
        metrics: DaemonMetrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._settings = settings
        self.allowed = AllowList(security.allowed_clients, clock) if security else None
        """The allowed clients; None without encryption."""
        self._poller = poller
        self._later = later
        self._metrics = metrics
        self._clock = clock
        self._warnings = ConnectionWarnings(clock)
        self._mechanism: Callable[[], Mechanism] = Mechanism
        if security is not None:
            from nearsight.common.rpc.curve import Curve  # noqa: PLC0415  only needed with keys

            own = read_secret_key(security.secret_key_file)
            public, secret = z85.decode(own.public), z85.decode(own.secret)
            self._mechanism = lambda: Curve(public, secret, self._admit)
        self._most = connections_allowed(settings.connections_limit, "connections_limit")
        self._unproven = max(1, self._most // _UNPROVEN) if security is not None else 0
        self._lock = threading.Lock()
        self._making_room = threading.Lock()
        self._newcomers_s, self._newcomers_at_s = 0.0, clock.monotonic()
        self._connections: dict[int, Connection] = {}
        self.held_bytes = 0
        """Memory of this process that all clients occupy."""
        self._socket, self.endpoint = listen_on(settings.listen)
        poller.register(self._socket, _IN | _ONCE)
        if metrics is not None:
            metrics.read_connections(lambda: len(self._connections), lambda: self.held_bytes)

    def receive(self, ready: Mapping[int, int]) -> list[Received]:
        """Serve the descriptors that are ready; returns the received requests."""
        arrived: list[Received] = []
        for descriptor, events in ready.items():
            connection = self._connections.get(descriptor)
            if connection is not None:
                if connection.session.mechanism.done:
                    self._serve(connection, events, arrived)
                else:
                    self._serve_newcomer(connection, events, arrived)
                if self.held_bytes > self._settings.memory_limit_bytes:
                    self._drop_largest(self._settings.memory_limit_bytes)
            elif descriptor == self._socket.fileno():
                self._accept()
        return arrived

    def has_room(self, size_bytes: int) -> bool:
        """Whether a received request may wait: as much memory as it occupies must be free in addition.

        Therefore large requests are refused earlier than small ones. Connections with unfinished requests or
        unread answers are closed to make room.
        """
        spare = self._settings.memory_limit_bytes - size_bytes
        return self.held_bytes <= spare or self._drop_largest(spare)

    def send(self, connection: Connection, occupied_bytes: int, frames: Sequence[Buffer]) -> None:
        """Answer a request; called exactly once per request, even if its client has disconnected."""
        with connection.lock:
            connection.waiting_bytes -= occupied_bytes
            if not connection.closed:
                if not connection.unsent:
                    connection.sent_s = self._clock.monotonic()
                try:
                    connection.send(connection.session.encode(frames))
                    if connection.unsent_bytes > self._settings.send_limit_bytes:
                        self._drop(connection, "does not read its answers")
                    else:
                        self._arm(connection)
                except OSError:
                    self._drop(connection, "")
            self._count(connection)
        if self.held_bytes > self._settings.memory_limit_bytes:
            self._drop_largest(self._settings.memory_limit_bytes)

    def close_forbidden(self) -> None:
        """Close the connections of clients whose keys were removed from the list."""
        if self.allowed is None:
            return
        clients = self.allowed.clients
        for connection in list(self._connections.values()):
            with connection.lock:
                key = connection.key
                if key and key not in clients:
                    self._drop(connection, "its key is not allowed")

    def tick(self) -> float:
        """Send heartbeats to silent clients, and close the connections of those that do not respond.

        Returns
        -------
        float
            Time until the next call is useful [s]: until a client is silent for too long, or must have
            completed its handshake. Clients that connect later need no earlier call.
        """
        now_s, heartbeat_s = self._clock.monotonic(), self._settings.heartbeat_s
        handshake_s = self._settings.handshake_timeout_s
        next_s = now_s + min(heartbeat_s, handshake_s)
        for connection in list(self._connections.values()):
            with connection.lock, contextlib.suppress(OSError):
                self._look_after(connection, now_s)
            if connection.session.mechanism.done:
                next_s = min(next_s, connection.received_s + heartbeat_s)
            else:
                next_s = min(next_s, connection.since_s + handshake_s)
        return max(_CHECK_S, next_s - now_s)

    def close(self) -> None:
        """Send the remaining answers, then close all connections."""
        self._socket.close()
        if self.endpoint.startswith("ipc://"):
            Path(self.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)
        until_s = self._clock.monotonic() + LINGER_S
        for connection in list(self._connections.values()):
            with connection.lock, contextlib.suppress(OSError):
                while connection.unsent and (left_s := until_s - self._clock.monotonic()) > 0:
                    connection.socket.settimeout(left_s)
                    connection.flush()
            with connection.lock:
                self._drop(connection, "")

    def _accept(self) -> None:
        """Accept waiting connections; continue later if new clients have used their processor share."""
        begun_s = time.thread_time()
        for _ in range(_ACCEPTS):
            if (wait_s := self._charge_newcomers(begun_s)) > 0:
                self._later(self._accept, wait_s)
                return
            begun_s = time.thread_time()
            try:
                socket, address = self._socket.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    if not _has_client(self._socket):  # even without one, the call needs a descriptor
                        break
                    self._warnings.warn(
                        "no client can connect", reason=error.strerror, advice=DESCRIPTORS_ADVICE
                    )
                    self._drop_idlest(max(1, self._most // _ROOM))
                    self._later(self._accept, _ACCEPT_AGAIN_S)
                return  # for other errors the socket is closed
            name = f"{address[0]}:{address[1]}" if address else "local"
            room = len(self._connections) < self._most + self._unproven
            if room or self._drop_idlest(max(1, self._most // _ROOM)):
                self._begin(socket, name)
            else:
                self._warnings.warn(
                    "client refused: there are too many connections, all with calls", client=name
                )
                socket.close()
        with contextlib.suppress(OSError, ValueError):  # closed in the meantime
            self._poller.modify(self._socket, _IN | _ONCE)

    def _charge_newcomers(self, begun_s: float) -> float:
        """Add this thread's time for new clients; returns the time for which accepting must pause."""
        took_s, now_s = time.thread_time() - begun_s, self._clock.monotonic()
        with self._lock:
            back_s = _NEWCOMERS_SHARE * (now_s - self._newcomers_at_s)
            self._newcomers_s = max(0.0, self._newcomers_s - back_s) + took_s
            self._newcomers_at_s = now_s
            return (self._newcomers_s - _NEWCOMERS_BURST_S) / _NEWCOMERS_SHARE

    def _begin(self, socket: sockets.socket, address: str) -> None:
        socket.setblocking(False)
        if address != "local":
            socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        session = Session(self._mechanism(), self._settings)
        connection = Connection(socket, address, session, self._clock.monotonic())
        with connection.lock:
            self._connections[connection.descriptor] = connection
            connection.interest = _IN
            self._poller.register(connection.descriptor, _IN | _ONCE)
            with contextlib.suppress(OSError):
                self._send_replies(connection)

    def _serve_newcomer(self, connection: Connection, events: int, arrived: list[Received]) -> None:
        begun_s = time.thread_time()
        self._serve(connection, events, arrived)
        if connection.key and len(self._connections) > self._most:
            self._drop_idlest(1, self._clock.monotonic() - _BEGINS_S)
        self._charge_newcomers(begun_s)

    def _serve(self, connection: Connection, events: int, arrived: list[Received]) -> None:
        """Handle the events of a connection, and arm it again."""
        with connection.lock:
            if connection.closed:
                return
            session, connection.interest = connection.session, 0
            try:
                if events & _OUT and connection.flush():
                    connection.sent_s = self._clock.monotonic()
                if events & ~_OUT or session.more:
                    messages = connection.receive()
                    connection.key = session.mechanism.key
                    connection.received_s = self._clock.monotonic()
                    for frames in messages:
                        occupied_bytes = sum(map(len, frames)) + FRAME_COST * len(frames)
                        connection.waiting_bytes += occupied_bytes
                        connection.used_s = connection.received_s
                        arrived.append(Received(frames, occupied_bytes, connection))
                    if session.replies:
                        self._send_replies(connection)
                self._arm(connection)
            except OSError:
                self._drop(connection, "")
            except ProtocolError as error:
                with contextlib.suppress(OSError):
                    self._send_replies(connection)
                self._drop(connection, "broke the protocol", error)
            except BaseException:
                self._drop(connection, "")  # after a bug it must not stay open without being armed
                raise
            self._count(connection)

    def _send_replies(self, connection: Connection) -> None:
        replies, connection.session.replies = connection.session.replies, []
        connection.send([b"".join(replies)])

    def _arm(self, connection: Connection) -> None:
        """Wait for input, unless the client has enough waiting requests, and for room if bytes are unsent."""
        reads = connection.waiting_bytes + connection.unsent_bytes < self._settings.max_message_bytes
        if connection.session.more and reads:
            interest = _OUT  # an event follows soon, because there is nearly always room to send
        else:
            interest = (_IN if reads else 0) | (_OUT if connection.unsent else 0)
        if interest != connection.interest:
            connection.interest = interest
            self._poller.modify(connection.descriptor, interest | _ONCE)

    def _count(self, connection: Connection) -> None:
        """Update the sum over all connections."""
        held_bytes = connection.waiting_bytes
        if not connection.closed:
            held_bytes += connection.droppable_bytes
        if held_bytes != connection.counted_bytes:
            with self._lock:
                self.held_bytes += held_bytes - connection.counted_bytes
            connection.counted_bytes = held_bytes

    def _look_after(self, connection: Connection, now_s: float) -> None:
        heartbeat_s = self._settings.heartbeat_s
        quiet_s = now_s - connection.received_s
        if connection.closed:
            return
        if not connection.session.mechanism.done:
            if now_s - connection.since_s > self._settings.handshake_timeout_s:
                self._drop(connection, "did not finish connecting")
        elif connection.unsent:
            if min(now_s - connection.sent_s, quiet_s) > 3 * heartbeat_s:
                self._drop(connection, "does not read its answers")
        elif connection.interest & _IN and quiet_s > heartbeat_s:
            if quiet_s <= 3 * heartbeat_s or connection.unanswered_s(now_s) <= heartbeat_s:
                connection.ping(now_s)
                self._arm(connection)
            elif not _has_input(connection.socket):
                self._drop(connection, "is gone")

    def _drop_largest(self, target_bytes: int) -> bool:
        """Close connections of the largest clients until at most ``target_bytes`` of memory are occupied."""
        with self._making_room:  # otherwise two threads would each close a connection
            while self.held_bytes > target_bytes:
                connections = list(self._connections.values())
                held: Counter[str] = Counter()
                for one in connections:
                    held[one.group] += one.counted_bytes
                holders = [one for one in connections if one.droppable_bytes]
                if not holders:
                    return False
                victim = max(holders, key=lambda one: (held[one.group], one.droppable_bytes))
                with victim.lock:
                    self._drop(victim, "holds more memory than any other")
        return True

    def _admit(self, key: str) -> None:
        """Accept a client that proved its key, or raise `Refused`."""
        if self.allowed is not None and key not in self.allowed.clients:
            self.allowed.refresh_if_changed()
        if self.allowed is None or key not in self.allowed.clients:
            raise Refused(f"the key {key} is not allowed")
        if len(self._connections) <= self._most:
            return
        connections = list(self._connections.values())
        number = Counter(one.group for one in connections)
        settled_s = self._clock.monotonic() - _SETTLED_S
        if number[key] == max(number.values()) and not any(
            one.key == key and one.used_s < settled_s for one in connections
        ):
            raise NoRoom(f"it has {number[key]} connections, all used or begun in the last {_SETTLED_S:g} s")

    def _drop_idlest(self, most: int, begun_s: float = math.inf) -> bool:
        """Close idle connections of the client with the most: unused ones first, then the longest idle.

        Connections that began after ``begun_s`` count as used: their first request may be in transit.
        """
        groups = {one: one.group for one in list(self._connections.values())}
        number = Counter(groups.values())
        idle = [one for one in groups if not one.waiting_bytes and not one.unsent]
        idle.sort(
            key=lambda one: (
                -number[groups[one]],
                one.used_s > one.since_s or one.since_s > begun_s,
                one.used_s,
            )
        )
        for victim in idle[:most]:
            with victim.lock:
                victim.refuse_crowded()
                self._drop(victim, "was idle while there are too many connections")
        return bool(idle)

    def _drop(self, connection: Connection, reason: str, error: ProtocolError | None = None) -> None:
        """Close a connection, under its lock; the reason is empty if its client closed the connection."""
        if connection.closed:
            return
        held_bytes = connection.droppable_bytes
        connection.closed = True
        self._connections.pop(connection.descriptor, None)  # before the descriptor is reused
        with contextlib.suppress(OSError, ValueError):  # the poller may be closed already
            self._poller.unregister(connection.descriptor)
        connection.socket.close()
        connection.session.discard()
        connection.unsent.clear()
        self._count(connection)
        if reason:
            if self._metrics is not None:
                self._metrics.on_dropped(reason)
            self._warn_dropped(connection, held_bytes, reason, error)

    def _warn_dropped(
        self, connection: Connection, held_bytes: int, reason: str, error: ProtocolError | None
    ) -> None:
        """Log that this side closed a connection; the reason is the end of a sentence about the client."""
        key, client = connection.session.mechanism.key, connection.address
        caller = self.allowed.clients.get(key) if self.allowed is not None else None
        facts = {"client": client, "name": caller.name if caller else key}
        why = {"reason": str(error)} if error else {}
        if isinstance(error, NoRoom):
            message = "client refused: there are too many connections, most of them with its key"
            self._warnings.warn(message, **facts, **why)
        elif isinstance(error, Refused):
            self._warnings.refused(key, client)
        elif error is not None and not connection.session.mechanism.done:
            message = "a client failed to connect: another protocol, or a wrong key"
            self._warnings.warn(message, client=client, **why)
        else:
            message = f"connection closed: the client {reason}"
            self._warnings.warn(message, **facts, held_bytes=held_bytes, **why)


def _has_input(socket: sockets.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(socket.recv(1, sockets.MSG_PEEK))
    return False


def _has_client(listening: sockets.socket) -> bool:
    """Whether a client waits to be accepted."""
    poller = select.poll()
    with contextlib.suppress(ValueError):  # closed in the meantime
        poller.register(listening, select.POLLIN)
    return bool(poller.poll(0))
