"""Chooses the blocks of a frame that are computed now, so that frames stay within a time budget.

Without a budget every block that is not matched is computed at once, and one of N frames is computed whole.
These are the slowest frames. Under a budget one part of the frame expires at a time, early enough that each
block is recomputed before its pixels are N frames old. If the changed blocks do not fit into the budget,
blocks slightly below the threshold are postponed, except in the part of the frame that differs most. Their
effective threshold thus falls, down to `LOOSEST_DB`. It never falls where an application requires accuracy
(``strict``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nearsight.common.video.matching import Blocks, Match, Offset
from nearsight.common.video.regions import Rectangle, covering

LOOSEST_DB = 14.0
"""Blocks whose PSNR is below this limit are never postponed."""
_PARTS = ((1, 1), (2, 1), (2, 2))
"""Divisions (rows, columns) of the frame into parts that expire at once. Smaller parts save little: crops
need margins, and the layers after the convolutions are computed for each part (decision 057)."""
_WEIGHT, _DECREASE_DIVISOR = 0.2, 8.0
"""Weight of the newest frame in the mean ratio of measured to expected time; divisor for faster frames."""
_LEAST_RATIO, _MOST_RATIO = 0.1, 2.0
"""Limits of the ratio that is recorded for a frame; the upper one is relative to the mean."""

Part = tuple[slice, slice]
_NOTHING: Part = (slice(0, 0), slice(0, 0))
ExpectedMs = Callable[[Sequence[Rectangle], Offset], float]
"""Returns the expected time of a frame [ms], given its changed rectangles [pixels] and the offset."""


class TimeBudget:
    """Stores the age of each block, and chooses the blocks to compute.

    Parameters
    ----------
    grid : Blocks
        (R, C) blocks.
    expiry : int
        N: the pixels of each block are those of one of the last N frames, or equal to them.
    regions : int
        Maximum number of rectangles that cover the computed blocks.

    Attributes
    ----------
    loosest_db : float
        Lower limit of the effective threshold; may be changed between frames.
    """

    def __init__(self, grid: Blocks, expiry: int, regions: int) -> None:
        self.loosest_db = LOOSEST_DB
        self._grid, self._expiry, self._regions = grid, expiry, regions
        self._ages = np.zeros((grid.rows, grid.columns), np.int64)
        self._parts = [self._divide(*sides) for sides in _PARTS]
        self._parts_ms: list[float] = []
        self._time_ratio = 1.0

    def choose(
        self,
        match: Match,
        errors: NDArray[np.float32],
        strict: NDArray[np.bool_],
        budget_ms: float,
        expected_ms: ExpectedMs,
    ) -> tuple[Rectangle, ...]:
        """Choose the blocks of the next frame to compute.

        Parameters
        ----------
        match : Match
            Result at the current threshold.
        errors : ndarray, (R, C)
            Result of `Blocks.squared_errors` at the match's offset.
        strict : ndarray, (R, C)
            Blocks that must not be postponed.
        budget_ms : float
            Time available for computing them, as it will be measured.
        expected_ms : callable

        Returns
        -------
        Disjoint rectangles of blocks, as many as fit into the budget. They exceed it if the blocks that must
        not be postponed do.
        """
        budget_ms /= self._time_ratio
        self._ages = np.where(errors == 0, 0, self._ages_at(match.offset) + 1)
        unmatched = ~match.matched
        required = unmatched & (strict | (errors >= self._grid.limits(self.loosest_db)))
        required |= self._ages >= self._expiry
        expiring = self._expiring_part(budget_ms, expected_ms)
        required[expiring] = True

        def fitting(chosen: NDArray[np.bool_]) -> tuple[tuple[Rectangle, ...], float]:
            boxes = covering(chosen, self._regions)
            return boxes, expected_ms([self._grid.region(box) for box in boxes], match.offset)

        most, *fewer = _candidates(required, unmatched, errors, self._parts[1:])
        boxes, ms = fitting(most)
        if ms <= budget_ms:
            return boxes
        least, least_ms = fitting(required)
        for chosen in fewer if least_ms <= budget_ms else ():
            boxes, ms = fitting(chosen)
            if ms <= budget_ms:
                return boxes
        return least

    def note(self, computed: NDArray[np.bool_] | None = None) -> None:
        """Record that these blocks (R, C) were computed from the newest frame; None: all blocks."""
        self._ages[... if computed is None else computed] = 0

    def note_time(self, measured_ms: float, expected_ms: float) -> None:
        """Record the measured and the expected time of a frame, to correct later expectations."""
        mean = self._time_ratio
        ratio = min(max(measured_ms / max(expected_ms, 1e-3), _LEAST_RATIO), _MOST_RATIO * mean)
        self._time_ratio += _WEIGHT * (ratio - mean) / (1 if ratio > mean else _DECREASE_DIVISOR)

    def _expiring_part(self, budget_ms: float, expected_ms: ExpectedMs) -> Part:
        """The part that must expire now, so that none expires too late, one part per frame; may be empty."""
        if not self._parts_ms:
            self._parts_ms = [expected_ms([self._region(parts[0])], (0, 0)) for parts in self._parts]
        fitting = [parts for parts, ms in zip(self._parts, self._parts_ms, strict=True) if ms <= budget_ms]
        parts = (fitting or self._parts[-1:])[0]
        oldest = sorted(((int(self._ages[part].max()), part) for part in parts), key=lambda one: -one[0])
        latest = max((age + after for after, (age, _) in enumerate(oldest) if age), default=0)
        return oldest[0][1] if latest >= self._expiry else _NOTHING

    def _divide(self, rows: int, columns: int) -> list[Part]:
        downs, rights = (
            [slice(count * one // among, count * (one + 1) // among) for one in range(among)]
            for count, among in zip(self._ages.shape, (rows, columns), strict=True)
        )
        parts = [(down, right) for down in downs for right in rights]
        return [part for part in parts if self._ages[part].size]  # a grid may have only one row or column

    def _region(self, part: Part) -> Rectangle:
        down, right = part
        return self._grid.region(Rectangle(down.start, right.start, down.stop, right.stop))

    def _ages_at(self, offset: Offset) -> NDArray[np.int64]:
        """Ages at an offset. A block's age is the highest of the blocks from which its pixels come."""
        if offset == (0, 0):
            return self._ages
        ages, px = self._ages, self._grid.block_px
        for axis, (count, size) in enumerate(
            zip(ages.shape, (self._grid.height, self._grid.width), strict=True)
        ):
            first = px * np.arange(count) + offset[axis]
            last = np.minimum(first + px, size + offset[axis]) - 1
            ends = [np.clip(at // px, 0, count - 1) for at in (first, last)]
            ages = np.maximum(*(np.take(ages, at, axis) for at in ends))
        return ages


def _candidates(
    required: NDArray[np.bool_],
    unmatched: NDArray[np.bool_],
    errors: NDArray[np.float32],
    parted: Sequence[Sequence[Part]],
) -> Iterator[NDArray[np.bool_]]:
    """Candidate sets, largest first. The smaller ones add the unmatched blocks of one part to the required.

    A set of scattered unmatched blocks would take as long as all of them.
    """
    yield required | unmatched
    waiting = np.where(unmatched & ~required, errors, 0)
    for parts in parted if waiting.any() else ():
        worst, fewer = max(parts, key=lambda part: float(waiting[part].sum())), required.copy()
        fewer[worst] |= unmatched[worst]
        yield fewer
