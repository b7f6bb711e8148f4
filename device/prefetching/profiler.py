"""Current costs of a lookup on the device and of a tier's answer: the terms of equation 4.1 (4.4).

L_miss is the latency that a hit would save (`AvoidableLatency`). Of photos that no cache could have answered,
only a part of the time counts.

The dissertation uses the mean round trip of the last misses. Misses are a biased sample: once the device
holds the objects nearby, most misses show objects of no catalogue, or are so poor that a tier needs a second
attempt. Their latency does not depend on the cache. If L_miss included them, a device with a lookup time of
40 ms would continue to look up photos although its edge would answer in 12 ms: the 180 ms of the few photos
that reach the cloud would count for all photos.

Therefore the full time of an answer counts only if a larger cache could have avoided it. Of other answers
only the time of the tier that was asked counts: its link, queue and computation are the same for all photos,
and a device with a high hit ratio has no other measurements of them. The median of the window is used,
because some photos that a larger cache would *not* have recognised cannot be identified: the device held
nothing, and the tier does not report its second attempt. They are a minority, and each takes many times as
long as the others.

A device with a high hit ratio would keep the times of its first, perhaps congested seconds forever. But it
reports its hits to the edge, and receives the current time of a photo there. This time replaces the tier's
part of all earlier answers; the part behind the tier remains as measured.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from dataclasses import dataclass

from nearsight.common.object_cache.profile import LookupCorrection, RollingMean
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.device.prefetching.predictions import EdgeTimes

TRUSTED = 3
"""Number of answers that the median needs; missing ones are replaced by the lowest time of the tier alone."""
_SAMPLES = 3
"""Number of last reports and photos that determine the tier's current time, so that one slow report has no
effect."""
_STAYS_WINDOW = 30
_STAYS_AT_FIRST = 0.5
_SMALL, _PHOTOS = 3, 5


class DeviceProfiler:
    """Measures latencies and steps. Thread-safe.

    The probability that the next photo shows the same object again is measured here; the edge's predictions
    contain only steps to other objects.

    Parameters
    ----------
    profile : DeviceProfile
        The costs measured in advance.
    miss_prior_ms, miss_window
        As for `AvoidableLatency`.

    Attributes
    ----------
    lookups, hits : int
        Number of photos that were looked up, and of hits among them.
    """

    def __init__(self, profile: DeviceProfile, miss_prior_ms: float = 100.0, miss_window: int = 10) -> None:
        self.profile = profile
        self._lock = threading.Lock()
        self._miss_latency = AvoidableLatency(miss_prior_ms, miss_window)
        self._transfer = PhotoTransfer()
        self._correction = LookupCorrection()
        self._stays = RollingMean(_STAYS_WINDOW, _STAYS_AT_FIRST)
        self.lookups = self.hits = 0
        self._curves = profile.curves(profile.profiles[0].largest_k)  # extended to larger caches when needed

    @property
    def miss_ms(self) -> float:
        """L_Net + L_Edge: median time of an answer that a larger cache would have saved [ms]."""
        with self._lock:
            return self._miss_latency.median_ms

    @property
    def miss_why(self) -> str:
        """L_miss with its samples, as a text for people."""
        with self._lock:
            return self._miss_latency.why

    @property
    def correction(self) -> float:
        """Ratio of measured times of extraction and lookup to those of the profile."""
        return self._correction.factor

    @property
    def stays(self) -> float:
        """Probability that the next photo shows the same object."""
        return self._stays.mean

    def observe_answer(
        self, round_trip_ms: float, tier_ms: float, *, avoidable: bool, transfer_ms: float | None = None
    ) -> None:
        """Record the time of an answer of a tier: see `AvoidableLatency.observe`.

        ``transfer_ms`` is the network part of an answer of the edge, which later reports the time of a photo;
        None for other tiers.
        """
        tier_ms = min(max(0.0, tier_ms), round_trip_ms)  # a faulty tier may report any time
        reports = transfer_ms is not None
        with self._lock:
            if transfer_ms is not None:
                self._transfer.observe_photo(transfer_ms)
            self._miss_latency.observe(round_trip_ms, tier_ms, avoidable=avoidable, reports=reports)

    def observe_edge(self, now: EdgeTimes) -> None:
        """Record the current time of a photo at the edge, from its answer to a report."""
        with self._lock:
            self._transfer.observe_small(now.transfer_ms)
            transfer_ms = self._transfer.expected_ms
            if transfer_ms is not None:
                self._miss_latency.refreshed(transfer_ms + now.answer_ms)

    def observe_lookup(self, k: int, query_features: int, spent_ms: float | None, *, hit: bool) -> None:
        """Record a lookup among k objects, and the time of decoding, extraction and lookup.

        The time is None if the features were extracted elsewhere.
        """
        with self._lock:
            self.lookups += 1
            self.hits += hit
            if spent_ms is None:
                return
            if k >= len(self._curves[0].lookup_ms):
                self._curves = self.profile.curves(2 * k)
            for curves in self._curves:
                if curves.query_features == query_features:
                    self._correction.observe(spent_ms, float(curves.lookup_ms[k]))

    def observe_step(self, *, same_object: bool) -> None:
        """Record that a photo was recognised, of the same object as before or of another one."""
        with self._lock:
            self._stays.observe(float(same_object))

    def relax(self) -> None:
        """Reduce the correction gradually towards 1 while the cache is empty and there are no lookups."""
        with self._lock:
            self._correction.relax()


@dataclass(slots=True)
class _Answer:
    """An answered photo: the time that counts, the tier's part of it, and its kind."""

    counted_ms: float
    tier_ms: float
    avoidable: bool
    reports: bool
    updated: bool = False


class AvoidableLatency:
    """The time of an answer that a hit would have saved; always defined.

    Parameters
    ----------
    prior_ms : float
        Value before the first answer.
    window : int
        Number of last answers of which the median is taken; the dissertation's program takes the mean of 10.

    Notes
    -----
    Source: Cachier dissertation, section 4.4; the selection of answers differs, see the module's docstring.
    """

    def __init__(self, prior_ms: float = 100.0, window: int = 10) -> None:
        self._prior_ms = prior_ms
        self._window = window
        self._answers: deque[_Answer] = deque(maxlen=window)
        self._now_ms: deque[float] = deque(maxlen=_SAMPLES)

    def observe(
        self, round_trip_ms: float, tier_ms: float, *, avoidable: bool, reports: bool = False
    ) -> None:
        """Record an answer to a photo.

        Parameters
        ----------
        round_trip_ms : float
            From the request to the answer.
        tier_ms : float
            The same without the tiers behind the one that was asked.
        avoidable : bool
            Whether a larger cache could have answered: an object was recognised at the first attempt, and it
            is not among those that the device looked for.
        reports : bool
            Whether the tier regularly reports the current time of a photo; see `refreshed`.
        """
        self._answers.append(_Answer(round_trip_ms if avoidable else tier_ms, tier_ms, avoidable, reports))
        if reports:
            self._now_ms.append(tier_ms)

    def refreshed(self, tier_ms: float) -> None:
        """Update all answers of the reporting tier to its current time of a photo.

        The median of the last three such times and photos is used, of two the lower one: a device that
        underestimates the time asks the tier, and thereby measures it.
        """
        self._now_ms.append(tier_ms)
        now_ms = statistics.median_low(self._now_ms)
        for answer in self._answers:
            if answer.reports:
                answer.counted_ms = now_ms + max(0.0, answer.counted_ms - answer.tier_ms)
                answer.tier_ms = now_ms
                answer.updated = True

    @property
    def median_ms(self) -> float:
        """L_miss in ms."""
        if not self._answers:
            return self._prior_ms
        known = [answer.counted_ms for answer in self._answers]
        least_ms = min(answer.tier_ms for answer in self._answers)
        # One slow answer may belong to a photo that no cache could have answered. Without further values the
        # device would look up photos itself, hit, and never ask the tier again.
        missing = min(TRUSTED, self._window) - len(known)
        return statistics.median(known + [least_ms] * missing)

    @property
    def why(self) -> str:
        """The value with its samples, as a text for people."""
        if not self._answers:
            return f"{self._prior_ms:.1f} ms, assumed"
        answers, whole = len(self._answers), sum(answer.avoidable for answer in self._answers)
        updated = [answer.tier_ms for answer in self._answers if answer.updated]
        why = f"{self.median_ms:.1f} ms, median of {answers} answers; a hit would have saved {whole} of them"
        return f"{why}; {len(updated)} at the {updated[0]:.1f} ms that the edge takes now" if updated else why


class PhotoTransfer:
    """Transfer time of a photo to a tier and back, estimated from small messages if few photos are sent.

    Excludes computation at the tier. The additional time of a photo compared with a small message, mostly due
    to its bytes, is measured whenever both are sent shortly after each other, and kept. The time of a small
    message is updated with each one. A line over sizes as in `LinkEstimate` does not work: all photos have
    the same size, and many small messages would displace them.
    """

    def __init__(self) -> None:
        self._small_ms: deque[float] = deque(maxlen=_SMALL)
        self._unpaired_ms: deque[float] = deque(maxlen=_PHOTOS)
        self._surplus_ms: deque[float] = deque(maxlen=_PHOTOS)

    @property
    def expected_ms(self) -> float | None:
        """Estimate for a photo that is sent now [ms]; None before a photo and a small message after it."""
        if not self._surplus_ms:
            return None
        return statistics.median_low(self._small_ms) + statistics.median(self._surplus_ms)

    def observe_photo(self, transfer_ms: float) -> None:
        """Record the transfer time of a photo; times that are negative or not finite are ignored."""
        if 0 <= transfer_ms < math.inf:
            self._unpaired_ms.append(transfer_ms)

    def observe_small(self, transfer_ms: float) -> None:
        """Record the transfer time of a message of a few hundred bytes; invalid times are ignored."""
        if not 0 <= transfer_ms < math.inf:
            return
        self._small_ms.append(transfer_ms)
        small_ms = statistics.median_low(self._small_ms)
        self._surplus_ms.extend(max(0.0, photo_ms - small_ms) for photo_ms in self._unpaired_ms)
        self._unpaired_ms.clear()
