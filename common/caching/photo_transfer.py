"""How long a photo is on its way now, told from small messages where few photos are sent.

What a photo takes more than a small message, mostly for its bytes, is measured whenever both are sent soon
after each other, and lasts. The time of a small message is fresh with each one. A line over sizes as in
`LinkEstimate` would not do: photos are all of one size, and many small messages would make it forget them.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

_SMALL, _PHOTOS = 3, 5


class PhotoTransfer:
    """Transfer time of a photo to a tier and back, without what is computed there."""

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
