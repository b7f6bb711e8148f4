"""Moves the threshold of reuse by how far outputs deviate, which is measured on a sample of the frames.

Blocks match if they are similar, not only if they are equal, so reused outputs deviate. How far depends on
the network and the video. Above a bound the threshold rises, so that fewer blocks match; where that does not
help, the reuse pauses. Below half of the bound it falls, so that more blocks match (decision 061).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearsight.common.inference.tensors import Tensor

_STEP_DB = 3.0
_LEAST_DB, _MOST_DB = -6.0, 15.0
"""The threshold falls and rises by so much at most; above, the reuse pauses."""
_PAUSE_FRAMES = 100


def deviation_of(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """How far two answers differ: ‖found - expected‖ / ‖expected‖, of the output where it is largest."""
    largest = 0.0
    for name, values in expected.items():
        wanted = np.asarray(values, np.float64)
        difference = float(np.linalg.norm(np.asarray(found[name], np.float64) - wanted))
        largest = max(largest, difference / max(float(np.linalg.norm(wanted)), 1e-12))
    return largest


class DriftGuard:
    """What a session may reuse, by the deviations that it measured.

    Parameters
    ----------
    most_deviation : float
        The bound, as a share of the output's norm.

    Attributes
    ----------
    moved_db : float
        To be added to the threshold; below 0 more is reused.
    settled : bool
        The last measurement left the threshold where it was.
    """

    def __init__(self, most_deviation: float) -> None:
        self._most = most_deviation
        self.moved_db = 0.0
        self.settled = True
        self._pause = 0

    def note(self, deviation: float) -> None:
        """Take up one that was measured."""
        before_db = self.moved_db
        if not deviation <= self._most:  # not a number is not small
            if before_db >= _MOST_DB:
                self._pause = _PAUSE_FRAMES
            self.moved_db = min(before_db + _STEP_DB, _MOST_DB)
        elif deviation < self._most / 2:
            self.moved_db = max(before_db - _STEP_DB, _LEAST_DB)
        self.settled = self.moved_db == before_db

    def pauses(self) -> bool:
        """Whether the next frame must be executed whole; to be asked once for each."""
        self._pause = max(self._pause - 1, 0)
        return self._pause > 0
