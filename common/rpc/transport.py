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
        self._poller = select.poll()
        self._poller.register(self._waker.fileno(), select.POLLIN)
        self._polled: list[int] = []

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""
        self.disconnect()
        self._connection = Connection(
            self._context, self._endpoint, self._settings, self._keys, proven=self._proven
        )
        for fileno in self._connection.filenos():
            self._poller.register(fileno, select.POLLIN)
            self._polled.append(fileno)

    def disconnect(self) -> None:
        """Drop the connection, if any."""
        for fileno in self._polled:
            self._poller.unregister(fileno)
        self._polled.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""
        if self._connection is None or not self._connection.send(frames):
            return False
        if self._connection.has_arrivals():
            self.wake()
        return True

    def receive(self) -> list[list[Buffer]]:
        """The messages that have arrived."""
        return self._connection.receive() if self._connection else []

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection, up to the change that ended it."""
        found: list[ConnectionEvent] = []
        for event in self._connection.changes() if self._connection else []:
            found.append(event)
            self._proven = self._proven or event.change is Change.UP
            if event.change is not Change.UP:
                break
        return found

    def wait(self, timeout_s: float) -> None:
        """Wait for arrivals, changes, or `wake`."""
        self._poller.poll(timeout_s * 1000.0 + 0.5)
        self._waker.clear()

    def wake(self) -> None:
        """Interrupt `wait`."""
        self._waker.wake()

    def close(self) -> None:
        """Give everything back."""
        self.disconnect()
        self._context.term()
        self._waker.close()
