"""Many users at one edge (section 3.5.1): how much it may compute, and what it gives away to the cloud.

One for the daemon: all catalogues share the machine.
"""

from __future__ import annotations

import threading

import numpy as np

from nearsight.common.clock import Clock
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.edge.load_balancing import (
    Capacity,
    InterArrivalTime,
    LoadBalancer,
    RecentWork,
    SizeBound,
    largest_cache,
)
from nearsight.edge.settings import LoadSettings, MultiUser

RECOGNIZE = "nearsight.v1.Recognition.Recognize"
"""The method whose calls are load."""


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
            self._balancer.observe_compute(compute_ms)
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
                f"a request every {self._interarrival.mean_ms:.1f} ms, "
                f"{self._balancer.compute_ms:.1f} ms of work each"
            )
            if self._multi_user == "load-balanced":
                probability = self._balancer.edge_probability
                return f"{every}; P(edge) = {probability:.2f}, {self._given_away} given away"
            if self._multi_user == "bounded" and self._last_bound is not None:
                return f"{every}; {self._last_bound.why}"
            return every
