"""One shaped link as a pure object that computes when bytes leave the link. Also the networks of the papers.

The model is a router port followed by a cable. A chunk of n bytes occupies the port for ``n * 8 / rate``
seconds, first come first served, and then takes the one-way delay. All connections through one
`LinkDirection` share its port, as five phones share one uplink. The module neither sleeps nor owns a socket.

Jitter is drawn once for each burst: the chunks of a message follow each other and have the same delay. As
bytes are never reordered, a draw for each chunk would delay a message by the largest of its draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from nearsight.common.errors import ConfigurationError

MEGABIT = 1e6
BURST_GAP_S = 0.001
"""Time for which the port is free between two bursts [s]."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Properties of a link between two machines."""

    rtt_ms: float = 0.0
    """Round trip of an empty message [ms]; each direction takes half."""
    jitter_ms: float = 0.0
    """Standard deviation of each one-way delay [ms]; the delay is constant within a burst. Bytes are never
    reordered: a burst waits for the one before, which increases the mean delay if bursts are that close."""
    up_mbps: float = 0.0
    down_mbps: float = 0.0
    """Rates from client to server and back [10⁶ bit/s]; 0 means unlimited."""
    loss_per_minute: float = 0.0
    """Mean number of times per minute that a connection through the link breaks; 0 means never."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigurationError(
                    f"a link's {name} cannot be {getattr(self, name)}", advice="give a number of at least 0"
                )

    def steady(self) -> LinkShape:
        """The same link without randomness, for calibration."""
        return replace(self, jitter_ms=0.0, loss_per_minute=0.0)

    def without(self, kernel: LinkShape) -> LinkShape:
        """The part of the link that is left to the shaper if the kernel does ``kernel``."""
        return replace(
            self,
            rtt_ms=self.rtt_ms - kernel.rtt_ms,
            up_mbps=0.0 if kernel.up_mbps else self.up_mbps,
            down_mbps=0.0 if kernel.down_mbps else self.down_mbps,
        )


UNSHAPED = LinkShape()
"""Without delay or limits, for the start and warm-up of daemons, which are not part of any measurement."""

# The networks between a building and the cloud in the dissertation's experiments.
FIGURE_3_2 = LinkShape(rtt_ms=40.0, up_mbps=5.0, down_mbps=5.0)
TABLE_6_3 = MappingProxyType(
    {
        "Slow": LinkShape(rtt_ms=40.0, up_mbps=2.0, down_mbps=10.0),
        "Medium": LinkShape(rtt_ms=30.0, up_mbps=5.0, down_mbps=10.0),
        "Fast": LinkShape(rtt_ms=20.0, up_mbps=10.0, down_mbps=20.0),
        "SuperFast": LinkShape(rtt_ms=10.0, up_mbps=20.0, down_mbps=40.0),
    }
)


def in_words(shape: LinkShape) -> str:
    """A network for a caption, such as "40 ms, 5 Mbit/s"; without what is not limited."""
    up, down = shape.up_mbps, shape.down_mbps
    ways = {"": up} if up == down else {"↑": up, "↓": down}
    rates = " ".join(f"{rate:g}{way}" for way, rate in ways.items() if rate)
    delay = f"{shape.rtt_ms:g} ms" if shape.rtt_ms else ""
    return ", ".join(filter(None, (delay, f"{rates} Mbit/s" if rates else "")))


class LinkDirection:
    """Schedule of one direction of a link; without delay or limit before `reshape`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the jitter.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._delay_s = self._bytes_per_s = self._jitter_s = 0.0
        self._burst_jitter_s = 0.0
        self._port_free_at_s = -float("inf")
        self._last_exit_s = -float("inf")

    def admit(self, size_bytes: int, now_s: float) -> float:
        """Send a chunk into the link.

        Parameters
        ----------
        size_bytes : int
            Size of the chunk.
        now_s : float
            Arrival time [s]; not before that of the previous chunk.

        Returns
        -------
        float
            Time at which its last byte leaves the link [s]; never before that of an earlier chunk.
        """
        if now_s - self._port_free_at_s > BURST_GAP_S:
            self._burst_jitter_s = float(self._rng.normal(0.0, self._jitter_s)) if self._jitter_s else 0.0
        start_s = max(now_s, self._port_free_at_s)
        occupied_s = size_bytes / self._bytes_per_s if self._bytes_per_s else 0.0
        self._port_free_at_s = start_s + occupied_s
        exit_s = self._port_free_at_s + self._delay_s + self._burst_jitter_s
        self._last_exit_s = max(exit_s, self._last_exit_s, self._port_free_at_s)
        return self._last_exit_s

    @property
    def in_transit_bytes(self) -> float:
        """Bytes that have left the port and not the cable while the port is busy; 0 without a rate."""
        return self._bytes_per_s * self._delay_s

    def reshape(self, delay_s: float, rate_mbps: float, jitter_s: float) -> None:
        """Change the properties of the link; the schedule of chunks in transit does not change.

        Parameters
        ----------
        delay_s, jitter_s : float
            One-way delay, and its standard deviation [s].
        rate_mbps : float
            Rate [10⁶ bit/s]; 0 means unlimited.
        """
        self._delay_s = delay_s
        self._bytes_per_s = rate_mbps * MEGABIT / 8
        self._jitter_s = jitter_s
