"""Generates function calls: the papers' distribution of mean rates, and four arrival processes.

The Azure trace is not included. Both papers describe its rates in enough detail to generate similar ones
(CremeBrulee, III-B; mCache, 3.1). Both assume Poisson arrivals when they estimate the next request
(CremeBrulee, V-A; mCache, 4.3.2), but do not measure the arrivals of their trace; therefore four processes
are available. Their parameters were fixed before any policy was evaluated on them.

Each process returns, for every function, the rate of its calls in each segment of time. Within a segment the
calls are a Poisson process. A policy may receive the true rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

_DAY_S, _LEAST_CALLS = 86_400.0, 2
"""A day, and the number of calls in it below which CremeBrulee leaves a function out."""


@dataclass(frozen=True, slots=True)
class Marginals:
    """Distribution of the mean rates of functions: linear between points, on logarithmic scales.

    From the lowest rate to the highest, ``shares[i]`` is the share of functions with a rate above
    ``rates_hz[i]``.
    """

    rates_hz: tuple[float, ...]
    shares: tuple[float, ...]

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the rates [1/s] of ``count`` functions, shape (F,), in random order."""
        depth = np.minimum(-np.log1p(-rng.random(count)), -math.log(self.shares[-1]))
        return np.exp(np.interp(depth, -np.log(self.shares), np.log(self.rates_hz)))


_ONCE_A_DAY_HZ, _HIGHEST_HZ, _HIGHEST_SHARE = 1.0 / _DAY_S, 967.0, 5e-6
"""mCache's 1.15e-5 to 967 calls per second.

The share is a free parameter. With this value, 200 functions of all quantiles have about as many calls as in
figure 2 of both papers (below 15 and 20 per second).
"""
CREMEBRULEE = Marginals(
    (_ONCE_A_DAY_HZ, 1.0 / 60.0, 0.1, 1.0, _HIGHEST_HZ), (1.0, 0.1, 0.0235, 0.0063, _HIGHEST_SHARE)
)
"""0.63 % of functions above 1/s, 2.35 % above 0.1/s; the 90th percentile is one call per minute."""
MCACHE = Marginals((_ONCE_A_DAY_HZ, 1.0 / 60.0, 1.0, _HIGHEST_HZ), (1.0, 0.1, 0.0117, _HIGHEST_SHARE))
"""1.17 % of functions above 1/s; the 90th percentile is CremeBrulee's."""


def rarely_called(rates_hz: NDArray[np.float64], quantile: float) -> NDArray[np.float64]:
    """Select rates, (G,): not above a quantile (both papers), at least two calls a day (CremeBrulee).

    Parameters
    ----------
    rates_hz : ndarray, shape (F,)
    quantile : float
        Rates above this quantile of all rates are left out.
    """
    return rates_hz[(rates_hz <= np.quantile(rates_hz, quantile)) & (rates_hz * _DAY_S >= _LEAST_CALLS)]


@dataclass(frozen=True, slots=True)
class Segments:
    """True rates of functions by segment of time, all arrays (S,).

    A function has a rate of 0 outside its segments.
    """

    functions: NDArray[np.int32]
    starts_s: NDArray[np.float64]
    lengths_s: NDArray[np.float64]
    rates_hz: NDArray[np.float64]

    def events(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Draw calls: their times [s] in ascending order, and their functions, both (M,)."""
        counts = rng.poisson(self.rates_hz * self.lengths_s)
        times_s = np.repeat(self.starts_s, counts) + rng.random(counts.sum()) * np.repeat(
            self.lengths_s, counts
        )
        order = np.argsort(times_s, kind="stable")
        return times_s[order], np.repeat(self.functions, counts)[order]

    def relabelled(self, labels: NDArray[np.int32]) -> Segments:
        """The segments by model: ``labels`` (F,) is the model of each function, negative for none."""
        models = labels[self.functions]
        kept = models >= 0
        return Segments(models[kept], self.starts_s[kept], self.lengths_s[kept], self.rates_hz[kept])

    def rates_at(self, time_s: float, count: int) -> NDArray[np.float64]:
        """Rate [1/s] of each function or model at a time, (count,)."""
        now = (self.starts_s <= time_s) & (time_s < self.starts_s + self.lengths_s)
        rates: NDArray[np.float64] = np.zeros(count)
        np.add.at(rates, self.functions[now], self.rates_hz[now])
        return rates


class ArrivalProcess(Protocol):
    """An arrival process: how the rates of calls change over time."""

    def segments(
        self, rates_hz: NDArray[np.float64], duration_s: float, rng: np.random.Generator
    ) -> Segments:
        """True rates over the trace of functions with mean rates (F,)."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Constant rates: the best prediction of the time to the next call is always 1 / rate."""

    def segments(
        self, rates_hz: NDArray[np.float64], duration_s: float, rng: np.random.Generator
    ) -> Segments:
        """One segment per function."""
        del rng
        return _regular(rates_hz[:, None], duration_s, duration_s)


@dataclass(frozen=True, slots=True)
class OnOff:
    """Bursts: a function is on for ``on_s`` on average (exponential), and for a share ``duty`` of the trace.

    Raises
    ------
    InvalidArgument
        If ``on_s`` is not positive or ``duty`` is not between 0 and 1, exclusive.
    """

    on_s: float = 300.0
    duty: float = 0.1

    def __post_init__(self) -> None:
        if self.on_s <= 0 or not 0.0 < self.duty < 1.0:
            raise InvalidArgument(
                f"on_s must be positive and duty between 0 and 1, got {self.on_s} and {self.duty}"
            )

    def segments(
        self, rates_hz: NDArray[np.float64], duration_s: float, rng: np.random.Generator
    ) -> Segments:
        """One segment per burst; its rate is ``1 / duty`` times the mean."""
        functions = len(rates_hz)
        off_s = self.on_s * (1.0 / self.duty - 1.0)
        cycles = 2 + math.ceil(2.0 * duration_s / (self.on_s + off_s))
        starts, ends = np.empty((functions, 0)), np.zeros((functions, 1))
        on_at_first = rng.random(functions) < self.duty
        while ends[:, -1].min(initial=duration_s) < duration_s:
            off = rng.exponential(off_s, (functions, cycles))
            on = rng.exponential(self.on_s, (functions, cycles))
            if not starts.size:
                off[on_at_first, 0] = 0.0
            more = ends[:, -1:] + np.cumsum(off + on, axis=1)
            starts, ends = np.hstack([starts, more - on]), np.hstack([ends, more])
        within = starts < duration_s
        begun = starts[within]
        lengths = np.minimum(ends[:, 1:][within], duration_s) - begun
        which = np.nonzero(within)[0].astype(np.int32)
        return Segments(which, begun, lengths, rates_hz[which] / self.duty)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Days: the rate of each function follows a sine with a random phase.

    The default day is 20 minutes long, so that a trace of one hour has three days.

    Raises
    ------
    InvalidArgument
        If ``day_s`` is not positive or the amplitude is not in [0, 1].
    """

    day_s: float = 1_200.0
    amplitude: float = 0.95

    _STEPS = 48
    """Segments per day."""

    def __post_init__(self) -> None:
        if self.day_s <= 0 or not 0.0 <= self.amplitude <= 1.0:
            raise InvalidArgument(
                f"day_s must be positive and amplitude in [0, 1], got {self.day_s} and {self.amplitude}"
            )

    def segments(
        self, rates_hz: NDArray[np.float64], duration_s: float, rng: np.random.Generator
    ) -> Segments:
        """48 segments per function and day."""
        step_s = self.day_s / self._STEPS
        middles = (np.arange(math.ceil(duration_s / step_s)) + 0.5) / self._STEPS
        hour = rng.random(len(rates_hz))
        shape = 1.0 + self.amplitude * np.sin(2.0 * math.pi * (middles[None, :] + hour[:, None]))
        return _regular(rates_hz[:, None] * shape, step_s, duration_s)


@dataclass(frozen=True, slots=True)
class Drift:
    """Drifting popularity: the logarithm of each rate is an Ornstein-Uhlenbeck process around its mean.

    ``spread`` is its standard deviation (natural logarithm). Its autocorrelation falls to 1/e after
    ``memory_s``. The mean rates do not change.

    Raises
    ------
    InvalidArgument
        If the spread is negative or ``memory_s`` is not positive.
    """

    spread: float = 1.5
    memory_s: float = 900.0

    _STEPS = 30
    """Segments per ``memory_s``."""

    def __post_init__(self) -> None:
        if self.spread < 0 or self.memory_s <= 0:
            raise InvalidArgument(
                f"spread must not be negative and memory_s positive, got {self.spread} and {self.memory_s}"
            )

    def segments(
        self, rates_hz: NDArray[np.float64], duration_s: float, rng: np.random.Generator
    ) -> Segments:
        """30 segments per function and ``memory_s``."""
        step_s = self.memory_s / self._STEPS
        steps = math.ceil(duration_s / step_s)
        kept = math.exp(-1.0 / self._STEPS)
        wander = rng.normal(0.0, self.spread, (len(rates_hz), steps))
        for step in range(1, steps):
            wander[:, step] = kept * wander[:, step - 1] + math.sqrt(1.0 - kept**2) * wander[:, step]
        return _regular(rates_hz[:, None] * np.exp(wander - self.spread**2 / 2.0), step_s, duration_s)


ARRIVAL_PROCESSES: dict[str, ArrivalProcess] = {
    "poisson": Poisson(),
    "on-off": OnOff(),
    "diurnal": Diurnal(),
    "drift": Drift(),
}
"""The arrival processes on which policies are evaluated."""


def _regular(rates_hz: NDArray[np.float64], step_s: float, duration_s: float) -> Segments:
    """Segments from rates (F, T), each of length ``step_s``; the last segments end with the trace."""
    functions, steps = rates_hz.shape
    starts = np.arange(steps) * step_s
    lengths = np.minimum(duration_s - starts, step_s)
    return Segments(
        np.repeat(np.arange(functions, dtype=np.int32), steps),
        np.tile(starts, functions),
        np.tile(lengths, functions),
        rates_hz.ravel(),
    )
