"""Connects the real client to the real server in one process, without sockets.

Frames pass through the same encoding, decoding, queues, workers and deadlines as on a network; only ZeroMQ is
left out.
"""

import threading
from collections.abc import Sequence
from typing import Any

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NearsightError, Unavailable
from nearsight.common.rpc.client import Channel, ChannelGroup
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.links import Link
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.settings import ChannelSettings
from nearsight.common.rpc.transport import Transport

INPROC = "inproc://in-process"


class InProcessTransport(Transport):
    """The transport of one channel to a started server of this process, with any address."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._arrived: list[list[Buffer]] = []
        self._changes: list[NearsightError | None] = []
        self._epoch = 0
        self._connected = False

    def connect(self, link: Link) -> None:
        self._link = link
        self._epoch += 1
        self._connected = self._server.serving
        error = None if self._connected else Unavailable("the server is not serving")
        with self._lock:
            self._changes.append(error)

    def disconnect(self, link: Link) -> None:
        with self._lock:
            self._epoch += 1
            self._connected = False
            self._changes = []

    def interrupt(self) -> None:
        """Lose the connection during a request, as with a broken network."""
        with self._lock:
            self._changes.append(Unavailable("the connection was lost during the request"))
        self.wake()

    def send(self, link: Link, frames: Sequence[Buffer]) -> bool:
        if not self._connected:
            return False
        epoch = self._epoch

        def reply(answer: Sequence[Buffer]) -> None:
            with self._lock:
                if epoch == self._epoch:
                    self._arrived.append(list(answer))
            self.wake()

        self._server.submit(list(frames), reply, peer=(id(self), epoch))
        return True

    def receive(self, limit: int) -> list[tuple[Link, list[Buffer]]]:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return [(self.link, frames) for frames in arrived]

    def changes(self) -> list[tuple[Link, NearsightError | None]]:
        with self._lock:
            changes, self._changes = self._changes, []
        return [(self.link, change) for change in changes]

    @property
    def link(self) -> Link:
        assert self._link is not None
        return self._link

    def has_arrivals(self) -> bool:
        return False  # each arrival wakes the waiting thread

    def caller_can_wait(self) -> bool:
        return False  # there is nothing to poll

    def wake_caller(self) -> None:
        pass

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        pass


def channel_over(transport: InProcessTransport, *, client_id: str = "test", **others: Any) -> Channel:
    """A channel that uses this transport and closes it."""
    group = ChannelGroup(clock=others.get("clock", SYSTEM_CLOCK), transport=transport)
    channel = Channel(INPROC, client_id=client_id, group=group, **others)
    channel._owns_group = True
    return channel


def in_process_channel(
    server: RpcServer,
    *,
    client_id: str,
    settings: ChannelSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Channel:
    """A channel to a server of this process."""
    transport = InProcessTransport(server)
    return channel_over(transport, client_id=client_id, settings=settings, clock=clock)
