"""Explicit load balancing: what the edge cannot compute in time goes to the cloud at once (section 3.5.1.2).

The first thing that a request meets. Unlike the bound on the cache size it looks at no cache: the cloud is
one more server, and the edge gives away exactly the share of the requests that would queue up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.rolling_mean import InterArrivalTime, RollingMean


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes.

    Attributes
    ----------
    to_edge : bool
        To the edge's cache; otherwise to the cloud.
    edge_probability : float
        How likely the edge was.
    interarrival_ms, compute_ms : float
        What that followed from.
    """

    to_edge: bool
    edge_probability: float
    interarrival_ms: float
    compute_ms: float

    @property
    def why(self) -> str:
        """The decision in one line, for a person."""
        return (
            f"{'edge' if self.to_edge else 'cloud'}: P(edge) = {self.edge_probability:.2f}, a request comes "
            f"every {self.interarrival_ms:.1f} ms and takes {self.compute_ms:.1f} ms"
        )


class LoadBalancer:
    """P(edge) = min(1, share · IAT / compute).

    Parameters
    ----------
    interarrival : InterArrivalTime
        Of all requests that reach the edge; the shell reports arrivals to it.
    window : int
        Requests over which the compute time is averaged.
    compute_seed_ms : float
        Compute time assumed at first.
    share : float
        Part of its capacity that the edge uses. 1 as in the dissertation's text; its system used 0.9, which
        keeps the queue short: at a load of exactly 1 a queue grows without bound.
    servers : int
        Requests that the edge computes at the same time.

    Raises
    ------
    InvalidArgument
        If a number is not positive, or ``share`` is above 1.

    Notes
    -----
    Source: Cachier dissertation, section 3.5.1.2. Not thread-safe.
    """

    def __init__(
        self,
        interarrival: InterArrivalTime,
        *,
        window: int = 100,
        compute_seed_ms: float = 50.0,
        share: float = 1.0,
        servers: int = 1,
    ) -> None:
        if not 0 < share <= 1:
            raise InvalidArgument(f"the used share of the edge must be in (0, 1], got {share}")
        if servers < 1:
            raise InvalidArgument(f"an edge has at least one server, got {servers}")
        self._interarrival = interarrival
        self._compute = RollingMean(window, compute_seed_ms)
        self._capacity = share * servers

    @property
    def compute_ms(self) -> float:
        """Mean time that the edge computes for one request."""
        return self._compute.mean

    def observe_compute(self, compute_ms: float) -> None:
        """The edge computed this long for a request; those sent to the cloud at once do not count."""
        self._compute.observe(compute_ms)

    @property
    def edge_probability(self) -> float:
        """P(edge) as of now."""
        if self._compute.mean <= 0:
            return 1.0
        return min(1.0, self._capacity * self._interarrival.mean_ms / self._compute.mean)

    def route(self, rng: np.random.Generator) -> Route:
        """Decide about the request that just arrived."""
        probability = self.edge_probability
        to_edge = probability >= 1 or float(rng.random()) < probability
        return Route(to_edge, probability, self._interarrival.mean_ms, self._compute.mean)
