"""Which blocks of a frame are computed now and which later, so that frames keep to a budget of time.

Without a budget each block that does not match is computed at once, and of N frames one is computed whole.
Such frames are the slowest. Under a budget blocks expire a part of the frame at a time, so early that each is
computed before its pixels are N frames old. Where all that changed does not fit, blocks that hardly match
wait, except in the part of the frame that differs most. So their threshold falls, down to `LOOSEST_DB`. Where
an application looks it never falls.
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

Part = tuple[slice, slice]
_NOTHING: Part = (slice(0, 0), slice(0, 0))
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
        self._ages = np.zeros((grid.rows, grid.columns), np.int64)
        self._parts = [self._divided(*sides) for sides in _PARTS]
        self._parts_ms: list[float] = []

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
        due = self._due(budget_ms, expected_ms)
        must[due] = True

        def fitting(chosen: NDArray[np.bool_]) -> tuple[tuple[Rectangle, ...], float]:
            boxes = covering(chosen, self._regions)
            return boxes, expected_ms([self._grid.region(box) for box in boxes], match.offset)

        most, *fewer = _choices(must, late, errors, self._parts[1:])
        boxes, ms = fitting(most)
        if ms <= budget_ms:
            return boxes
        least, least_ms = fitting(must)
        for chosen in fewer if least_ms <= budget_ms else ():
            boxes, ms = fitting(chosen)
            if ms <= budget_ms:
                return boxes
        return least

    def note(self, computed: NDArray[np.bool_] | None = None) -> None:
        """These blocks (R, C) were computed from the newest frame; None: all of it."""
        self._ages[... if computed is None else computed] = 0

    def _due(self, budget_ms: float, expected_ms: ExpectedMs) -> Part:
        """The part that expires now, as others would be late otherwise, one for each frame; may be empty."""
        if not self._parts_ms:
            self._parts_ms = [expected_ms([self._region(parts[0])], (0, 0)) for parts in self._parts]
        fitting = [parts for parts, ms in zip(self._parts, self._parts_ms, strict=True) if ms <= budget_ms]
        parts = (fitting or self._parts[-1:])[0]
        oldest = sorted(((int(self._ages[part].max()), part) for part in parts), key=lambda one: -one[0])
        latest = max((age + after for after, (age, _) in enumerate(oldest) if age), default=0)
        return oldest[0][1] if latest >= self._expiry else _NOTHING

    def _divided(self, rows: int, columns: int) -> list[Part]:
        downs, rights = (
            [slice(count * one // among, count * (one + 1) // among) for one in range(among)]
            for count, among in zip(self._ages.shape, (rows, columns), strict=True)
        )
        return [(down, right) for down in downs for right in rights]

    def _region(self, part: Part) -> Rectangle:
        down, right = part
        return self._grid.region(Rectangle(down.start, right.start, down.stop, right.stop))

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


def _choices(
    must: NDArray[np.bool_],
    late: NDArray[np.bool_],
    errors: NDArray[np.float32],
    parted: Sequence[Sequence[Part]],
) -> Iterator[NDArray[np.bool_]]:
    """What may be computed, from the most blocks to the fewest: those that are late in one part of the frame.

    Late blocks that are scattered would take as long as all of them.
    """
    yield must | late
    waiting = np.where(late & ~must, errors, 0)
    for parts in parted if waiting.any() else ():
        worst, fewer = max(parts, key=lambda part: float(waiting[part].sum())), must.copy()
        fewer[worst] |= late[worst]
        yield fewer
