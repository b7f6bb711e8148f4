"""What a lookup on the device and an answer of a tier cost now: the terms of equation 4.1 (section 4.4).

L_miss is what a hit would save (`AvoidableLatency`), without the photos that nobody could hit.

The dissertation takes the mean round trip of the last photos that the device did not know. Those are a
selection: once the device holds the objects around it, most of them show what is in no catalogue, or are so
poor that a tier looks twice. They cost the same whatever the device holds. With them in L_miss, a device that
needs 40 ms for a lookup goes on looking although its edge would answer in 12 ms: it holds the 180 ms of the
few photos that reach the cloud for the price of all of them.

So an answer counts with all of its time only if a larger cache could have saved it. Of the others only the
time of the tier that was asked counts: its link, queue and computing are the same for all photos, and a
device that hits nearly always would hear of them from nowhere else. The median of the window is taken, as
some photos that a larger cache would *not* have known cannot be told apart: the device held nothing, and the
tier does not say that it looked twice. They are a minority, and each takes many times as long as the others.

A device that hits nearly always would keep the times of its first, perhaps crowded, seconds for ever. But it
reports its hits, and is told what a photo would take now. That replaces the tier's part of all answers
before; what lies behind the tier stays as it was measured.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from dataclasses import dataclass

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import LookupCorrection, RollingMean
from nearsight.device.prefetching.decision import ExtractionCurves
from nearsight.device.prefetching.device_profile import DeviceProfile
from nearsight.device.prefetching.predictions import EdgeTimes

TRUSTED = 3
"""Until so many answers are known, those that are missing count as the time of the tier alone."""
_SAMPLES = 3
"""Of reports and photos, the last ones say what the tier takes now: one slow report changes nothing."""
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

    Attributes
    ----------
    correction : float
        Measured times of extraction and lookup over those of the profile.
    stays : float
        Probability that the next photo is of the same object.
    """

    def __init__(self, profile: DeviceProfile, miss_latency: AvoidableLatency) -> None:
        self.profile = profile
        self._lock = threading.Lock()
        self._miss_latency = miss_latency
        self._transfer = PhotoTransfer()
        self._correction = LookupCorrection()
        self._stays = RollingMean(_STAYS_WINDOW, _STAYS_AT_FIRST)
        self.correction, self.stays = self._correction.factor, self._stays.mean
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
            self.correction = self._correction.factor

    def observe_step(self, *, same_object: bool) -> None:
        """Another photo was recognised, of the object before or of another one."""
        with self._lock:
            self._stays.observe(float(same_object))
            self.stays = self._stays.mean

    def relax(self) -> None:
        """No lookup tells how busy the machine is, as the cache is empty: forget slowly that it was busy."""
        with self._lock:
            self._correction.relax()
            self.correction = self._correction.factor

    def curves(self, k_max: int) -> tuple[ExtractionCurves, ...]:
        """f_D(k) and recall_D(k) for every number of features, as of now."""
        return self.profile.curves(k_max, self.correction)


@dataclass(slots=True)
class _Answer:
    """A photo that was answered: what counts of its time, the tier's part of that, and who said so."""

    counted_ms: float
    tier_ms: float
    avoidable: bool
    reports: bool
    told: bool = False


class AvoidableLatency:
    """The time of an answer that a hit would have saved, never undefined.

    Parameters
    ----------
    prior_ms : float
        Assumed before the first answer.
    window : int
        Over how many of the last answers the median is taken; the dissertation's mean is over 10.

    Raises
    ------
    InvalidArgument
        If ``prior_ms`` is negative or not finite, or ``window`` is below 1.

    Notes
    -----
    Source: Cachier dissertation, section 4.4; who asks for what differs, see above.
    """

    def __init__(self, prior_ms: float = 100.0, window: int = 10) -> None:
        if not 0 <= prior_ms < math.inf:
            raise InvalidArgument(f"the prior latency must be finite and not negative, got {prior_ms} ms")
        if window < 1:
            raise InvalidArgument(f"the window must hold at least one answer, got {window}")
        self._prior_ms = prior_ms
        self._window = window
        self._answers: deque[_Answer] = deque(maxlen=window)
        self._now_ms: deque[float] = deque(maxlen=_SAMPLES)

    def observe(
        self, round_trip_ms: float, tier_ms: float, *, avoidable: bool, reports: bool = False
    ) -> None:
        """A photo was answered.

        Parameters
        ----------
        round_trip_ms : float
            From the question to the answer.
        tier_ms : float
            The same without the tiers behind the one that was asked.
        avoidable : bool
            Whether a larger cache could have known: an object was recognised at once, and it is none of
            those that the device looked for.
        reports : bool
            Whether it was the tier that says from time to time what a photo takes now; see `refreshed`.

        Raises
        ------
        InvalidArgument
            If a time is negative or not finite.
        """
        if not 0 <= tier_ms <= round_trip_ms < math.inf:
            raise InvalidArgument(
                f"an answer takes a finite time, at least that of its tier; got {round_trip_ms}, {tier_ms} ms"
            )
        self._answers.append(_Answer(round_trip_ms if avoidable else tier_ms, tier_ms, avoidable, reports))
        if reports:
            self._now_ms.append(tier_ms)

    def refreshed(self, tier_ms: float) -> None:
        """A photo would take this long at the tier now: answers of that tier count as if they had come now.

        The median of the last three such times and photos is believed, of two the lower one: a device that
        takes its tier for quicker than it is asks it, and finds out.

        Raises
        ------
        InvalidArgument
            If the time is negative or not finite.
        """
        if not 0 <= tier_ms < math.inf:
            raise InvalidArgument(f"a photo takes a finite time, got {tier_ms} ms")
        self._now_ms.append(tier_ms)
        now_ms = statistics.median_low(self._now_ms)
        for answer in self._answers:
            if answer.reports:
                answer.counted_ms = now_ms + max(0.0, answer.counted_ms - answer.tier_ms)
                answer.tier_ms = now_ms
                answer.told = True

    @property
    def median_ms(self) -> float:
        """L_miss in ms."""
        if not self._answers:
            return self._prior_ms
        known, least_ms = [], math.inf
        for answer in self._answers:
            known.append(answer.counted_ms)
            least_ms = min(least_ms, answer.tier_ms)
        # One slow answer may be of a photo that nobody knows; on its word the device would look for itself,
        # hit, and ask nobody again.
        missing = min(TRUSTED, self._window) - len(known)
        return statistics.median(known + [least_ms] * missing)

    @property
    def why(self) -> str:
        """What it rests on, for a person."""
        if not self._answers:
            return f"{self._prior_ms:.1f} ms, assumed"
        answers, whole = len(self._answers), sum(answer.avoidable for answer in self._answers)
        told = [answer.tier_ms for answer in self._answers if answer.told]
        why = f"{self.median_ms:.1f} ms, median of {answers} answers; {whole} of them a hit would have saved"
        return f"{why}; {len(told)} at the {told[0]:.1f} ms that the edge takes now" if told else why


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
