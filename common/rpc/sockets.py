"""Small tools for ZeroMQ sockets: addresses, frames in and out, and waking a thread that polls.

The functions for frames run several times per call. Flags are plain integers, since pyzmq's enums cost more
than the sending. A socket is asked before it is read, since an exception costs more than the question.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq import zmq_poll

from nearsight.common.errors import ConfigurationError, Unavailable
from nearsight.common.rpc.envelope import Buffer

COPY_BELOW_BYTES = 65536
"""Sending without a copy costs a hand-over to pyzmq's collector thread: more than copying 64 KiB."""

_DESCRIPTORS_OF_A_SOCKET = 16
"""With its monitor and, the first time, the context and its threads."""
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:\[\]/]+):(?P<port>\d{1,5}|\*)")
_POLLIN = int(zmq.POLLIN)
_DESCRIPTOR = int(zmq.SRCFD)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


def check_endpoint(endpoint: str) -> str:
    """Return the endpoint if it is of a form that nearsight uses.

    Raises
    ------
    ConfigurationError
        If it is not.
    """
    if match := _TCP.fullmatch(endpoint):
        if match["port"] == "*" or int(match["port"]) <= 65535:
            return endpoint
    elif endpoint.startswith(("ipc://", "inproc://")) and len(endpoint.partition("://")[2]) > 0:
        return endpoint
    raise ConfigurationError(
        f"{endpoint!r} is not an address",
        advice="write tcp://HOST:PORT or ipc://PATH, e.g. tcp://127.0.0.1:7000",
    )


def is_tcp_v6(endpoint: str) -> bool:
    """Whether the address is of IPv6, which ZeroMQ must be told."""
    return endpoint.startswith("tcp://[")


def is_local(endpoint: str) -> bool:
    """Whether only processes of this machine can reach the address."""
    match = _TCP.fullmatch(endpoint)
    if match is None or match["host"] in {"localhost", "lo"}:
        return True
    try:
        return ipaddress.ip_address(match["host"].strip("[]")).is_loopback
    except ValueError:
        return False


def out_of_descriptors() -> Unavailable:
    """The error where this process has no descriptor left."""
    return Unavailable(
        "this process may open no more files and connections",
        advice="raise its limit, e.g. with `ulimit -n`",
    )


def process_context() -> zmq.Context[zmq.Socket[bytes]]:
    """The context that all clients of this process share: one thread carries their bytes.

    Raises
    ------
    zmq.ZMQError
        With ``EMFILE`` if the process has too few descriptors left, where ZeroMQ would end it.
    """
    with contextlib.ExitStack() as stack:
        try:
            for _ in range(_DESCRIPTORS_OF_A_SOCKET):
                stack.enter_context(Path(os.devnull).open("rb"))
        except OSError as error:
            raise zmq.ZMQError(error.errno) from error
    return zmq.Context.instance()


class Received(NamedTuple):
    """One message; blobs stay in ZeroMQ's memory, which the views keep alive."""

    frames: list[Buffer]
    user_id: str | None = None
    """Key that the peer proved."""
    descriptor: int = -1
    """Of its connection; like ``user_id``, only if asked for."""


def has_message(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received now."""
    return bool(zmq_poll([(socket, _POLLIN)], 0))


def send_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Send a message or nothing of it, without waiting. Views must be flat bytes.

    Raises
    ------
    zmq.Again
        If there is no room for it or, for a client, no connection.
    """
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = _NOBLOCK if index == last else _NOBLOCK_MORE
        socket.send(frame, flags, len(frame) < COPY_BELOW_BYTES)


def receive_message(socket: zmq.Socket[bytes], *, with_metadata: bool = False) -> Received | None:
    """Receive a message without waiting; None if there is none.

    Parameters
    ----------
    socket : zmq.Socket
        A ROUTER or DEALER.
    with_metadata : bool
        Ask for the identity that ZAP gave to the peer, and its connection.
    """
    try:
        frame = socket.recv(_NOBLOCK, False)
    except zmq.Again:
        return None
    user_id: str | None = None
    descriptor = -1
    if with_metadata:
        with contextlib.suppress(zmq.ZMQError):
            user_id = str(frame.get("User-Id")) or None
            descriptor = int(frame.get(_DESCRIPTOR))
    frames: list[Buffer] = [frame.bytes]
    while frame.more:
        frame = socket.recv(_NOBLOCK, False)
        frames.append(frame.buffer)
    return Received(frames, user_id, descriptor)


class Waker:
    """Interrupts a thread that waits in ``poll``: a pipe whose descriptor becomes readable with `wake`.

    Raises
    ------
    Unavailable
        If this process may open no more files.
    """

    def __init__(self) -> None:
        try:
            self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise out_of_descriptors() from error
        # As with a file: a server that was built but never started gives its descriptors back as well.
        self._give_back = weakref.finalize(self, _close_all, self._read, self._write)
        # A process that ends gives all back itself; its threads may still wait.
        self._give_back.atexit = False
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def wake(self) -> None:
        """Interrupt the waiting thread, now or at its next wait; nothing to do once it has closed this."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            if not self._closed:  # or the write would go to whatever got the descriptor since
                os.write(self._write, b"\0")

    def clear(self) -> None:
        """Forget what woke the thread."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Give the descriptors back; called by the thread that waits, while others may still `wake`."""
        with self._lock:
            self._closed = True
            self._give_back()


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
