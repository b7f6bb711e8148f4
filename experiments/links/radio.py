"""One wireless channel that stations and their access point share, as a pure object: no sockets, no sleep.

The model is 802.11g without its finer points (IEEE 802.11-2020, clauses 10.3 and 18). Whoever sends occupies
the channel for all; a frame from station to station takes it twice, as the access point passes it on. Each
frame pays for the wait before it, its preamble and its acknowledgement, however short it is, and is repeated
as long as it is not acknowledged. Frames to everybody are sent once, slowly, and nobody acknowledges them.
Who waits for the channel gets it by lot. Collisions are part of the share of attempts that fail.
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
"""What an 802.11 frame has more than the Ethernet frame: 24 of header, 4 of checksum, 8 of LLC, less 14."""
_ACK_BYTES = 14
_LEAST_WINDOW, _LARGEST_WINDOW = 16, 1024


@dataclass(frozen=True, slots=True)
class RadioSettings:
    """Properties of a channel."""

    rate_mbps: float = 54.0
    """Rate of frames to one station [10⁶ bit/s]."""
    basic_rate_mbps: float = 6.0
    """Rate of frames to everybody, and of acknowledgements [10⁶ bit/s]."""
    error_rate: float = 0.1
    """Share of attempts that fail; those of frames to one station are repeated."""
    retries: int = 7
    """How often a failed attempt is repeated."""
    loss: float = 0.0
    """Share of frames that get lost all the same on their way over both hops: interference that lasts, a
    station that sleeps or looks for other channels."""
    queue_ms: float = 200.0
    """Longest time for which a frame waits for the channel; what comes then is lost."""

    def __post_init__(self) -> None:
        if not 0 < self.basic_rate_mbps <= self.rate_mbps < math.inf:
            raise ConfigurationError("a radio channel needs rates above 0, the basic one the lower")
        if not (0 <= self.error_rate < 1 and 0 <= self.loss <= 1 and self.retries >= 0 and self.queue_ms > 0):
            raise ConfigurationError("a radio channel's error_rate, loss, retries or queue_ms cannot be")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame that has arrived at stations."""

    at_s: float
    """Time of arrival [s]."""
    stations: tuple[int, ...]
    """Numbers of the stations that got it."""
    frame: bytes
    """The frame."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    ready_s: float
    source: int
    destination: int | None
    frame: bytes


class RadioChannel:
    """The channel, its stations and their access point. Not thread-safe; times never go back.

    Parameters
    ----------
    settings : RadioSettings
        What it is like.
    stations : int
        How many; they have the numbers from 0 on.
    rng : random.Random
        Lots, back-off and losses.
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
        """Frames that came from stations, and those of them that never arrived at one."""
        self.busy_s = 0.0
        """For how long the channel was in use."""

    def lose(self, share: float) -> None:
        """From now on this share of the frames gets lost."""
        self._settings = replace(self._settings, loss=share)

    def offer(self, source: int, destination: int | None, frame: bytes, now_s: float) -> None:
        """A station sends a frame to another, or to everybody (None)."""
        self.sent += 1
        self._queues[source].append(_Waiting(now_s, source, destination, frame))
        if self._on_air is None:
            self._next(max(now_s, self._free_s))

    def next_s(self) -> float:
        """Time at which `advance` has something to do [s]."""
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
            self._next(at_s)
        return arrived

    def _next(self, now_s: float) -> None:
        """Give the channel to one of those who wait for it."""
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
        took_s = self._take(frame, at_once=at_once)
        self.busy_s += took_s
        self._free_s = now_s + took_s

    def _take(self, frame: _Waiting, *, at_once: bool) -> float:
        """How long the channel is taken for a frame; notes whether it arrives."""
        settings, size_bytes = self._settings, len(frame.frame)
        if self._sender == self._point and frame.destination is None:
            self._arrives = True  # by each receiver for itself
            wait_s = _DIFS_S + self._backoff_s(0, at_once=at_once)
            return wait_s + airtime_s(size_bytes + _MORE_HEADER_BYTES, settings.basic_rate_mbps)
        acknowledged_s = _SIFS_S + airtime_s(_ACK_BYTES, settings.basic_rate_mbps)
        once_s = _DIFS_S + airtime_s(size_bytes + _MORE_HEADER_BYTES, settings.rate_mbps) + acknowledged_s
        took_s, self._arrives = 0.0, False
        for attempt in range(settings.retries + 1):
            took_s += once_s + self._backoff_s(attempt, at_once=at_once)
            if self._rng.random() >= settings.error_rate:
                self._arrives = self._rng.random() >= 1 - math.sqrt(1 - settings.loss)  # of two hops
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
    """How long a frame takes on the air, preamble included: OFDM symbols of 4 µs."""
    bits = _SERVICE_AND_TAIL_BITS + 8 * size_bytes
    symbols = math.ceil(bits / (rate_mbps * _SYMBOL_S * 1e6))
    return _PREAMBLE_S + symbols * _SYMBOL_S + _SIGNAL_EXTENSION_S
