"""The server's socket: a ROUTER that any thread receives from and answers through.

A ZeroMQ socket may move between threads if a lock orders its uses; so a request needs no hand-over between
threads. The socket's descriptor is edge-triggered: a thread that sends may consume the signal of a request
that arrives meanwhile, and must then wake a thread that receives it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket as sockets
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from nearsight.common.errors import AddressInUse, ConfigurationError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.allow_list import AllowList
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ServerSecurity, read_secret_key
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.sockets import Received, has_message, is_tcp_v6, receive_message, send_message

LINGER_MS = 500
BATCH = 64
"""Messages received before the server looks after its timers again."""

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_ZAP_DOMAIN = b"nearsight"
_REMEMBERED_REFUSALS = 256
_FAILED_HANDSHAKES = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Listener:
    """Binds, receives and sends.

    Parameters
    ----------
    settings : ServerSettings
        ``listen`` and the limits.
    security : ServerSecurity or None
        Keys; None for an open socket.
    allowed : AllowList or None
        Who may connect; goes with ``security``.
    wake : callable
        Makes a thread call `receive`.

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
        allowed: AllowList | None,
        wake: Callable[[], None],
    ) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._admission_lock = threading.Lock()
        self._log = get_logger("rpc.listener")
        self._closed = False
        self._allowed = allowed
        self._removals = allowed.removals if allowed else 0
        self._connections: dict[int, _Connection] = {}
        keys = read_secret_key(security.secret_key_file) if security else None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap: ZapHandler | None = None
        self._socket = self._context.socket(zmq.ROUTER)
        try:
            if self._allowed is not None and keys is not None:
                self._zap = ZapHandler(self._context, self._allowed)
                self._socket.curve_server = True
                self._socket.curve_secretkey = keys.secret.encode()
                self._socket.zap_domain = _ZAP_DOMAIN
                self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # no handler: nobody gets in
            self._configure(settings)
            # Whose connections are cut must be known from their beginning.
            self._monitor = self._socket.get_monitor_socket(
                _FAILED_HANDSHAKES | (zmq.EVENT_ACCEPTED if self._zap else 0)
            )
            self.endpoint = self._bind(settings.listen)
            admission = [int(self._monitor.getsockopt(zmq.FD)), *([self._zap.fileno()] if self._zap else [])]
            self._admission_filenos = frozenset(admission)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def filenos(self) -> list[int]:
        """The descriptors to poll for `admit` and `receive`; all edge-triggered."""
        return [int(self._socket.getsockopt(zmq.FD)), *self._admission_filenos]

    def admit(self, ready: Collection[int]) -> None:
        """Decide about clients that connect, and log failed handshakes."""
        if not self._admission_filenos.isdisjoint(ready):
            with self._admission_lock:
                if self._zap is not None:
                    self._zap.serve()
                self._look_at_connections()

    def receive(self) -> list[Received]:
        """All messages that have arrived, up to `BATCH`, their frames begun by the identity of the client."""
        arrived: list[Received] = []
        with self._lock:
            more = True
            while more and len(arrived) < BATCH:
                message = receive_message(self._socket, with_metadata=self._zap is not None)
                if message is None:
                    break
                if message.user_id is not None:
                    known = self._connections.get(message.descriptor)
                    if known is None or known.identity != message.frames[0]:
                        self._remember(message.descriptor, bytes(message.frames[0]), message.user_id)
                arrived.append(message)
                more = has_message(self._socket)
        return arrived

    def send(self, identity: bytes, frames: Sequence[Buffer]) -> None:
        """Send a message to one client. A client that is gone, or that does not read, is given up on."""
        with self._lock:
            if self._closed:
                return
            try:
                send_message(self._socket, [identity, *frames])
            except zmq.Again:
                self._log.warning("answer dropped: the client does not read", client=identity.hex())
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self._log.debug("answer dropped: the client is gone", client=identity.hex())
            more = has_message(self._socket)
        if more:
            self._wake()

    def cut_forbidden(self) -> None:
        """Cut the connections of clients whose keys were taken out of the list since this was called last.

        libzmq has no call that closes one connection of a ROUTER. But once its TCP connection is shut down,
        libzmq takes the client to be gone, and frees what it had of it. A client that has sent nothing yet is
        cut in any case: it connects again, and must prove its key then.
        """
        if self._allowed is None:
            return
        # A key may have been added and taken out since; what was in the list then and now would not tell.
        removals, clients = self._allowed.removals, self._allowed.clients
        if removals == self._removals:
            return
        self._removals = removals
        with self._admission_lock:
            self._look_at_connections()  # one that was let in a moment ago is known here only now
        with self._lock:
            connections, self._connections = self._connections, {}
            for descriptor, connection in connections.items():
                if connection.key in clients:
                    self._connections[descriptor] = connection
                elif not self._closed and _shut_down(descriptor, connection.inode):
                    self._log.info("connection cut: its key is not allowed", public_key=connection.key)

    def close(self) -> None:
        """Send what was answered, then close all sockets."""
        with self._lock:
            self._closed = True
            self._socket.disable_monitor()
            self._monitor.close()
            if self._zap is not None:
                self._zap.close()
            self._socket.close(linger=LINGER_MS)
        self._context.term()

    def _configure(self, settings: ServerSettings) -> None:
        self._socket.ipv6 = is_tcp_v6(settings.listen)
        self._socket.maxmsgsize = settings.max_message_bytes
        self._socket.router_mandatory = True
        self._socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, 10_000)

    def _bind(self, endpoint: str) -> str:
        if endpoint.startswith("ipc://"):
            _refuse_live_ipc(endpoint)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno == errno.EADDRINUSE:
                raise _in_use(endpoint) from error
            raise ConfigurationError(
                f"cannot listen on {endpoint}: {zmq.strerror(error.errno or 0)}",
                advice="listen on an address of this machine, e.g. tcp://127.0.0.1:0",
            ) from error
        return str(self._socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())  # type: ignore[union-attr]

    def _look_at_connections(self) -> None:
        while has_message(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            if event["event"] == zmq.EVENT_ACCEPTED:
                with self._lock:
                    self._remember(int(event["value"]), b"", "")
                continue
            self._log.info(
                "a client failed to connect: no peer of this protocol, or a wrong key",
                reason=zmq.Event(event["event"]).name,
                detail=hex(int(event["value"])),
            )

    def _remember(self, descriptor: int, identity: bytes, key: str) -> None:
        """Note whose connection a descriptor is, by the socket's number in the kernel: descriptors return."""
        with contextlib.suppress(OSError):  # closed meanwhile
            inode = os.fstat(descriptor).st_ino
            known = self._connections.get(descriptor)
            if identity or known is None or known.inode != inode:
                self._connections[descriptor] = _Connection(inode, identity, key)


class _Connection(NamedTuple):
    inode: int
    identity: bytes
    """As libzmq names the client; empty until it has sent a message, as is ``key``."""
    key: str


def _shut_down(descriptor: int, inode: int) -> bool:
    """End a connection, unless the descriptor belongs to another by now; whether it did."""
    with contextlib.suppress(OSError), sockets.socket(fileno=os.dup(descriptor)) as own:
        if os.fstat(own.fileno()).st_ino == inode:
            own.shutdown(sockets.SHUT_RDWR)
            return True
    return False


def _refuse_live_ipc(endpoint: str) -> None:
    # ZeroMQ replaces the file of an ipc socket, even if a daemon still listens there.
    path = endpoint.removeprefix("ipc://")
    if not Path(path).exists():
        return
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe, contextlib.suppress(OSError):
        probe.connect(path)
        raise _in_use(endpoint)


def _in_use(endpoint: str) -> AddressInUse:
    return AddressInUse(
        f"{endpoint} is in use", advice="stop the program that listens there, or choose another address"
    )


class ZapHandler:
    """Answers libzmq's question whether a client may connect (ZAP, ZeroMQ RFC 27), in a thread of the server.

    pyzmq's own authenticator would need an asyncio loop in a further thread of each server, and tells neither
    its callback nor its log the address of a refused client.

    Parameters
    ----------
    context : zmq.Context
        That of the server's socket: ZAP reaches no further.
    allowed : AllowList
        Who may connect.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: AllowList) -> None:
        self._allowed = allowed
        self._refused: set[str] = set()
        self._log = get_logger("rpc.zap")
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ZAP_ENDPOINT)

    def fileno(self) -> int:
        """The descriptor to poll; edge-triggered, so `serve` after each wake-up."""
        return int(self._socket.getsockopt(zmq.FD))

    def serve(self) -> None:
        """Answer all questions that have arrived."""
        while has_message(self._socket):
            question = self._socket.recv_multipart(zmq.NOBLOCK)
            self._socket.send_multipart(self._answer(question))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _answer(self, question: Sequence[bytes]) -> list[bytes]:
        request_id = question[1] if len(question) > 1 else b""
        well_formed = len(question) == 7 and question[0] == _ZAP_VERSION and len(question[6]) == 32
        if not well_formed or question[5] != b"CURVE":
            return [_ZAP_VERSION, request_id, b"400", b"CURVE only", b"", b""]
        key = z85.encode(question[6]).decode()
        if key not in self._allowed.clients:
            self._allowed.notice_new()
        client = self._allowed.clients.get(key)
        address = question[3].decode("ascii", "replace")
        if client is None:
            self._log_refusal(key, address)
            return [_ZAP_VERSION, request_id, b"400", b"unknown key", b"", b""]
        self._refused.discard(key)
        self._log.debug("client accepted", address=address, client=client.name)
        return [_ZAP_VERSION, request_id, b"200", b"OK", key.encode(), b""]

    def _log_refusal(self, key: str, address: str) -> None:
        """Warn once per key: an unknown client tries again and again."""
        log = self._log.debug
        if key not in self._refused and len(self._refused) < _REMEMBERED_REFUSALS:
            self._refused.add(key)
            log = self._log.warning
        log(
            "client refused: its key is not allowed",
            address=address,
            public_key=key,
            advice="`nearsight keys allow` lets it in",
        )
