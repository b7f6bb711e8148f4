"""Many users at one edge (section 3.5.1): how much it may compute, and what it gives away to the cloud.

Where requests come faster than the edge computes, a queue would grow. Two methods prevent it: a cache so
small that lookups keep up (`largest_cache`), or giving away the share of the requests that would queue up
(`LoadBalancer`). `RecentWork` tells devices what a photo takes here. `LoadControl` joins them, one for the
daemon: all catalogues share the machine.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from nearsight.common.clock import Clock
from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.object_cache.profile import RollingMean
from nearsight.edge.settings import LoadSettings, MultiUser

RECOGNIZE = "nearsight.v1.Recognition.Recognize"
"""The method whose calls are load."""
PRESENT_S = 5.0
"""Computing times of the last seconds are taken as they are."""
_WINDOW = 20


class InterArrivalTime:
    """Mean time between requests, of all devices together.

    Parameters
    ----------
    window : int
        Requests that are averaged over.
    seed_ms : float
        Assumed at first.
    longest_ms : float
        A longer silence counts as this: one quiet night between two crowds must not make the second look
        like no load for a hundred requests. ``inf`` is the dissertation's plain mean.
    """

    def __init__(self, window: int = 100, seed_ms: float = 200.0, longest_ms: float = 10_000.0) -> None:
        if not longest_ms > 0:
            raise InvalidArgument(f"the longest silence must be above 0, got {longest_ms} ms")
        self._mean = RollingMean(window, seed_ms)
        self._longest_ms = longest_ms
        self._last_s: float | None = None

    @property
    def mean_ms(self) -> float:
        """IAT_mean in ms."""
        return self._mean.mean

    @property
    def assumed(self) -> str:
        """As `RollingMean.assumed`."""
        return self._mean.assumed

    def observe(self, now_s: float) -> None:
        """A request arrived."""
        if self._last_s is not None:
            # Threads may report two arrivals in the wrong order.
            self._mean.observe(min(self._longest_ms, max(0.0, now_s - self._last_s) * 1e3))
        self._last_s = now_s


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much the edge may compute at the same time.

    Raises
    ------
    InvalidArgument
        If ``share`` is outside of (0, 1], or there is no server.
    """

    share: float = 1.0
    """Part of its capacity that the edge uses. 1 as in the dissertation's text; its system used 0.9, which
    keeps the queue short: at a load of exactly 1 a queue grows without bound."""
    servers: int = 1
    """Requests that the edge computes at the same time."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidArgument(f"the used share of the edge must be in (0, 1], got {self.share}")
        if self.servers < 1:
            raise InvalidArgument(f"an edge has at least one server, got {self.servers}")

    @property
    def used(self) -> float:
        """``share · servers``."""
        return self.share * self.servers


class LoadBalancer:
    """P(edge) = min(1, share · servers · IAT / compute): the first thing that a request meets.

    Parameters
    ----------
    interarrival : InterArrivalTime
        Of all requests that reach the edge; the caller reports arrivals to it.
    capacity : Capacity
        Of the edge.
    window : int
        Requests over which the compute time is averaged.
    compute_seed_ms : float
        Compute time assumed at first.

    Notes
    -----
    Source: Cachier dissertation, section 3.5.1.2. Not thread-safe.
    """

    def __init__(
        self,
        interarrival: InterArrivalTime,
        capacity: Capacity,
        window: int = 100,
        compute_seed_ms: float = 50.0,
    ) -> None:
        self._interarrival = interarrival
        self.compute = RollingMean(window, compute_seed_ms)
        """Time in ms that the edge computes for one request; those sent to the cloud at once do not count."""
        self._capacity = capacity

    @property
    def edge_probability(self) -> float:
        """P(edge) as of now."""
        if self.compute.mean <= 0:
            return 1.0
        return min(1.0, self._capacity.used * self._interarrival.mean_ms / self.compute.mean)

    def to_edge(self, rng: np.random.Generator) -> bool:
        """Whether the request that just arrived is worked on here; else it goes to the cloud."""
        probability = self.edge_probability
        return probability >= 1 or float(rng.random()) < probability


@dataclass(frozen=True, slots=True)
class SizeBound:
    """The largest cache that keeps up with the requests."""

    k_max: int
    """Its size; 0 where even one object is too slow."""
    allowed_ms: float
    """Time that a lookup may take."""
    lookup_ms: float
    """f(k_max)."""
    binding: bool
    """Whether a larger size was described and is too slow."""

    @property
    def why(self) -> str:
        """The bound in one line, for a person."""
        if not self.binding:
            return f"no size up to {self.k_max} takes more than the {self.allowed_ms:.1f} ms per request"
        return f"k <= {self.k_max}: f = {self.lookup_ms:.2f} ms of the {self.allowed_ms:.1f} ms per request"


def largest_cache(lookup_ms: FloatArray, interarrival_ms: float, capacity: Capacity) -> SizeBound:
    """The largest k with f(k) ≤ share · servers · IAT_mean.

    The expected latency knows no queue: where requests come faster than f(k), its minimum would be too large
    a cache. What no longer fits goes to the cloud as misses do.

    Parameters
    ----------
    lookup_ms : ndarray, (K + 1,) float64
        f(k) for k = 0 … K, not falling.
    interarrival_ms : float
        IAT_mean.
    capacity : Capacity
        Of the edge.

    Raises
    ------
    InvalidArgument
        If f falls somewhere, or the time is negative.

    Notes
    -----
    Source: Cachier dissertation, section 3.5.1.1.
    """
    if lookup_ms.ndim != 1 or not len(lookup_ms) or (np.diff(lookup_ms) < 0).any():
        raise InvalidArgument("lookup_ms must be one value per cache size from 0 on, and must not fall")
    if not interarrival_ms >= 0:
        raise InvalidArgument(f"a time between requests cannot be {interarrival_ms} ms")
    allowed_ms = capacity.used * interarrival_ms
    k_max = max(0, int(np.searchsorted(lookup_ms, allowed_ms, side="right")) - 1)
    return SizeBound(k_max, allowed_ms, float(lookup_ms[k_max]), k_max < len(lookup_ms) - 1)


class RecentWork:
    """What a photo takes to compute at this edge now, for devices that have sent none for a while.

    While photos come, it is what the last ones took. Once nobody has asked for a while, those times may be
    of a crowd that is gone: lookups at the same time share the cores, and each takes as many times longer.
    So each time is then divided by how many there were per core, known from when they began and ended.

    Parameters
    ----------
    servers : int
        Photos that are computed at the same time without making each other slower.
    """

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self._work: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # begin and end, in the order of ends

    def observe(self, ended_s: float, compute_ms: float) -> None:
        """A photo was computed for so long, until now."""
        self._work.append((ended_s - compute_ms / 1e3, ended_s))

    def expected_ms(self, now_s: float) -> float | None:
        """Median of what a photo takes now; None if there was none yet."""
        if not self._work:
            return None
        present = [end - begin for begin, end in self._work if now_s - end <= PRESENT_S]
        times_s = present or [(end - begin) / self._crowd(begin, end) for begin, end in self._work]
        return statistics.median(times_s) * 1e3

    def _crowd(self, begin_s: float, end_s: float) -> float:
        """How many photos were computed at the same time per server, in the mean; at least 1."""
        length_s = end_s - begin_s
        if length_s <= 0:
            return 1.0
        shared_s = sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in self._work)
        return max(1.0, shared_s / length_s / self._servers)


class LoadControl:
    """Measures the load, and applies the method that the settings choose; for all threads.

    Parameters
    ----------
    multi_user : {"none", "bounded", "load-balanced"}
        The method.
    settings : LoadSettings
        Windows, share and seed.
    servers : int
        Requests that the edge computes at the same time.
    clock : Clock
        For the times between requests.
    """

    def __init__(self, multi_user: MultiUser, settings: LoadSettings, servers: int, clock: Clock) -> None:
        self._multi_user = multi_user
        self._clock = clock
        self._lock = threading.Lock()
        self._interarrival = InterArrivalTime(settings.window, settings.interarrival_seed_ms)
        self._capacity = Capacity(settings.share, servers)
        self._balancer = LoadBalancer(
            self._interarrival, self._capacity, settings.window, settings.compute_seed_ms
        )
        self._recent = RecentWork(servers)
        self._rng = np.random.default_rng(settings.seed)
        self._last_arrival_s = clock.monotonic()
        self._given_away = 0
        self._last_bound: SizeBound | None = None

    def arrived(self, method: str) -> None:
        """A call arrived; it may still have to wait for its turn.

        That is when it counts: requests leave a queue as fast as they are worked on, however many there are.
        """
        if method != RECOGNIZE:
            return
        with self._lock:
            self._last_arrival_s = self._clock.monotonic()
            self._interarrival.observe(self._last_arrival_s)

    def may_work(self) -> bool:
        """Whether the edge may work on a request, or must pass it on at once."""
        if self._multi_user != "load-balanced":
            return True
        with self._lock:
            to_edge = self._balancer.to_edge(self._rng)
            self._given_away += not to_edge
            return to_edge

    def computed(self, compute_ms: float) -> None:
        """The edge computed this long for a request."""
        with self._lock:
            self._balancer.compute.observe(compute_ms)
            self._recent.observe(self._clock.monotonic(), compute_ms)

    def compute_ms(self) -> float | None:
        """What the edge would compute for a photo that came now; None before the first one.

        Of all photos where some are given away: those cost nothing here.
        """
        with self._lock:
            compute_ms = self._recent.expected_ms(self._clock.monotonic())
            if compute_ms is None or self._multi_user != "load-balanced":
                return compute_ms
            return compute_ms * self._balancer.edge_probability

    def largest_size(self, lookup_ms: FloatArray, k_max: int) -> int:
        """How many objects a cache with this f(k) may hold, at most ``k_max``."""
        if self._multi_user != "bounded":
            return k_max
        with self._lock:
            # f(0) is mostly time in the network: an empty cache is allowed whatever it is, and no other size
            # is bounded by it. The rest rises by construction; made sure of, as anything else is refused.
            looking_up_ms = np.maximum.accumulate(np.concatenate([[0.0], lookup_ms[1:]]))
            self._last_bound = largest_cache(looking_up_ms, self._interarrival.mean_ms, self._capacity)
            return min(k_max, self._last_bound.k_max)

    def idle_s(self) -> float:
        """Seconds since the last request."""
        with self._lock:
            return self._clock.monotonic() - self._last_arrival_s

    def why(self) -> str:
        """The load in one line, for a person."""
        with self._lock:
            every = (
                f"a request every {self._interarrival.mean_ms:.1f} ms{self._interarrival.assumed}, "
                f"{self._balancer.compute.mean:.1f} ms of work each{self._balancer.compute.assumed}"
            )
            if self._multi_user == "load-balanced":
                probability = self._balancer.edge_probability
                return f"{every}; P(edge) = {probability:.2f}, {self._given_away} given away"
            if self._multi_user == "bounded" and self._last_bound is not None:
                return f"{every}; {self._last_bound.why}"
            return every
