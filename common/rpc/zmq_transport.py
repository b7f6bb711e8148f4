"""Carries the frames of a channel over ZeroMQ: connections one after the other, and the wait for them."""

from __future__ import annotations

import select
from collections.abc import Sequence

import zmq

from nearsight.common.rpc.address import check_endpoint
from nearsight.common.rpc.connection import Change, ClientKeys, Connection, ConnectionEvent
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.waker import Waker


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
