"""What a channel needs of whatever carries its frames: ZeroMQ, or a server in the same process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nearsight.common.rpc.connection import ConnectionEvent
from nearsight.common.rpc.envelope import Buffer


class Transport(Protocol):
    """Carries frames to one server; all but waits and wakes is called under the channel's lock."""

    def connect(self) -> None:
        """Begin one attempt to connect, in place of the connection that there was."""

    def disconnect(self) -> None:
        """Drop the connection, if any."""

    def changes(self) -> list[ConnectionEvent]:
        """What happened to the connection, up to the change that ended it."""

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a message; False if there is no room or no connection now."""

    def receive(self, limit: int) -> list[list[Buffer]]:
        """The messages that have arrived, about ``limit`` at most; fewer than that means all."""

    def has_arrivals(self) -> bool:
        """Whether a message waits that no wait will report, because sending consumed its signal."""

    def wait(self, timeout_s: float, *, arrivals: bool) -> None:
        """Wait for changes, `wake` and, unless a caller drives, arrivals; one thread does."""

    def wake(self) -> None:
        """Interrupt `wait`; any thread may."""

    def can_drive(self) -> bool:
        """Whether a caller may wait for arrivals on the connection that there is."""

    def drive(self, timeout_s: float) -> bool:
        """Wait for arrivals, in a caller; False if it was interrupted. One caller does at a time."""

    def wake_driver(self) -> None:
        """Interrupt `drive`; any thread may."""

    def close(self) -> None:
        """Give everything back."""
