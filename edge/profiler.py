"""Costs of requests: `Profiler` (figure 3.5) measures lookups and misses; `Regret` evaluates past decisions.

The dissertation's profiler measures misses and uses the offline fit of f(k). This profiler also corrects f(k)
by measured lookups, and adds the time of feature extraction for requests that contain an image.

The optimizer decides with these estimates. After a request, its object and the object's rank by popularity
are known: a cache of the k most popular objects would have held the object if and only if its rank is below
k. With this, `Regret` compares the actual costs of recent requests with those of the best fixed size.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.object_cache.profile import CacheProfile, LookupCorrection, ProfileCurves, RollingMean
from nearsight.edge.cache_size import Costs
from nearsight.edge.request_distribution import Ranking

_EXTRACTION_WINDOW = 100


class Measured(BaseModel):
    """Measurements of a profiler, for the store and the next start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    miss_ms: float = Field(ge=0, allow_inf_nan=False)
    correction: float = Field(gt=0, allow_inf_nan=False)
    image_share: float = Field(ge=0, le=1)
    extraction_ms: float = Field(ge=0, allow_inf_nan=False)
    surplus_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # forwarding overhead; stored name
    profile: CacheProfile


class Profiler:
    """Measures costs; thread-safe.

    Parameters
    ----------
    profile : CacheProfile
        Offline measurements.
    miss_prior_ms : float
        L_miss [ms] until the first miss, which replaces it.
    miss_window : int
        Number of recent misses in the mean; 10 in the dissertation's system.

    Raises
    ------
    InvalidArgument
        As in `RollingMean`.
    """

    def __init__(self, profile: CacheProfile, miss_prior_ms: float = 100.0, miss_window: int = 10) -> None:
        self._lock = threading.Lock()
        self._miss_latency = RollingMean(miss_window, miss_prior_ms, full=False)
        self.extraction = RollingMean(_EXTRACTION_WINDOW, profile.extraction_ms, full=False)
        """Times of feature extraction from an image [ms]."""
        self._brought_image = RollingMean(_EXTRACTION_WINDOW, 0.0, full=False)
        self._overhead_ms = RollingMean(_EXTRACTION_WINDOW, 0.0, full=False)
        self._correction = LookupCorrection()
        self._extractions, self._to_replace = 0, 0.0  # measured since `relax`; samples that it must replace
        self._curves: ProfileCurves = profile.curves(0)
        self.profile = profile
        """The current profile."""

    @property
    def miss_why(self) -> str:
        """L_miss, and whether it is assumed, as text for the user."""
        with self._lock:
            return f"{self._miss_latency.mean:.1f} ms{self._miss_latency.assumed}"

    @property
    def correction(self) -> float:
        """Ratio of measured lookup times to those of the profile."""
        with self._lock:
            return self._correction.factor

    def measured(self) -> Measured | None:
        """Measurements to store; None before the first miss."""
        with self._lock:
            if not self._miss_latency.values:
                return None
            return Measured(
                miss_ms=self._miss_latency.mean,
                correction=self._correction.factor,
                image_share=self._brought_image.mean,
                extraction_ms=self.extraction.mean,
                surplus_ms=self._overhead_ms.mean,
                profile=self.profile,
            )

    def restore(self, measured: Measured, *, keep_profile: bool) -> None:
        """Load the measurements of an earlier run.

        Parameters
        ----------
        measured : Measured
            Measurements of the earlier run.
        keep_profile : bool
            Keep the present profile; the correction is loaded only if both profiles have the same f(k).
        """
        with self._lock:
            same = measured.profile.lookup_ms == self.profile.lookup_ms
            if not keep_profile:
                self.profile = measured.profile
                self._curves = self.profile.curves(0)
            if same or not keep_profile:
                self._correction = LookupCorrection(measured.correction)
            self._miss_latency.refill(measured.miss_ms)
            self._brought_image.refill(measured.image_share)
            self.extraction.refill(measured.extraction_ms)
            self._overhead_ms.refill(measured.surplus_ms)

    def use(self, profile: CacheProfile) -> None:
        """Replace the profile, and reset the correction."""
        with self._lock:
            self.profile = profile
            self._curves = profile.curves(len(self._curves.lookup_ms) - 1)
            if not self.extraction.values:
                self.extraction.mean = profile.extraction_ms
            self._correction = LookupCorrection()

    def observe_miss(self, round_trip_ms: float) -> None:
        """Record the time until the cloud's first answer to a miss; not called if the miss failed."""
        with self._lock:
            self._miss_latency.observe(round_trip_ms)

    def observe_lookup(self, k: int, lookup_ms: float) -> None:
        """Record the time of a lookup in a cache of k objects."""
        with self._lock:
            self._extend(k)
            self._correction.observe(lookup_ms, float(self._curves.lookup_ms[k]))

    def relax(self, requests: int) -> None:
        """Let the measured slowdown decay while the cache is empty, because no lookup measures it then.

        The same applies to extraction times if photos are passed on unchanged. Otherwise a slow extraction at
        the start of the edge would keep the cache empty forever.

        ``requests`` is the number of requests since the last call.
        """
        with self._lock:
            self._correction.relax(requests)
            unmeasured = min(_EXTRACTION_WINDOW, max(0, requests - self._extractions))
            self._to_replace += unmeasured * self._correction.trial_rate
            self._extractions = 0
            while self._to_replace >= 1:
                self._to_replace -= 1
                self.extraction.observe(self.profile.extraction_ms)

    def observe_query(self, *, image: bool, overhead_ms: float = 0.0) -> None:
        """Record whether a request contains an image, rather than features.

        ``overhead_ms`` is the extra time of an empty cache beyond a miss; see `CatalogueCache`.
        """
        with self._lock:
            self._brought_image.observe(image)
            self._overhead_ms.observe(overhead_ms)

    def observe_extraction(self, extraction_ms: float) -> None:
        """Record the time of feature extraction from an image."""
        with self._lock:
            self.extraction.observe(extraction_ms)
            self._extractions += 1

    def costs(self, k_max: int) -> Costs:
        """Present costs of every cache size 0 … k_max."""
        with self._lock:
            self._extend(k_max)
            lookup_ms = self._curves.lookup_ms[: k_max + 1] * self._correction.factor
            # A lookup needs features. An empty cache passes on images, or extracts what it sends.
            lookup_ms[1:] += self._brought_image.mean * self.extraction.mean
            lookup_ms[0] += self._overhead_ms.mean
            return Costs(
                lookup_ms,
                self._curves.recall[: k_max + 1],
                self._miss_latency.mean,
                self._correction.indifference,
            )

    def _extend(self, k: int) -> None:
        if k >= len(self._curves.lookup_ms):
            self._curves = self.profile.curves(2 * k)


@dataclass(frozen=True, slots=True)
class RegretReport:
    """Costs of recent requests, in hindsight."""

    requests: int
    """Number of requests."""
    mean_ms: float
    """Cost per request with the chosen sizes [ms]."""
    best_k: int
    """The fixed size with the least cost; the smallest of equally good ones."""
    best_ms: float
    """Cost per request with that size [ms]."""

    @property
    def regret_ms(self) -> float:
        """Extra cost of the chosen sizes [ms]; negative if they were better than any fixed size."""
        return self.mean_ms - self.best_ms

    @property
    def why(self) -> str:
        """The report in one line, as text for the user."""
        if not self.requests:
            return "no request yet"
        share = self.regret_ms / self.best_ms if self.best_ms > 0 else 0.0
        return (
            f"{self.regret_ms:.2f} ms per request over the last {self.requests} ({100 * share:+.1f} %): "
            f"{self.mean_ms:.2f} ms; always k={self.best_k} would have cost {self.best_ms:.2f} ms"
        )


class Regret:
    """Costs of recent requests with every cache size; thread-safe.

    Ranks and costs are those of the last decision, a few requests old. A ranking of the whole catalogue for
    each request would cost more than the lookup.

    Parameters
    ----------
    k_max : int
        Largest size. Up to ``resolution`` sizes are compared; if there are more, they form a geometric
        sequence.
    window : int
        N, number of recent requests; they use up to 8 · N · resolution bytes.
    resolution : int
        Number of sizes that are compared.

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """

    def __init__(self, k_max: int, window: int = 1000, resolution: int = 128) -> None:
        if k_max < 0 or window < 1 or resolution < 2:
            raise InvalidArgument(
                f"regret needs k_max >= 0, a window >= 1 and >= 2 sizes, got {k_max}, {window}, {resolution}"
            )
        self.sizes = _sizes(k_max, resolution)
        """The sizes that are compared, increasing: (G,) intp."""
        self._costs_ms = np.zeros((window, len(self.sizes)))
        self._chosen_ms = np.zeros(window)
        self._seen = 0
        self._lock = threading.Lock()
        self._estimate: tuple[Ranking, NDArray[np.intp], Costs] | None = None

    def decided(self, ranking: Ranking, costs: Costs) -> None:
        """Record the estimate of a decision."""
        ranks = np.empty(len(ranking), dtype=np.intp)
        ranks[ranking.order] = np.arange(len(ranking))
        with self._lock:
            self._estimate = (ranking, ranks, costs)

    def observe(self, object_id: str | None, k: int, *, held: bool) -> None:
        """Add a request, and remove the oldest.

        Parameters
        ----------
        object_id : str, optional
            Object of the request; None if it is unknown.
        k : int
            Size of the cache; if it exceeds the costs, it counts as their largest size.
        held : bool
            Whether the cache held the object.
        """
        with self._lock:
            if self._estimate is None:
                return
            ranking, ranks, costs = self._estimate
            sizes = np.minimum(self.sizes, len(costs.lookup_ms) - 1)
            missed = np.ones(len(sizes))
            position = None if object_id is None else ranking.positions.get(object_id)
            # No cache would have held an object without requests.
            if position is not None and ranks[position] < ranking.seen:
                missed -= np.where(ranks[position] < sizes, costs.recall[sizes], 0.0)
            place = self._seen % len(self._chosen_ms)
            self._costs_ms[place] = costs.lookup_ms[sizes] + missed * costs.miss_ms
            k = min(k, len(costs.lookup_ms) - 1)
            found = float(costs.recall[k]) if held else 0.0
            self._chosen_ms[place] = float(costs.lookup_ms[k]) + (1.0 - found) * costs.miss_ms
            self._seen += 1

    def costs_ms(self) -> FloatArray:
        """Mean cost of each of `sizes` over the window: (G,) float64; zeros before the first request."""
        count = min(self._seen, len(self._chosen_ms))
        return np.asarray(self._costs_ms[:count].sum(axis=0) / max(1, count))

    def report(self) -> RegretReport:
        """Evaluate the recent requests."""
        with self._lock:
            count = min(self._seen, len(self._chosen_ms))
            costs_ms = self.costs_ms()
            best = int(np.argmin(costs_ms))
            mean_ms = float(self._chosen_ms[:count].sum() / max(1, count))
            return RegretReport(count, mean_ms, int(self.sizes[best]), float(costs_ms[best]))


def _sizes(k_max: int, resolution: int) -> NDArray[np.intp]:
    if k_max < resolution:
        return np.arange(k_max + 1, dtype=np.intp)
    spaced = np.geomspace(1, k_max, resolution - 1).round().astype(np.intp)
    return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), spaced]))
