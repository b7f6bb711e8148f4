"""The Profiler of figure 3.5: what a lookup and a miss cost now.

The dissertation's profiler measures the misses and takes f(k) as it was fitted offline. This one also
corrects f(k) by the lookups that it sees, and adds what it costs to get features out of images that came as
images.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.expected_latency import FloatArray
from nearsight.common.object_cache.profile import CacheProfile, LookupCorrection, ProfileCurves

_EXTRACTION_WINDOW = 100


class MissLatency:
    """L_miss, never undefined: a prior stands in until the first miss has been measured.

    Parameters
    ----------
    prior_ms : float
        Assumed before the first miss.
    window : int
        How many of the last misses are averaged; 10 in the dissertation's system.

    Raises
    ------
    InvalidArgument
        If ``prior_ms`` is negative or not finite, or ``window`` is below 1.
    """

    def __init__(self, prior_ms: float = 100.0, window: int = 10) -> None:
        if not 0 <= prior_ms < math.inf:
            raise InvalidArgument(
                f"the prior miss latency must be finite and not negative, got {prior_ms} ms"
            )
        if window < 1:
            raise InvalidArgument(f"the window must hold at least one miss, got {window}")
        self._prior_ms = prior_ms
        self._last_ms: deque[float] = deque(maxlen=window)

    def observe(self, round_trip_ms: float) -> None:
        """Add one answered miss. A failed one is no measurement of what an answer costs.

        Raises
        ------
        InvalidArgument
            If the time is negative or not finite.
        """
        if not 0 <= round_trip_ms < math.inf:
            raise InvalidArgument(f"a round trip must be finite and not negative, got {round_trip_ms} ms")
        self._last_ms.append(round_trip_ms)

    def refill(self, round_trip_ms: float) -> None:
        """Fill the window with what an earlier run measured.

        Raises
        ------
        InvalidArgument
            If the time is negative or not finite.
        """
        for _ in range(self._last_ms.maxlen or 0):
            self.observe(round_trip_ms)

    @property
    def measured(self) -> int:
        """How many misses the mean rests on; 0 means that it is the prior."""
        return len(self._last_ms)

    @property
    def mean_ms(self) -> float:
        """L_miss in ms."""
        return _mean(self._last_ms, self._prior_ms)


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """The terms of equation 3.4 apart from the distribution, as of now."""

    lookup_ms: FloatArray
    """(K + 1,) float64: f(k), corrected."""
    recall: FloatArray
    """(K + 1,) float64: recall(k)."""
    miss_ms: float
    """L_miss."""
    indifference: float = 0.0
    """See `LookupCorrection.indifference`."""


class Measured(BaseModel):
    """What a profiler knows, for storing and for the next start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    miss_ms: float = Field(ge=0, allow_inf_nan=False)
    correction: float = Field(gt=0, allow_inf_nan=False)
    image_share: float = Field(ge=0, le=1)
    extraction_ms: float = Field(ge=0, allow_inf_nan=False)
    surplus_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # the forwarding overhead; stored so
    profile: CacheProfile


class Profiler:
    """Measures, from all threads of the daemon.

    Parameters
    ----------
    profile : CacheProfile
        What was measured offline.
    miss_latency : MissLatency
        The rolling mean of misses; used by nobody else from now on.
    """

    def __init__(self, profile: CacheProfile, miss_latency: MissLatency) -> None:
        self._lock = threading.Lock()
        self._miss_latency = miss_latency
        self._extraction_ms: deque[float] = deque(maxlen=_EXTRACTION_WINDOW)
        self._brought_image: deque[bool] = deque(maxlen=_EXTRACTION_WINDOW)
        self._overhead_ms: deque[float] = deque(maxlen=_EXTRACTION_WINDOW)
        self._correction = LookupCorrection()
        self._curves: ProfileCurves = profile.curves(0)
        self.profile = profile
        """The profile in force."""

    @property
    def miss_ms(self) -> float:
        """L_miss in ms."""
        with self._lock:
            return self._miss_latency.mean_ms

    @property
    def extraction_ms(self) -> float:
        """What it takes to get the features out of an image."""
        with self._lock:
            return _mean(self._extraction_ms, self.profile.extraction_ms)

    @property
    def correction(self) -> float:
        """Measured lookup times over those of the profile."""
        with self._lock:
            return self._correction.factor

    def measured(self) -> Measured | None:
        """What was measured, None before the first miss."""
        with self._lock:
            if not self._miss_latency.measured:
                return None
            return Measured(
                miss_ms=self._miss_latency.mean_ms,
                correction=self._correction.factor,
                image_share=_mean(self._brought_image),
                extraction_ms=_mean(self._extraction_ms, self.profile.extraction_ms),
                surplus_ms=_mean(self._overhead_ms),
                profile=self.profile,
            )

    def restore(self, measured: Measured, *, keep_profile: bool) -> None:
        """Begin where an earlier run ended.

        Parameters
        ----------
        measured : Measured
            What it knew.
        keep_profile : bool
            Stay with the present profile; the correction is taken over only if it is the same.
        """
        with self._lock:
            same = measured.profile.lookup_ms == self.profile.lookup_ms
            if not keep_profile:
                self.profile = measured.profile
                self._curves = self.profile.curves(0)
            if same or not keep_profile:
                self._correction = LookupCorrection(factor=measured.correction)
            self._miss_latency.refill(measured.miss_ms)
            images = round(measured.image_share * _EXTRACTION_WINDOW)
            self._brought_image.extend([True] * images + [False] * (_EXTRACTION_WINDOW - images))
            self._extraction_ms.extend([measured.extraction_ms] * _EXTRACTION_WINDOW)
            self._overhead_ms.extend([measured.surplus_ms] * _EXTRACTION_WINDOW)

    def use(self, profile: CacheProfile) -> None:
        """Replace the profile; the correction starts anew."""
        with self._lock:
            self.profile = profile
            self._curves = profile.curves(len(self._curves.lookup_ms) - 1)
            self._correction = LookupCorrection()

    def observe_miss(self, round_trip_ms: float) -> None:
        """The cloud gave its first answer to a miss after this time."""
        with self._lock:
            self._miss_latency.observe(round_trip_ms)

    def observe_lookup(self, k: int, lookup_ms: float) -> None:
        """A lookup in a cache of k objects took this time."""
        with self._lock:
            self._extend(k)
            self._correction.observe(lookup_ms, float(self._curves.lookup_ms[k]))

    def relax(self, requests: int) -> None:
        """As the cache is empty, no lookup tells how busy the machine is: forget slowly that it was busy.

        ``requests`` came since the last call.
        """
        with self._lock:
            self._correction.relax(requests)

    def observe_query(self, *, image: bool, overhead_ms: float = 0.0) -> None:
        """A request came, with an image or with features.

        ``overhead_ms`` is what an empty cache spends on it beyond a miss: see `CatalogueCache`.
        """
        with self._lock:
            self._brought_image.append(image)
            self._overhead_ms.append(overhead_ms)

    def observe_extraction(self, extraction_ms: float) -> None:
        """Getting the features out of an image took this time."""
        with self._lock:
            self._extraction_ms.append(extraction_ms)

    def costs(self, k_max: int) -> Costs:
        """What every cache size 0 … k_max costs now."""
        with self._lock:
            self._extend(k_max)
            lookup_ms = self._curves.lookup_ms[: k_max + 1] * self._correction.factor
            # A cache that is asked needs features; an empty one passes images on, or makes what it sends.
            extraction_ms = _mean(self._extraction_ms, self.profile.extraction_ms)
            lookup_ms[1:] += _mean(self._brought_image) * extraction_ms
            lookup_ms[0] += _mean(self._overhead_ms)
            return Costs(
                lookup_ms,
                self._curves.recall[: k_max + 1],
                self._miss_latency.mean_ms,
                self._correction.indifference,
            )

    def _extend(self, k: int) -> None:
        if k >= len(self._curves.lookup_ms):
            self._curves = self.profile.curves(2 * k)


def _mean(values: Collection[float], default: float = 0.0) -> float:
    return math.fsum(values) / len(values) if values else default
