"""A link of the twin: the shaper's own schedule (`LinkDirection`), and messages instead of sockets.

The shaper admits the pieces of a message as fast as they are read, and it reads them when they are sent. So
messages keep their order, and one message is one piece here.
"""

from __future__ import annotations

import numpy as np

from nearsight.experiments.links.link import LinkDirection, LinkShape
from nearsight.experiments.twin.events import Action, EventQueue

_HANDSHAKES, _HANDSHAKE_BYTES = 3, 30


class TwinLink:
    """Both directions of a link.

    Parameters
    ----------
    events : EventQueue
        Time.
    shape : LinkShape
        What the link is like.
    rng : Generator
        Jitter.

    Attributes
    ----------
    up_bytes, down_bytes : int
        That entered it.
    """

    def __init__(self, events: EventQueue, shape: LinkShape, rng: np.random.Generator) -> None:
        self._events = events
        self._clock = events.clock
        delay_s, jitter_s = shape.rtt_ms / 2e3, shape.jitter_ms / 1e3
        self._up = LinkDirection(delay_s, shape.up_mbps, jitter_s, rng)
        self._down = LinkDirection(delay_s, shape.down_mbps, jitter_s, rng)
        self.up_bytes = self.down_bytes = 0

    def up(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send towards the server; ``extra_s`` passes after the link, in daemons."""
        self.up_bytes += size_bytes
        self._events.at(self._up.admit(size_bytes, self._clock.now_s) + extra_s, arrived)

    def down(self, size_bytes: int, arrived: Action, extra_s: float = 0.0) -> None:
        """Send back."""
        self.down_bytes += size_bytes
        self._events.at(self._down.admit(size_bytes, self._clock.now_s) + extra_s, arrived)

    def connect(self, connected: Action, extra_s: float = 0.0) -> None:
        """Shake hands, as ZeroMQ does: signatures, versions, then who is ready, each after the other's.

        ``extra_s`` passes besides, in the daemons.
        """
        self._shake(_HANDSHAKES, lambda: self._events.after(extra_s, connected))

    def _shake(self, times: int, connected: Action) -> None:
        if not times:
            connected()
            return
        self.up(
            _HANDSHAKE_BYTES, lambda: self.down(_HANDSHAKE_BYTES, lambda: self._shake(times - 1, connected))
        )

    def reshape(self, shape: LinkShape) -> None:
        """Be another link from now on."""
        delay_s, jitter_s = shape.rtt_ms / 2e3, shape.jitter_ms / 1e3
        self._up.reshape(delay_s, shape.up_mbps, jitter_s)
        self._down.reshape(delay_s, shape.down_mbps, jitter_s)


class Connection:
    """A connection over a link, made with the first message; who comes meanwhile waits for it.

    Parameters
    ----------
    link : TwinLink
        Over which.
    extra_s : float
        What its first message takes besides.
    """

    def __init__(self, link: TwinLink, extra_s: float = 0.0) -> None:
        self._link = link
        self._extra_s = extra_s
        self._waiting: list[Action] | None = []

    def when_there(self, action: Action) -> None:
        """Do something as soon as there is a connection."""
        if self._waiting is None:
            action()
            return
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self._link.connect(self._there, self._extra_s)

    def _there(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            action()
