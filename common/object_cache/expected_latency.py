"""The expected latency of a recognition cache, equation 2.3, for edge and device.

A larger cache answers more requests itself but makes *every* lookup slower. The equation combines both
effects. Its minimum is the best size of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.text import percent

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatencyTerms:
    """The terms of equation 2.3 at one cache size.

    ``features`` is the number of features per query; 0 if the decision does not include it.
    """

    k: int
    lookup_ms: float
    recall: float
    cached_probability: float
    miss_ms: float
    expected_ms: float
    features: int = 0

    @property
    def size(self) -> str:
        """The size and the number of features, as a text for people."""
        return f"k={self.k} with {self.features} features" if self.features else f"k={self.k}"


def why_chosen(chosen: LatencyTerms, others: Iterable[LatencyTerms], note: str = "") -> str:
    """Explain a choice in one line: its terms, and the latencies of the other choices.

    Parameters
    ----------
    chosen : LatencyTerms
        The terms of the choice.
    others : iterable of LatencyTerms
        The terms of the alternatives.
    note : str
        Remark about the chosen size.
    """
    work = "extraction and lookup" if chosen.features else "lookup"
    missed = f"1 - {chosen.recall:.3f} recall x {chosen.cached_probability:.3f} cached"
    total = f"{chosen.lookup_ms:.2f} ms {work} + ({missed}) x {chosen.miss_ms:.1f} ms miss"
    line = f"{chosen.size}{note}: {chosen.expected_ms:.2f} ms = {total}"
    compared = ", ".join(f"{one.size}: {one.expected_ms:.2f} ms" for one in others)
    return f"{line}; {compared}" if compared else line


def why_cache_is_empty(tier: str, offload: LatencyTerms, others: Iterable[LatencyTerms]) -> str:
    """Explain in one sentence why asking the next tier directly is faster than a lookup in the cache.

    Parameters
    ----------
    tier : str
        Name of the next tier.
    offload : LatencyTerms
        The terms at k = 0, which was chosen.
    others : iterable of LatencyTerms
        The terms at other sizes.
    """
    best = min((one for one in others if one.k), key=lambda one: one.expected_ms, default=None)
    asking = f"takes {offload.expected_ms:.0f} ms"
    if best is None:
        return f"asking the {tier} {asking}, and the cache has no room for an object"
    hits = best.recall * best.cached_probability
    among = f"among {best.k} objects" if best.k > 1 else "of one object"
    looking = f"a lookup {among} would first take {best.lookup_ms:.0f} ms"
    return (
        f"asking the {tier} {asking}; {looking} and recognise {percent(hits)} of the photos, "
        "so the cache is empty"
    )


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision about a cache with the facts to judge it; the same for edge and device."""

    catalogue: str
    """Catalogue of the cache."""
    age_s: float
    """Time since the decision [s]."""
    chosen: LatencyTerms
    """Terms of the chosen size."""
    alternatives: tuple[LatencyTerms, ...] = ()
    """Terms of the other sizes compared."""
    k_max: int = 0
    """Largest size allowed."""
    why: str = ""
    """Reason in one line."""
    object_ids: tuple[str, ...] = ()
    """Objects for the cache, the most probable first."""
    facts: tuple[tuple[str, str], ...] = ()
    """Further facts as (name, value), in display order."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedLatency:
    """The terms of E[L](k) for every cache size k = 0 … K at once.

    Raises
    ------
    InvalidArgument
        If shapes differ, a value is negative or not finite, or a probability exceeds 1.

    Notes
    -----
    Source: Cachier dissertation, eq. 2.3. Eq. 3.4 means the same with P_cached(k) from eq. 3.3; it is printed
    with a misplaced bracket, (1 - recall) · P_cached.
    """

    lookup_ms: FloatArray
    """(K + 1,) float64: f(k), time that every request spends in a cache of k objects [ms]. f(0) is the
    work of an empty cache in addition to a miss, often 0."""
    recall: FloatArray
    """(K + 1,) float64: probability that an object in a cache of k objects is recognised."""
    cached_probability: FloatArray
    """(K + 1,) float64: P_cached(k), probability that a request is for one of the k objects.
    Not decreasing; 0 at k = 0."""
    miss_ms: float
    """L_miss: round trip to the next tier [ms]."""

    def __post_init__(self) -> None:
        shape = self.lookup_ms.shape
        if len(shape) != 1 or not shape[0]:
            raise InvalidArgument(f"lookup_ms must be one value per cache size from 0 on, got shape {shape}")
        for name in ("recall", "cached_probability"):
            array = getattr(self, name)
            if array.shape != shape:
                raise InvalidArgument(f"{name} must have shape {shape}, got {array.shape}")
            # Rounding can raise sums of probabilities slightly above 1.
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
        """The terms at size ``k``; ``latency_ms`` is the result of `evaluate`."""
        return LatencyTerms(
            k,
            float(self.lookup_ms[k]),
            float(self.recall[k]),
            float(self.cached_probability[k]),
            self.miss_ms,
            float(latency_ms[k]),
            features,
        )
