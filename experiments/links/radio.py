"""One wireless channel that stations and their access point share, as a pure object without sockets.

The model is a simplified 802.11g (IEEE 802.11-2020, clauses 10.3 and 18). A sender occupies the channel for
all stations. A frame from station to station takes the channel twice, because the access point forwards it.
Every frame, however short, has the overhead of the wait before it, its preamble and its acknowledgement. It
is retried until it is acknowledged or the retries are used up. Broadcast frames are sent once, at the low
basic rate, without acknowledgement. The next sender is chosen at random from those that wait. Collisions are
included in the error rate.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, replace

from nearsight.common.errors import ConfigurationError

_SLOT_S, _SIFS_S, _DIFS_S = 9e-6, 10e-6, 28e-6
_PREAMBLE_S, _SIGNAL_EXTENSION_S, _SYMBOL_S = 20e-6, 6e-6, 4e-6
_SERVICE_AND_TAIL_BITS = 22
_MORE_HEADER_BYTES = 22
"""Bytes of an 802.11 frame beyond the Ethernet frame: 24 of header, 4 of checksum, 8 of LLC, less 14."""
_ACK_BYTES = 14
_LEAST_WINDOW, _LARGEST_WINDOW = 16, 1024


@dataclass(frozen=True, slots=True)
class RadioSettings:
    """Properties of a channel."""

    rate_mbps: float = 54.0
    """Rate of unicast frames [10⁶ bit/s]."""
    basic_rate_mbps: float = 6.0
    """Rate of broadcast frames and of acknowledgements [10⁶ bit/s]."""
    error_rate: float = 0.1
    """Share of attempts that fail; failed unicast frames are retried."""
    retries: int = 7
    """Maximum number of retries of a frame."""
    loss: float = 0.0
    """Additional share of frames that are lost over both hops in spite of retries, for example through
    lasting interference, or because a station sleeps or scans other channels."""
    queue_ms: float = 200.0
    """Longest time for which a frame waits for the channel [ms]; frames that wait longer are dropped."""

    def __post_init__(self) -> None:
        if not 0 < self.basic_rate_mbps <= self.rate_mbps < math.inf:
            raise ConfigurationError("a radio channel needs 0 < basic_rate_mbps <= rate_mbps")
        if not (0 <= self.error_rate < 1 and 0 <= self.loss <= 1 and self.retries >= 0 and self.queue_ms > 0):
            raise ConfigurationError(
                "a radio channel needs 0 <= error_rate < 1, 0 <= loss <= 1, retries >= 0 and queue_ms > 0"
            )


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame that was delivered to stations."""

    at_s: float
    """Time of arrival [s]."""
    stations: tuple[int, ...]
    """Numbers of the stations that received it."""
    frame: bytes
    """The frame."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    ready_s: float
    source: int
    destination: int | None
    frame: bytes


class RadioChannel:
    """The channel, its stations and their access point. Not thread-safe; times must not decrease.

    Parameters
    ----------
    settings : RadioSettings
        Properties of the channel.
    stations : int
        Number of stations; they are numbered from 0.
    rng : random.Random
        Source of randomness for the choice of senders, back-off and losses.
    """

    def __init__(self, settings: RadioSettings, stations: int, rng: random.Random) -> None:
        self._settings = settings
        self._stations = stations
        self._rng = rng
        self._point = stations
        self._queues: dict[int, deque[_Waiting]] = {sender: deque() for sender in range(stations + 1)}
        self._free_s = -math.inf
        self._on_air: _Waiting | None = None
        self._sender = 0
        self._arrives = False
        self.sent = 0
        self.lost = 0
        """Frames that stations sent, and those of them that no station received."""
        self.busy_s = 0.0
        """Time for which the channel was in use [s]."""

    def set_loss(self, share: float) -> None:
        """Set the share of frames that are lost from now on."""
        self._settings = replace(self._settings, loss=share)

    def send(self, source: int, destination: int | None, frame: bytes, now_s: float) -> None:
        """Send a frame from a station to another station, or to all (``destination`` None)."""
        self.sent += 1
        self._queues[source].append(_Waiting(now_s, source, destination, frame))
        if self._on_air is None:
            self._send_next(max(now_s, self._free_s))

    def next_s(self) -> float:
        """Time of the next call of `advance` [s]; inf if nothing is in transit."""
        return self._free_s if self._on_air is not None else math.inf

    def advance(self, now_s: float) -> list[Delivery]:
        """Frames that have arrived by now."""
        arrived: list[Delivery] = []
        while self._on_air is not None and self._free_s <= now_s:
            waiting, at_s = self._on_air, self._free_s
            self._on_air = None
            if not self._arrives:
                self.lost += 1
            elif self._sender != self._point:
                self._queues[self._point].append(replace(waiting, ready_s=at_s))
            else:
                stations = self._receivers(waiting)
                if stations:
                    arrived.append(Delivery(at_s, stations, waiting.frame))
                else:
                    self.lost += 1
            self._send_next(at_s)
        return arrived

    def _send_next(self, now_s: float) -> None:
        """Give the channel to one of the senders that wait for it, and drop frames that waited too long."""
        oldest_s = now_s - self._settings.queue_ms / 1000
        for queue in self._queues.values():
            while queue and queue[0].ready_s < oldest_s:
                queue.popleft()
                self.lost += 1
        waiting = [sender for sender, queue in self._queues.items() if queue]
        if not waiting:
            return
        self._sender = waiting[0] if len(waiting) == 1 else self._rng.choice(waiting)
        frame = self._queues[self._sender].popleft()
        self._on_air = frame
        at_once = frame.ready_s >= self._free_s + _DIFS_S
        took_s = self._occupy(frame, at_once=at_once)
        self.busy_s += took_s
        self._free_s = now_s + took_s

    def _occupy(self, frame: _Waiting, *, at_once: bool) -> float:
        """Time for which a frame occupies the channel [s]; also determines whether it arrives."""
        settings, size_bytes = self._settings, len(frame.frame)
        if self._sender == self._point and frame.destination is None:
            self._arrives = True  # decided for each receiver in `_receivers`
            wait_s = _DIFS_S + self._backoff_s(0, at_once=at_once)
            return wait_s + airtime_s(size_bytes + _MORE_HEADER_BYTES, settings.basic_rate_mbps)
        acknowledged_s = _SIFS_S + airtime_s(_ACK_BYTES, settings.basic_rate_mbps)
        once_s = _DIFS_S + airtime_s(size_bytes + _MORE_HEADER_BYTES, settings.rate_mbps) + acknowledged_s
        took_s, self._arrives = 0.0, False
        for attempt in range(settings.retries + 1):
            took_s += once_s + self._backoff_s(attempt, at_once=at_once)
            if self._rng.random() >= settings.error_rate:
                # the loss of one hop of two
                self._arrives = self._rng.random() >= 1 - math.sqrt(1 - settings.loss)
                break
        return took_s

    def _backoff_s(self, attempt: int, *, at_once: bool) -> float:
        if attempt == 0 and at_once:  # the channel was free for long enough
            return 0.0
        return self._rng.randrange(min(_LARGEST_WINDOW, _LEAST_WINDOW << attempt)) * _SLOT_S

    def _receivers(self, waiting: _Waiting) -> tuple[int, ...]:
        if waiting.destination is not None:
            return (waiting.destination,)
        others = (station for station in range(self._stations) if station != waiting.source)
        missed = 1 - (1 - self._settings.error_rate) * math.sqrt(1 - self._settings.loss)
        return tuple(station for station in others if self._rng.random() >= missed)


def airtime_s(size_bytes: int, rate_mbps: float) -> float:
    """Airtime of a frame [s], preamble included, in OFDM symbols of 4 µs."""
    bits = _SERVICE_AND_TAIL_BITS + 8 * size_bytes
    symbols = math.ceil(bits / (rate_mbps * _SYMBOL_S * 1e6))
    return _PREAMBLE_S + symbols * _SYMBOL_S + _SIGNAL_EXTENSION_S
