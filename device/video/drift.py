"""Adjusts the threshold of block matching to the measured deviation of outputs.

Blocks match if they are similar, not only if they are equal. Outputs that reuse them therefore deviate, by an
amount that depends on the network and the video. The deviation is measured for a sample of the frames. Above
a bound the threshold rises, so that fewer blocks match; if the maximum is reached, reuse pauses. Below half
of the bound the threshold falls, and faster below a quarter, so that more blocks match (decision 061).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nearsight.common.inference.tensors import Tensor

_STEP_DB = 3.0
_LEAST_DB, _MOST_DB = -6.0, 15.0
"""Limits of the change of the threshold. If the deviation is too large at the upper limit, reuse pauses."""
_PAUSE_FRAMES = 100


def deviation_of(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Relative difference ‖found - expected‖ / ‖expected‖ of the output for which it is largest.

    Equal elements may be infinite or NaN. The result is infinite if others are. Detectors may find different
    numbers of objects; elements that one of both outputs lacks count as 0.
    """
    largest = 0.0
    for name, values in expected.items():
        given, wanted = (np.asarray(one, np.float64) for one in (found[name], values))
        if given.shape != wanted.shape:
            both = np.maximum(given.shape, wanted.shape)
            given, wanted = (np.pad(one, [(0, more) for more in both - one.shape]) for one in (given, wanted))
        differ = (given != wanted) & ~(np.isnan(given) & np.isnan(wanted))
        difference = float(np.linalg.norm(given[differ] - wanted[differ]))
        norm = float(np.linalg.norm(wanted[np.isfinite(wanted)]))
        largest = max(largest, difference / max(norm, 1e-12) if math.isfinite(difference) else math.inf)
    return largest


class DriftGuard:
    """Controls how much a session may reuse, from its measured deviations.

    Parameters
    ----------
    most_deviation : float
        Bound of the deviation, as a share of the output's norm.

    Attributes
    ----------
    adjustment_db : float
        Amount to add to the threshold. Negative values allow more reuse.
    settled : bool
        Whether the last measurement left the threshold unchanged.
    """

    def __init__(self, most_deviation: float) -> None:
        self._most = most_deviation
        self.adjustment_db = 0.0
        self.settled = True
        self._pause = 0

    def note(self, deviation: float) -> None:
        """Record a measured deviation, and adjust the threshold."""
        before_db = self.adjustment_db
        if not deviation <= self._most:  # NaN counts as too large
            if before_db >= _MOST_DB:
                self._pause = _PAUSE_FRAMES
            self.adjustment_db = min(before_db + _STEP_DB, _MOST_DB)
        elif deviation < self._most / 2:  # 6 dB double the largest difference of a block that matches
            steps = 2 if deviation < self._most / 4 else 1
            self.adjustment_db = max(before_db - steps * _STEP_DB, _LEAST_DB)
        self.settled = self.adjustment_db == before_db

    @property
    def paused(self) -> bool:
        """Whether reuse pauses; `pauses` ends the pause."""
        return self._pause > 0

    def pauses(self) -> bool:
        """Whether the next frame must be executed whole because reuse pauses. Call once per frame."""
        self._pause = max(self._pause - 1, 0)
        return self._pause > 0
