"""What a lookup on the device and an answer of a tier cost now: the terms of equation 4.1 (section 4.4)."""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque

from nearsight.common.object_cache.profile import LookupCorrection
from nearsight.common.object_cache.rolling_mean import RollingMean
from nearsight.device.prefetching.avoidable_latency import AvoidableLatency
from nearsight.device.prefetching.decision import ExtractionCurves
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.device.prefetching.predictions import EdgeTimes

_STAYS_WINDOW = 30
_STAYS_AT_FIRST = 0.5
_SMALL, _PHOTOS = 3, 5


class DeviceProfiler:
    """Measures, from all threads of the SDK.

    The probability that the next photo shows the same object again is this device's own habit; the edge's
    predictions are about steps to other objects only.

    Parameters
    ----------
    profile : DeviceProfile
        What was measured offline.
    miss_latency : AvoidableLatency
        Of answers of tiers; used by nobody else from now on.
    """

    def __init__(self, profile: DeviceProfile, miss_latency: AvoidableLatency) -> None:
        self.profile = profile
        self._lock = threading.Lock()
        self._miss_latency = miss_latency
        self._transfer = PhotoTransfer()
        self._correction = LookupCorrection()
        self._stays = RollingMean(_STAYS_WINDOW, _STAYS_AT_FIRST)
        self._plain = {one.query_features: one for one in profile.curves(profile.profiles[0].largest_k)}

    @property
    def miss_ms(self) -> float:
        """L_Net + L_Edge in ms, of answers that a larger cache would have saved."""
        with self._lock:
            return self._miss_latency.median_ms

    @property
    def miss_why(self) -> str:
        """The same, and what it rests on, for a person."""
        with self._lock:
            return self._miss_latency.why

    @property
    def correction(self) -> float:
        """Measured times of extraction and lookup over those of the profile."""
        with self._lock:
            return self._correction.factor

    @property
    def stays(self) -> float:
        """Probability that the next photo is of the same object."""
        with self._lock:
            return self._stays.mean

    def observe_answer(
        self, round_trip_ms: float, tier_ms: float, *, avoidable: bool, transfer_ms: float | None = None
    ) -> None:
        """A tier answered after this time: see `AvoidableLatency.observe`.

        ``transfer_ms`` is the part on the network of an answer of the edge, which says later what a photo
        takes; None for other tiers.
        """
        tier_ms = max(0.0, tier_ms)
        with self._lock:
            if transfer_ms is not None:
                self._transfer.observe_photo(transfer_ms)
            reports = transfer_ms is not None
            self._miss_latency.observe(
                max(tier_ms, round_trip_ms), tier_ms, avoidable=avoidable, reports=reports
            )

    def observe_edge(self, now: EdgeTimes) -> None:
        """The edge answered a report, and said what a photo takes there now."""
        with self._lock:
            self._transfer.observe_small(now.transfer_ms)
            transfer_ms = self._transfer.expected_ms
            if transfer_ms is not None:
                self._miss_latency.refreshed(transfer_ms + now.answer_ms)

    def observe_lookup(self, k: int, query_features: int, spent_ms: float) -> None:
        """Decoding, extraction and lookup among k objects took this time."""
        curves = self._plain.get(query_features)
        if curves is None:
            return
        predicted_ms = float(curves.lookup_ms[min(k, len(curves.lookup_ms) - 1)])
        with self._lock:
            self._correction.observe(spent_ms, predicted_ms)

    def observe_step(self, *, same_object: bool) -> None:
        """Another photo was recognised, of the object before or of another one."""
        with self._lock:
            self._stays.observe(float(same_object))

    def relax(self) -> None:
        """No lookup tells how busy the machine is, as the cache is empty: forget slowly that it was busy."""
        with self._lock:
            self._correction.relax()

    def curves(self, k_max: int) -> tuple[ExtractionCurves, ...]:
        """f_D(k) and recall_D(k) for every number of features, as of now."""
        return self.profile.curves(k_max, self.correction)


class PhotoTransfer:
    """Transfer time of a photo to a tier and back, told from small messages where few photos are sent.

    Without what is computed there. What a photo takes more than a small message, mostly for its bytes, is
    measured whenever both are sent soon after each other, and lasts. The time of a small message is fresh
    with each one. A line over sizes as in `LinkEstimate` would not do: photos are all of one size, and many
    small messages would make it forget them.
    """

    def __init__(self) -> None:
        self._small_ms: deque[float] = deque(maxlen=_SMALL)
        self._unpaired_ms: deque[float] = deque(maxlen=_PHOTOS)
        self._surplus_ms: deque[float] = deque(maxlen=_PHOTOS)

    @property
    def expected_ms(self) -> float | None:
        """Of a photo that is sent now; None before a photo and a small message after it."""
        if not self._surplus_ms:
            return None
        return statistics.median_low(self._small_ms) + statistics.median(self._surplus_ms)

    def observe_photo(self, transfer_ms: float) -> None:
        """A photo was on its way so long; times that are negative or not finite are ignored."""
        if 0 <= transfer_ms < math.inf:
            self._unpaired_ms.append(transfer_ms)

    def observe_small(self, transfer_ms: float) -> None:
        """A message of a few hundred bytes was; the same."""
        if not 0 <= transfer_ms < math.inf:
            return
        self._small_ms.append(transfer_ms)
        small_ms = statistics.median_low(self._small_ms)
        self._surplus_ms.extend(max(0.0, photo_ms - small_ms) for photo_ms in self._unpaired_ms)
        self._unpaired_ms.clear()
