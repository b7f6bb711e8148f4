"""Finds the blocks of a frame that a reference frame contains, all shifted by one offset.

A block of the frame is matched if its peak signal-to-noise ratio (PSNR) is above a threshold, against the
block of the reference at `offset` from it. All blocks share the offset, so that neighbours are also
neighbours in the reference and merge into large regions (DeepCache, section 4, figure 6).

`ShiftMatcher` tries shifts of the whole frame instead of a search per block. Comparing all blocks at one
shift costs as much as a few separate blocks. It chooses the shift with the most matches. The paper uses the
mean of the blocks' best motions, which flat blocks distort because they match anywhere (`block_search`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.video.regions import Rectangle

Frame = NDArray[np.uint8]
"""(H, W, 3), any order of colours."""
Offset = tuple[int, int]
"""Rows, columns: pixel p of the frame is compared with pixel p + offset of the reference."""
Area = tuple[slice, ...]

SETTLED = 0.98
"""No other shift is tried if at least this share of the blocks matches at offset 0."""
_PROBED_ROWS = 8
"""Shifts are first compared on every eighth row, to choose those that are compared completely."""
_FEW_ROWS = 32
"""Not all blocks match if the mean squared difference on every 32nd row is too large for a block."""
_COMPARED = 2
"""Number of shifts, the best of the first comparison, that are compared over the whole frame."""
_MOST_UNSEARCHED = 7
"""Maximum number of frames without a search after searches that found nothing."""
_CORRELATED_PX = 128
"""Maximum length of the longer side in the phase correlation: every second pixel of a frame of 227 px."""

_CERTAIN = 1.5
"""If one row of a block exceeds the block's allowed difference by this factor, the block has changed."""
_COARSEST_PX = 4
"""Sampling distance of the phase correlation if offsets are multiples of 8 or more [px], which is precise
enough for them. Large frames are sampled more coarsely; see `_CORRELATED_PX`."""


class Match(NamedTuple):
    """Blocks of a frame that were found in the reference."""

    offset: Offset
    matched: NDArray[np.bool_]
    """(R, C), by block; True: the block was found."""


class BlockMatcher(Protocol):
    """Finds the blocks of a frame in a reference. May store the motion of its last frame."""

    def match(self, frame: Frame, reference: Frame) -> Match:
        """Match a frame; both must have the same size."""
        ...


class Blocks:
    """
    Grid of blocks over a frame. Not thread-safe, since buffers are reused.

    Blocks in the last row and column are smaller if the frame's size is not a multiple of the block's.

    Parameters
    ----------
    height, width
        H and W of the frame [px].
    block_px
        Side of a block.
    """

    def __init__(self, height: int, width: int, block_px: int) -> None:
        self.height = height
        self.width = width
        self.block_px = block_px
        self.rows = math.ceil(height / block_px)
        self.columns = math.ceil(width / block_px)
        self._starts = (block_px * np.arange(self.rows), block_px * np.arange(self.columns))
        self._ends = (
            np.minimum(self._starts[0] + block_px, height),
            np.minimum(self._starts[1] + block_px, width),
        )
        self.pixels = np.outer(self._ends[0] - self._starts[0], self._ends[1] - self._starts[1])
        """(R, C): number of pixels of each block."""
        # Rounded up to whole blocks; values outside the frame stay 0.
        self._difference = np.zeros((self.rows * block_px, self.columns * block_px, 3), np.uint8)
        self._sums = np.zeros((self.rows, 3 * self.columns * block_px), np.float32)
        self._sampled = np.zeros((self.rows, self.columns * block_px, 3), np.uint8)

    @staticmethod
    def of(frame: Frame, block_px: int, last: Blocks | None) -> Blocks:
        """Return `last` if it has the frame's size, else a new grid."""
        height, width, _ = frame.shape
        if last is not None and (last.height, last.width) == (height, width):
            return last
        return Blocks(height, width, block_px)

    def region(self, blocks: Rectangle) -> Rectangle:
        """Pixels of a rectangle of blocks."""
        return Rectangle(
            blocks.top * self.block_px,
            blocks.left * self.block_px,
            min(blocks.bottom * self.block_px, self.height),
            min(blocks.right * self.block_px, self.width),
        )

    def intersecting(self, regions: Iterable[Rectangle]) -> NDArray[np.bool_]:
        """(R, C): blocks that share a pixel with one of these rectangles [pixels]."""
        found, px = np.zeros((self.rows, self.columns), np.bool_), self.block_px
        for top, left, bottom, right in regions:
            if top < bottom and left < right:
                first, stop = np.maximum((top, left), 0) // px, -(-np.maximum((bottom, right), 0) // px)
                found[first[0] : stop[0], first[1] : stop[1]] = True
        return found

    def squared_errors(self, frame: Frame, reference: Frame, offset: Offset = (0, 0)) -> NDArray[np.float32]:
        """(R, C): squared differences summed over each block; infinite if it lies outside the reference."""
        here, there = overlap(frame.shape, offset)
        if frame[here].size:
            cv2.absdiff(frame[here], reference[there], dst=self._difference[here])
        # Sum over the rows of a block first: the processor is fastest on long rows.
        self._sums[:] = 0
        flat = self._difference.reshape(self.rows * self.block_px, -1)
        for row in range(self.block_px):
            cv2.accumulateSquare(flat[row :: self.block_px], self._sums)
        errors = self._by_block(self._sums)
        if offset != (0, 0):
            errors[~self._inside(offset)] = np.inf
        return errors

    def glance(self, frame: Frame, reference: Frame) -> NDArray[np.float32]:
        """(R, C): mean absolute difference of one pixel row of each block, at offset 0.

        Takes a fifth of the time of `squared_errors`. The square of the result is mostly below the mean
        squared error. Blocks cut off above the sampled row give 0, narrow blocks a smaller value.
        """
        rows = slice(self.block_px // 2, None, self.block_px)
        one = frame[rows]
        cv2.absdiff(one, reference[rows], dst=self._sampled[: len(one), : self.width])
        return self._by_block(self._sampled) / np.float32(3 * self.block_px)

    def changed_at_a_glance(self, frame: Frame, reference: Frame, threshold_db: float) -> int:
        """Number of blocks that changed so much that one row shows it, at offset 0. More may have changed."""
        minimum = _CERTAIN * self.mean_squared_error(threshold_db) ** 0.5
        return int(np.count_nonzero(self.glance(frame, reference) > minimum))

    def all_match(self, frame: Frame, reference: Frame, threshold_db: float) -> bool:
        """Whether all blocks match at offset 0. For most frames that differ, a few rows are enough."""
        if sampled_difference(frame, reference, _FEW_ROWS) > self.mean_squared_error(threshold_db):
            return False
        if self.changed_at_a_glance(frame, reference, threshold_db):
            return False
        return bool(self.matched(frame, reference, threshold_db).all())

    def matched(
        self, frame: Frame, reference: Frame, threshold_db: float, offset: Offset = (0, 0)
    ) -> NDArray[np.bool_]:
        """(R, C): blocks whose PSNR at an offset is above the threshold."""
        # If no value differs more than the mean of a block may, all match. This takes a tenth of the time.
        limit = self.mean_squared_error(threshold_db)
        if offset == (0, 0) and cv2.norm(frame, reference, cv2.NORM_INF) ** 2 < limit:
            return np.ones((self.rows, self.columns), np.bool_)
        return self.squared_errors(frame, reference, offset) < self.limits(threshold_db)

    def _by_block(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """(R, C): sums over the values of each block in one row of values per row of blocks."""
        lines = values.reshape(-1, 3 * self.block_px)
        sums = cv2.reduce(lines, 1, cv2.REDUCE_SUM, dtype=cv2.CV_32F)
        return np.asarray(sums, np.float32).reshape(self.rows, self.columns)

    @staticmethod
    def mean_squared_error(psnr_db: float) -> float:
        """MSE over all values of a block with this PSNR [dB]: PSNR = 10 log10(255^2 / MSE)."""
        return float(255**2 / 10 ** (psnr_db / 10))

    def limits(self, threshold_db: float) -> NDArray[np.floating]:
        """(R, C): squared error at which a block's PSNR equals the threshold."""
        return 3 * self.pixels * self.mean_squared_error(threshold_db)

    def _inside(self, offset: Offset) -> NDArray[np.bool_]:
        rows, columns = (
            (starts + moved >= 0) & (ends + moved <= size)
            for starts, ends, moved, size in zip(
                self._starts, self._ends, offset, (self.height, self.width), strict=True
            )
        )
        return np.outer(rows, columns)


class ShiftMatcher:
    """
    Chooses, among a few shifts of the whole frame, the one that matches most blocks; see the module.

    Parameters
    ----------
    block_px
        Side of a block.
    threshold_db
        T: a block is matched if its PSNR is above it. May be changed between frames.
    stride
        Offsets are multiples of it: the network's cumulative stride, or 1.
    backs_off
        Search less often while searches do not find a better offset than 0.
    """

    def __init__(
        self,
        block_px: int = 10,
        threshold_db: float = 20.0,
        stride: int = 1,
        *,
        backs_off: bool = False,
    ) -> None:
        self.threshold_db = threshold_db
        self.searches = True
        """Whether offsets other than 0 are tried; may be changed between frames."""
        self._block_px = block_px
        self._stride = stride
        self._blocks: Blocks | None = None
        self._last: Offset = (0, 0)
        self._most_unsearched = _MOST_UNSEARCHED if backs_off else 0
        self._pause = self._unsearched = 0

    def match(self, frame: Frame, reference: Frame) -> Match:
        """Match a frame; see `BlockMatcher`. Another shift must match more blocks than offset 0."""
        blocks = self._blocks = Blocks.of(frame, self._block_px, self._blocks)
        best = Match((0, 0), blocks.matched(frame, reference, self.threshold_db))
        count = np.count_nonzero(best.matched)
        if self.searches and count < SETTLED * best.matched.size and not self._skips_search():
            for offset in self._candidates(frame, reference):
                matched = blocks.matched(frame, reference, self.threshold_db, offset)
                if (found := np.count_nonzero(matched)) > count:
                    best, count = Match(offset, matched), found
            failed = best.offset == (0, 0)
            self._pause = min(2 * self._pause + 1, self._most_unsearched) if failed else 0
            self._unsearched = self._pause
        self._last = best.offset
        return best

    def _skips_search(self) -> bool:
        """Whether the search is skipped for this frame, since earlier searches found nothing."""
        self._unsearched -= 1
        return self._unsearched >= 0

    def _candidates(self, frame: Frame, reference: Frame) -> Iterable[Offset]:
        """Shifts near the correlated motion and near the last frame's, best first by a partial comparison."""
        precision_px = min(self._stride // 2, _COARSEST_PX)
        near = {*self._near(_motion(frame, reference, precision_px)), *self._near(self._last)} - {(0, 0)}
        near = {at for at in near if abs(at[0]) < frame.shape[0] and abs(at[1]) < frame.shape[1]}
        probed = {at: _probe(frame, reference, at) for at in near}
        return sorted(near, key=lambda at: (probed[at], at))[:_COMPARED]

    def _near(self, motion: tuple[float, float]) -> list[Offset]:
        """Multiples of the stride near a motion: within 1 px or half a stride."""
        step, reach = self._stride, max(1.0, self._stride / 2)
        rows, columns = (
            range(step * math.ceil((at - reach) / step), math.floor(at + reach) + 1, step) for at in motion
        )
        return [(row, column) for row in rows for column in columns]


def sampled_difference(frame: Frame, reference: Frame, every: int) -> float:
    """Mean squared difference of the values on one of ``every`` rows."""
    sampled = frame[::every]
    return cv2.norm(sampled, reference[::every], cv2.NORM_L2SQR) / sampled.size


def overlap(shape: tuple[int, ...], offset: Offset) -> tuple[Area, Area]:
    """Part of a frame of this shape that has counterparts at an offset, and the area of the counterparts."""
    sides = list(zip(shape[:2], offset, strict=True))
    here = tuple(slice(max(-moved, 0), max(min(side - moved, side), 0)) for side, moved in sides)
    there = tuple(slice(max(moved, 0), max(min(side + moved, side), 0)) for side, moved in sides)
    return here, there


def _probe(frame: Frame, reference: Frame, offset: Offset) -> float:
    """Mean absolute difference at an offset, over every eighth row."""
    here, there = overlap(frame.shape, offset)
    rows, others = frame[here][::_PROBED_ROWS], reference[there][::_PROBED_ROWS]
    return float(cv2.norm(rows, others, cv2.NORM_L1)) / rows.size


def _motion(frame: Frame, reference: Frame, precision_px: int) -> tuple[float, float]:
    """Motion of the whole picture by phase correlation [px]: rows, columns."""
    factor = max(math.ceil(max(frame.shape) / _CORRELATED_PX), precision_px)
    if min(frame.shape[:2]) <= factor:
        return 0.0, 0.0
    one, other = (np.ascontiguousarray(of[::factor, ::factor, 1], np.float32) for of in (frame, reference))
    (right, down), _ = cv2.phaseCorrelate(one, other, _window(*one.shape))
    return factor * down, factor * right


@lru_cache(maxsize=4)
def _window(rows: int, columns: int) -> NDArray[np.float32]:
    return np.asarray(cv2.createHanningWindow((columns, rows), cv2.CV_32F), np.float32)
