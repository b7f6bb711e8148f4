"""Bounded compute time: a cache so small that requests do not queue up before it (section 3.5.1.1).

The expected latency knows no queue. Where requests come faster than f(k), its minimum would be too large a
cache; f rises with k, so the inter-arrival time bounds k from above. What no longer fits goes to the cloud
as misses do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray


@dataclass(frozen=True, slots=True)
class SizeBound:
    """The largest cache that keeps up.

    Attributes
    ----------
    k_max : int
        Its size; 0 where even one object is too slow.
    allowed_ms : float
        Time that a lookup may take.
    lookup_ms : float
        f(k_max).
    binding : bool
        Whether a larger size was described and is too slow.
    """

    k_max: int
    allowed_ms: float
    lookup_ms: float
    binding: bool

    @property
    def why(self) -> str:
        """The bound in one line, for a person."""
        if not self.binding:
            return f"no size up to {self.k_max} takes more than the {self.allowed_ms:.1f} ms per request"
        return f"k <= {self.k_max}: f = {self.lookup_ms:.2f} ms of the {self.allowed_ms:.1f} ms per request"


class ComputeBound:
    """k_max = the largest k with f(k) ≤ share · servers · IAT_mean.

    Parameters
    ----------
    share : float
        Part of the time between requests that lookups may take; 1 in the dissertation's text.
    servers : int
        Requests that the edge computes at the same time.

    Raises
    ------
    InvalidArgument
        If ``share`` is outside of (0, 1], or there is no server.
    """

    def __init__(self, share: float = 1.0, servers: int = 1) -> None:
        if not 0 < share <= 1:
            raise InvalidArgument(f"the used share of the edge must be in (0, 1], got {share}")
        if servers < 1:
            raise InvalidArgument(f"an edge has at least one server, got {servers}")
        self._capacity = share * servers

    def bound(self, lookup_ms: FloatArray, interarrival_ms: float) -> SizeBound:
        """Find the largest size that keeps up.

        Parameters
        ----------
        lookup_ms : ndarray, (K + 1,) float64
            f(k) for k = 0 … K, not falling.
        interarrival_ms : float
            IAT_mean.

        Raises
        ------
        InvalidArgument
            If f falls somewhere, or the time is negative.
        """
        if lookup_ms.ndim != 1 or not len(lookup_ms) or (np.diff(lookup_ms) < 0).any():
            raise InvalidArgument("lookup_ms must be one value per cache size from 0 on, and must not fall")
        if not interarrival_ms >= 0:
            raise InvalidArgument(f"a time between requests cannot be {interarrival_ms} ms")
        allowed_ms = self._capacity * interarrival_ms
        k_max = max(0, int(np.searchsorted(lookup_ms, allowed_ms, side="right")) - 1)
        return SizeBound(k_max, allowed_ms, float(lookup_ms[k_max]), k_max < len(lookup_ms) - 1)
