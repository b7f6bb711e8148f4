"""What a hit of a device's cache saves: L_miss of equation 4.1, without the photos that nobody could hit.

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
from collections import deque
from dataclasses import dataclass

from nearsight.common.errors import InvalidArgument

TRUSTED = 3
"""Until so many answers are known, those that are missing count as the time of the tier alone."""
_SAMPLES = 3
"""Of reports and photos, the last ones say what the tier takes now: one slow report changes nothing."""


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
