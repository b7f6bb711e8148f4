"""The expected latency of a recognition cache: equation 2.3, once, for the edge and for the device.

A bigger cache answers more requests itself, yet makes *every* lookup slower. The equation weighs the two,
and its minimum is the size that a tier should have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatencyTerms:
    """The terms of equation 2.3 at one cache size.

    ``features`` is the number of features per query; 0 where it is not part of the decision.
    """

    k: int
    lookup_ms: float
    recall: float
    cached_probability: float
    miss_ms: float
    expected_ms: float
    features: int = 0


def why_nothing_is_kept(tier: str, offload: LatencyTerms, others: Iterable[LatencyTerms]) -> str:
    """Why it is faster to ask the next tier at once than to look first, in one sentence for a person.

    Parameters
    ----------
    tier : str
        The next tier.
    offload : LatencyTerms
        The terms at k = 0, which was chosen.
    others : iterable of LatencyTerms
        What it was compared with.
    """
    best = min((one for one in others if one.k), key=lambda one: one.expected_ms, default=None)
    asking = f"takes {offload.expected_ms:.0f} ms"
    if best is None:
        return f"asking the {tier} {asking}, and there is no room for an object"
    hits = best.recall * best.cached_probability
    among = f"among {best.k} objects" if best.k > 1 else "for one object"
    looking = f"looking here {among} first would take {best.lookup_ms:.0f} ms and find {hits:.0%}"
    return f"the {tier} is near: asking it {asking}, {looking}, so no object is kept"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision about a cache with all that a person needs to judge it, the same for edge and device."""

    catalogue: str
    """Which catalogue's cache it is about."""
    age_s: float
    """Seconds since it was taken."""
    chosen: LatencyTerms
    """What was chosen."""
    alternatives: tuple[LatencyTerms, ...] = ()
    """What else was compared."""
    k_max: int = 0
    """Largest size that was allowed."""
    why: str = ""
    """In one line."""
    object_ids: tuple[str, ...] = ()
    """What belongs into the cache, the most probable first."""
    facts: tuple[tuple[str, str], ...] = ()
    """Further facts for a person, in display order."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedLatency:
    """The terms of E[L](k) for every cache size k = 0 … K at once.

    Raises
    ------
    InvalidArgument
        If shapes differ, or a value is negative, not finite, or no probability.

    Notes
    -----
    Source: Cachier dissertation, eq. 2.3; eq. 3.4 is the same with P_cached(k) from eq. 3.3.
    """

    lookup_ms: FloatArray
    """(K + 1,) float64: f(k): time that every request spends in a cache of k objects. f(0) is normally 0: an
    empty cache is not asked."""
    recall: FloatArray
    """(K + 1,) float64: Probability that an object in a cache of k objects is recognised."""
    cached_probability: FloatArray
    """(K + 1,) float64: P_cached(k): probability that a request is for one of the k objects; 0 at k = 0, not
    decreasing."""
    miss_ms: float
    """L_miss: whole round trip to the next tier."""

    def __post_init__(self) -> None:
        shape = self.lookup_ms.shape
        if len(shape) != 1 or not shape[0]:
            raise InvalidArgument(f"lookup_ms must be one value per cache size from 0 on, got shape {shape}")
        for name in ("recall", "cached_probability"):
            array = getattr(self, name)
            if array.shape != shape:
                raise InvalidArgument(f"{name} must have shape {shape}, got {array.shape}")
            # Sums of probabilities may pass 1 by rounding.
            if not (array.min() >= 0 and array.max() <= 1 + 1e-9):
                raise InvalidArgument(f"{name} must be in [0, 1]")
        if not (self.lookup_ms.min() >= 0 and self.lookup_ms.max() < np.inf):
            raise InvalidArgument("lookup_ms must be finite and not negative")
        if not 0 <= self.miss_ms < np.inf:
            raise InvalidArgument(f"miss_ms must be finite and not negative, got {self.miss_ms}")

    def evaluate(self) -> FloatArray:
        """E[L](k) = f(k) + (1 - recall(k) · P_cached(k)) · L_miss in ms, for every k: shape (K + 1,)."""
        latency: FloatArray = self.lookup_ms + (1.0 - self.recall * self.cached_probability) * self.miss_ms
        return latency

    def terms(self, k: int, latency_ms: FloatArray, features: int = 0) -> LatencyTerms:
        """The terms at one size; ``latency_ms`` is what `evaluate` returned."""
        return LatencyTerms(
            k,
            float(self.lookup_ms[k]),
            float(self.recall[k]),
            float(self.cached_probability[k]),
            self.miss_ms,
            float(latency_ms[k]),
            features,
        )
