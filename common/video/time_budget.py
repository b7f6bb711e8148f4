"""Which blocks of a frame are computed now and which later, so that frames keep to a budget of time.

Without a budget each block that does not match is computed at once, and of N frames one is computed whole.
Such frames are the slowest. Under a budget blocks expire a part of the frame at a time, when there is time to
spare but before their pixels are N frames old. Where all does not fit, blocks that hardly match wait; those
that differ most wait least. So their threshold falls, down to `LOOSEST_DB`. Where an application looks it
never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nearsight.common.video.matching import Blocks, Match, Offset
from nearsight.common.video.regions import Rectangle, covering

LOOSEST_DB = 14.0
"""No block waits whose PSNR is below it."""
_PARTS = ((1, 1), (2, 1), (2, 2))
"""Rows and columns of parts that expire at once. Smaller ones save little: crops need margins, and what
follows the convolutions is computed for each (decision 057)."""
_SPARE_FRAMES = 5
"""Parts are computed a fifth of N before they must be, as some frames have no time to spare."""

ExpectedMs = Callable[[Sequence[Rectangle], Offset], float]
"""What a frame takes of which these rectangles changed [pixels], at this offset [ms]."""


class TimeBudget:
    """The ages of all blocks, and the choice of those that are computed.

    Parameters
    ----------
    grid : Blocks
        (R, C) blocks.
    expiry : int
        N: the pixels of each block are those of one of the last N frames, or equal to them.
    regions : int
        Rectangles that cover what is computed, at most.

    Attributes
    ----------
    loosest_db : float
        No threshold falls below it; may be changed between frames.
    """

    def __init__(self, grid: Blocks, expiry: int, regions: int) -> None:
        self.loosest_db = LOOSEST_DB
        self._grid, self._expiry, self._regions = grid, expiry, regions
        self._spare = -(-expiry // _SPARE_FRAMES)
        self._ages = np.zeros((grid.rows, grid.columns), np.int64)

    def choose(
        self,
        match: Match,
        errors: NDArray[np.float32],
        strict: NDArray[np.bool_],
        budget_ms: float,
        expected_ms: ExpectedMs,
    ) -> tuple[Rectangle, ...]:
        """Which blocks of the next frame to compute.

        Parameters
        ----------
        match : Match
            What matched at the threshold in force.
        errors : ndarray, (R, C)
            As of `Blocks.squared_errors` at the match's offset.
        strict : ndarray, (R, C)
            Blocks that do not wait.
        budget_ms : float
            For what is computed.
        expected_ms : callable

        Returns
        -------
        Disjoint rectangles of blocks, as many as fit. They take longer than the budget where blocks that must
        not wait do.
        """
        self._ages = np.where(errors == 0, 0, self._moved(match.offset) + 1)
        late = ~match.matched
        must = late & (strict | (errors >= self._grid.limits(self.loosest_db)))
        must |= self._ages >= self._expiry
        boxes: tuple[Rectangle, ...] = ()
        for chosen in self._choices(must, late, errors, self._due(budget_ms, expected_ms)):
            boxes = covering(chosen, self._regions)
            if expected_ms([self._grid.region(box) for box in boxes], match.offset) <= budget_ms:
                break
        return boxes

    def note(self, computed: NDArray[np.bool_] | None = None) -> None:
        """These blocks (R, C) were computed from the newest frame; None: all of it."""
        self._ages[... if computed is None else computed] = 0

    def _choices(
        self,
        must: NDArray[np.bool_],
        late: NDArray[np.bool_],
        errors: NDArray[np.float32],
        due: NDArray[np.bool_],
    ) -> Iterator[NDArray[np.bool_]]:
        """From the most blocks to the fewest."""
        wait = late & ~must
        if due.any():
            yield must | wait | due
        if wait.any():
            yield must | wait
            yield must | (wait & (errors >= np.median(errors[wait])))
        yield must

    def _due(self, budget_ms: float, expected_ms: ExpectedMs) -> NDArray[np.bool_]:
        """The part that expires next, if one of the parts would be late otherwise; one part per frame."""
        due = np.zeros(self._ages.shape, np.bool_)
        if self._ages.max() + self._spare + _PARTS[-1][0] * _PARTS[-1][1] <= self._expiry:
            return due
        parts = self._parts(budget_ms, expected_ms)
        oldest = sorted(((int(self._ages[part].max()), part) for part in parts), key=lambda one: -one[0])
        if any(age and age + after >= self._expiry - self._spare for after, (age, _) in enumerate(oldest)):
            due[oldest[0][1]] = True
        return due

    def _parts(self, budget_ms: float, expected_ms: ExpectedMs) -> list[tuple[slice, slice]]:
        """Of the frame: the largest that fit the budget, else the smallest."""
        parts = list[tuple[slice, slice]]()
        for rows, columns in _PARTS:
            downs, rights = (
                [slice(count * one // among, count * (one + 1) // among) for one in range(among)]
                for count, among in zip(self._ages.shape, (rows, columns), strict=True)
            )
            parts = [(down, right) for down in downs for right in rights]
            first = self._grid.region(Rectangle(0, 0, downs[0].stop, rights[0].stop))
            if expected_ms([first], (0, 0)) <= budget_ms:
                break
        return parts

    def _moved(self, offset: Offset) -> NDArray[np.int64]:
        """The ages at an offset: of the oldest of the blocks that a block's pixels come from."""
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
