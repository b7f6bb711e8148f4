"""Many users at one edge (section 3.5.1): how much it computes, and which requests it passes to the cloud.

If requests arrive faster than the edge processes them, its queue grows. Two methods prevent this: a cache
that is small enough for fast lookups (`largest_cache`), or passing on the share of requests that exceeds
the capacity (`edge_probability`). `expected_compute_ms` estimates the time of a photo, for devices.
`LoadControl` combines these. The daemon has one, because all catalogues share the machine.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.clock import Clock
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.object_cache.profile import RollingMean
from nearsight.edge.settings import LoadSettings, MultiUser

RECOGNIZE = "nearsight.v1.Recognition.Recognize"
"""The method whose calls count as load."""
PRESENT_S = 5.0
"""Compute times are used unchanged if they are at most this old [s]."""
LONGEST_INTERVAL_MS = 10_000.0
"""Longer times between requests count as this value [ms]. Otherwise a single quiet night between two busy
periods would hide the load for the next hundred requests. The dissertation has no such limit."""
_WINDOW = 20


def edge_probability(interarrival_ms: float, compute_ms: float, capacity: float) -> float:
    """P(edge) = min(1, capacity · IAT / compute): share of requests that the edge has the time to compute.

    Parameters
    ----------
    interarrival_ms : float
        IAT_mean, over all requests that reach the edge.
    compute_ms : float
        Mean compute time of a request at the edge, without requests that were passed on at once.
    capacity : float
        Used share of the edge's time, times the number of requests that it processes in parallel.

    Notes
    -----
    Source: Cachier dissertation, section 3.5.1.2.
    """
    return min(1.0, capacity * interarrival_ms / compute_ms) if compute_ms > 0 else 1.0


@dataclass(frozen=True, slots=True)
class SizeBound:
    """The largest cache whose lookups are fast enough for the arrival rate."""

    k_max: int
    """Its number of objects; 0 if even one object is too slow."""
    allowed_ms: float
    """Maximum time of a lookup."""
    lookup_ms: float
    """Largest f(k) of k = 1 … k_max; 0 if ``k_max`` is 0."""
    binding: bool
    """Whether a larger size exists in the profile and is too slow."""

    @property
    def why(self) -> str:
        """The bound in one line, as text for the user."""
        if not self.binding:
            return f"no size up to {self.k_max} takes more than the {self.allowed_ms:.1f} ms per request"
        return f"k <= {self.k_max}: f = {self.lookup_ms:.2f} ms of the {self.allowed_ms:.1f} ms per request"


def largest_cache(lookup_ms: FloatArray, interarrival_ms: float, capacity: float) -> SizeBound:
    """The largest k with f(k) ≤ capacity · IAT_mean.

    The expected latency does not model a queue. If requests arrive faster than f(k), its minimum is a cache
    that is too large. Requests for objects beyond the limit go to the cloud, as misses.

    Parameters
    ----------
    lookup_ms : ndarray, (K + 1,) float64
        f(k) for k = 0 … K. f(0) is ignored, because it is mostly network time: an empty cache is always
        allowed.
    interarrival_ms, capacity : float
        As in `edge_probability`.

    Notes
    -----
    Source: Cachier dissertation, section 3.5.1.1.
    """
    allowed_ms = capacity * interarrival_ms
    rising_ms = np.maximum.accumulate(np.concatenate([[0.0], lookup_ms[1:]]))
    k_max = int(np.searchsorted(rising_ms, allowed_ms, side="right")) - 1
    return SizeBound(k_max, allowed_ms, float(rising_ms[k_max]), k_max < len(rising_ms) - 1)


def expected_compute_ms(work: Sequence[tuple[float, float]], servers: int, now_s: float) -> float | None:
    """Expected compute time of a photo at this edge [ms], for devices; None before the first photo.

    While photos arrive, this is the median of recent compute times. After a pause, those times may be from a
    busy period that has ended: parallel lookups share the cores, and each takes longer by the number of
    lookups per core. Therefore each time is divided by this number, which follows from the recorded start
    and end times.

    Parameters
    ----------
    work : sequence of tuple
        Start and end times of recent photos [s], ordered by end.
    servers : int
        Number of photos that are processed in parallel without slowing each other down.
    now_s : float
        Present time [s].
    """

    def parallel_per_server(begin_s: float, end_s: float) -> float:
        """Mean number of photos per server that were processed at the same time; at least 1."""
        length_s = end_s - begin_s
        if length_s <= 0:
            return 1.0
        shared_s = sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in work)
        return max(1.0, shared_s / length_s / servers)

    if not work:
        return None
    present = [end - begin for begin, end in work if now_s - end <= PRESENT_S]
    times_s = present or [(end - begin) / parallel_per_server(begin, end) for begin, end in work]
    return statistics.median(times_s) * 1e3


class LoadControl:
    """Measures the load, and applies the method of the settings; thread-safe.

    Parameters
    ----------
    multi_user : {"none", "bounded", "load-balanced"}
        The method.
    settings : LoadSettings
        Windows, share and seed value.
    servers : int
        Number of requests that the edge processes in parallel.
    clock : Clock
        Source of arrival times.
    """

    def __init__(self, multi_user: MultiUser, settings: LoadSettings, servers: int, clock: Clock) -> None:
        self._multi_user = multi_user
        self._clock = clock
        self._lock = threading.Lock()
        self._interarrival = RollingMean(settings.window, settings.interarrival_seed_ms)
        self._compute = RollingMean(settings.window, settings.compute_seed_ms)
        self._capacity = settings.share * servers
        self._servers = servers
        self._work: deque[tuple[float, float]] = deque(maxlen=_WINDOW)
        self._rng = np.random.default_rng(settings.seed)
        self._started_s = clock.monotonic()
        self._last_arrival_s: float | None = None
        self._passed_on = 0
        self._last_bound: SizeBound | None = None

    def arrived(self, method: str) -> None:
        """Record the arrival of a call, which may still wait in the queue.

        Arrivals are recorded before the queue, as requests leave a queue at the rate of processing.
        """
        if method != RECOGNIZE:
            return
        with self._lock:
            last_s, self._last_arrival_s = self._last_arrival_s, self._clock.monotonic()
            if last_s is not None:
                interval_ms = (self._last_arrival_s - last_s) * 1e3
                self._interarrival.observe(min(LONGEST_INTERVAL_MS, interval_ms))

    def may_work(self) -> bool:
        """Whether the edge may process a request; otherwise it must pass the request on at once."""
        if self._multi_user != "load-balanced":
            return True
        with self._lock:
            probability = self._edge_probability()
            to_edge = probability >= 1 or float(self._rng.random()) < probability
            self._passed_on += not to_edge
            return to_edge

    def computed(self, compute_ms: float) -> None:
        """Record the compute time of a request."""
        with self._lock:
            self._compute.observe(compute_ms)
            now_s = self._clock.monotonic()
            self._work.append((now_s - compute_ms / 1e3, now_s))

    def compute_ms(self) -> float | None:
        """Expected compute time of a photo that arrives now [ms]; None before the first photo.

        With load balancing this is the mean over all photos; photos that are passed on take no time here.
        """
        with self._lock:
            compute_ms = expected_compute_ms(self._work, self._servers, self._clock.monotonic())
            if compute_ms is None or self._multi_user != "load-balanced":
                return compute_ms
            return compute_ms * self._edge_probability()

    def answer_ms(self, queue_ms: float, size: int) -> float:
        """Expected time from arrival to answer of a photo that is answered here [ms]; 0 if it is unknown.

        Parameters
        ----------
        queue_ms : float
            Time that a report waited in the queue, which photos use as well. Therefore it is the present
            waiting time, 0 if there are no other requests.
        size : int
            Number of objects in the cache; an empty cache answers no photo.
        """
        compute_ms = self.compute_ms() if size else None
        return 0.0 if compute_ms is None else queue_ms + compute_ms

    def largest_size(self, lookup_ms: FloatArray, k_max: int) -> int:
        """Maximum number of objects in a cache with this f(k), at most ``k_max``."""
        if self._multi_user != "bounded":
            return k_max
        with self._lock:
            self._last_bound = largest_cache(lookup_ms, self._interarrival.mean, self._capacity)
            return min(k_max, self._last_bound.k_max)

    def idle_s(self) -> float:
        """Seconds since the last request, or since the start."""
        with self._lock:
            since_s = self._started_s if self._last_arrival_s is None else self._last_arrival_s
            return self._clock.monotonic() - since_s

    def why(self) -> str:
        """The load in one line, as text for the user."""
        with self._lock:
            every = (
                f"a request every {self._interarrival.mean:.1f} ms{self._interarrival.assumed}, "
                f"{self._compute.mean:.1f} ms of work each{self._compute.assumed}"
            )
            if self._multi_user == "load-balanced":
                return f"{every}; P(edge) = {self._edge_probability():.2f}, {self._passed_on} passed on"
            if self._multi_user == "bounded" and self._last_bound is not None:
                return f"{every}; {self._last_bound.why}"
            return every

    def _edge_probability(self) -> float:
        return edge_probability(self._interarrival.mean, self._compute.mean, self._capacity)
