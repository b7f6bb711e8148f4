"""Socket utilities: listening, and waking a thread that polls."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket as sockets
import threading
import weakref
from pathlib import Path

import zmq

from nearsight.common.errors import AddressInUse, ConfigurationError, SetupError, Unavailable
from nearsight.common.logging import get_logger
from nearsight.common.rpc.endpoints import listening_address, split_tcp

_DESCRIPTORS_OF_A_SOCKET = 16
"""Descriptors of a socket with its monitor and, the first time, of the context and its threads."""

BACKLOG = 1024
"""Connections that may wait to be accepted."""

DESCRIPTORS_ADVICE = "raise the limit of open files (`ulimit -n`)"


def out_of_descriptors() -> Unavailable:
    """The error if this process has no free descriptor."""
    return Unavailable(
        "this process may open no more files and connections",
        advice="raise its limit, e.g. with `ulimit -n`",
    )


def connections_allowed(limit: int, setting: str) -> int:
    """The limit of a server's setting, reduced so that descriptors remain for other purposes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = soft * 3 // 4
    if soft == resource.RLIM_INFINITY or limit <= most:
        return limit
    get_logger("rpc.sockets").info(
        f"fewer connections than {setting}", connections=most, advice=DESCRIPTORS_ADVICE
    )
    return most


def process_context() -> zmq.Context[zmq.Socket[bytes]]:
    """The context that all clients of this process share: one thread transfers their bytes.

    Raises
    ------
    zmq.ZMQError
        With ``EMFILE`` if the process has too few free descriptors; ZeroMQ itself would abort the process.
    """
    with contextlib.ExitStack() as stack:
        try:
            for _ in range(_DESCRIPTORS_OF_A_SOCKET):
                stack.enter_context(Path(os.devnull).open("rb"))
        except OSError as error:
            raise zmq.ZMQError(error.errno) from error
    return zmq.Context.instance()


class Waker:
    """Interrupts a thread that waits in ``poll``: an event whose descriptor becomes readable with `wake`.

    Attributes
    ----------
    descriptor : int
        To poll.

    Raises
    ------
    Unavailable
        If this process may open no more files.
    """

    def __init__(self) -> None:
        try:
            self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            raise out_of_descriptors() from error
        # The finalizer closes the descriptor of a server that was built but never started.
        self._give_back = weakref.finalize(self, os.close, self.descriptor)
        # At process exit the system closes it; other threads may still wait then.
        self._give_back.atexit = False
        self._lock = threading.Lock()
        self._closed = False

    def wake(self) -> None:
        """Interrupt the waiting thread, now or at its next wait; no effect after `close`."""
        with self._lock:
            if not self._closed:  # otherwise the write could go to a reused descriptor
                os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Discard all earlier `wake` calls."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Close the descriptor; called by the waiting thread, while others may still `wake`."""
        with self._lock:
            self._closed = True
            self._give_back()


def listen_on(endpoint: str) -> tuple[sockets.socket, str]:
    """A non-blocking socket that accepts connections, and its address with the bound port.

    Raises
    ------
    AddressInUse
        If another program listens there.
    ConfigurationError
        If it is not an address of this machine.
    """
    try:
        listening, bound = (_listen_on_file if endpoint.startswith("ipc://") else _listen_on_port)(endpoint)
    except OSError as error:
        raise cannot_listen(endpoint, error, "tcp://127.0.0.1:0") from error
    listening.setblocking(False)
    return listening, bound


def cannot_listen(address: str, error: OSError, example: str) -> SetupError:
    """The error if the system refuses to let this process listen; ``example`` is a possible address."""
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            f"{address} is in use", advice="stop the program that listens there, or choose another address"
        )
    if error.errno == errno.EACCES and not address.startswith("ipc://"):
        return ConfigurationError(
            f"this user may not listen on {address}", advice="choose a port from 1024 on, or use another user"
        )
    return ConfigurationError(
        f"cannot listen on {address}: {error.strerror or error}",
        advice=f"listen on an address of this machine, e.g. {example}",
    )


def _listen_on_port(endpoint: str) -> tuple[sockets.socket, str]:
    host, port = split_tcp(endpoint)
    host = listening_address(host.strip("[]"))
    if host == "*":
        host = "0.0.0.0"  # only with keys, see `require_security`
    number = 0 if port == "*" else int(port)
    family = sockets.AF_INET6 if endpoint.startswith("tcp://[") else sockets.AF_INET
    listening = sockets.create_server(
        (host, number),
        family=family,
        backlog=BACKLOG,
        dualstack_ipv6=host == "::" and sockets.has_dualstack_ipv6(),
    )
    listening.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)  # accepted connections inherit it
    bound, port = listening.getsockname()[:2]
    return listening, f"tcp://[{bound}]:{port}" if family == sockets.AF_INET6 else f"tcp://{bound}:{port}"


def _listen_on_file(endpoint: str) -> tuple[sockets.socket, str]:
    path = endpoint.removeprefix("ipc://")
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        if probe.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, "another process listens there")
    if Path(path).is_socket():
        Path(path).unlink()  # left by a killed process
    listening = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening, endpoint
