"""Matchers of the papers, for comparison with `ShiftMatcher`: a search per block, and histograms.

`SearchMatcher` implements DeepCache, section 4. Each block of the frame is searched in the reference around a
start offset (step 2). The mean of the motions found is rounded to whole pixels (step 3). All blocks are then
compared at this offset (step 4). All blocks of a step are compared at once with numpy.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.video.matching import Blocks, Frame, Match, Offset

Offsets = NDArray[np.int64]
"""(..., 2): rows and columns."""

_REACH = 7
"""Maximum distance of a search from its start in each direction [px]."""
_LARGE_DIAMOND = np.array([(-2, 0), (-1, -1), (-1, 1), (0, -2), (0, 2), (1, -1), (1, 1), (2, 0)])
_SMALL_DIAMOND = np.array([(-1, 0), (0, -1), (0, 1), (1, 0)])
_SQUARE = np.array([(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)])
_LARGE_STEPS = 3
_BINS = 16
"""Number of bins of a histogram per colour."""


class Candidates:
    """
    Blocks of a frame, and their errors against the reference at offsets up to `_REACH` from a start.

    Parameters
    ----------
    frame, reference
        (H, W, 3).
    corners
        (n, 2): first pixel of each block; only blocks of full size.
    block_px
        Side of a block.
    start
        Offset at the centre of the search.
    reuse
        Store errors, so that step 2 compares no block twice at one offset. The paper reuses them in step 4
        (DeepCache, section 4).
    """

    def __init__(
        self, frame: Frame, reference: Frame, corners: Offsets, block_px: int, start: Offset, reuse: bool
    ) -> None:
        self.start = np.array(start)
        self.count = len(corners)
        self.comparisons = 0
        """Number of block comparisons so far."""
        self._corners = corners
        self._blocks = _windows(frame, block_px)[tuple(corners.T)].reshape(self.count, -1)
        self._reference = _windows(reference, block_px)
        side = 2 * _REACH + 1
        self._known = np.full((self.count, side, side), np.nan, np.float32) if reuse else None

    def errors(self, which: NDArray[np.int64], offsets: Offsets) -> NDArray[np.float32]:
        """(m, p): squared errors of blocks (m,) at offsets (m, p, 2); infinite outside the reference."""
        blocks = np.broadcast_to(which[:, None], offsets.shape[:2])
        if self._known is None:
            return self._compared(blocks.ravel(), offsets.reshape(-1, 2)).reshape(blocks.shape)
        rows, columns = np.moveaxis(offsets - self.start + _REACH, -1, 0)
        found: NDArray[np.float32] = self._known[blocks, rows, columns]
        new = np.isnan(found)
        found[new] = self._compared(blocks[new], offsets[new])
        self._known[blocks, rows, columns] = found
        return found

    def _compared(self, blocks: NDArray[np.int64], offsets: Offsets) -> NDArray[np.float32]:
        errors = np.full(len(blocks), np.inf, np.float32)
        there = self._corners[blocks] + offsets
        inside = np.flatnonzero(((there >= 0) & (there < self._reference.shape[:2])).all(axis=1))
        if len(inside):
            self.comparisons += len(inside)
            theirs = self._reference[tuple(there[inside].T)].reshape(len(inside), -1)
            values = cv2.absdiff(self._blocks[blocks[inside]], theirs).astype(np.float32)
            errors[inside] = np.einsum("ij,ij->i", values, values)
        return errors


Search = Callable[[Candidates], tuple[Offsets, NDArray[np.float32]]]
"""Returns each block's best offset (n, 2) and squared error (n,); the first visited of equal ones."""


def diamond(candidates: Candidates) -> tuple[Offsets, NDArray[np.float32]]:
    """Diamond search: up to three steps to the best of eight points, then one step to four nearer points.

    A block continues with the small diamond as soon as no point of the large one is better. Source: Zhu and
    Ma.
    """
    best, errors = _at_start(candidates)
    moving = np.arange(candidates.count)
    for _ in range(_LARGE_STEPS):
        moving = _move_to_best(candidates, best, errors, moving, _LARGE_DIAMOND)
    _move_to_best(candidates, best, errors, np.arange(candidates.count), _SMALL_DIAMOND)
    return best, errors


def three_step(candidates: Candidates) -> tuple[Offsets, NDArray[np.float32]]:
    """Three step search: steps of 4, 2 and 1 px to the best of eight points around. Source: Barjatya."""
    best, errors = _at_start(candidates)
    for size in (4, 2, 1):
        _move_to_best(candidates, best, errors, np.arange(candidates.count), size * _SQUARE)
    return best, errors


def exhaustive(candidates: Candidates) -> tuple[Offsets, NDArray[np.float32]]:
    """Exhaustive search: every offset up to 7 px per direction, nearest first. Source: Barjatya."""
    best, errors = _at_start(candidates)
    around = [(row, column) for row in range(-_REACH, _REACH + 1) for column in range(-_REACH, _REACH + 1)]
    start, blocks = best.copy(), np.arange(candidates.count)
    for offset in sorted(around, key=lambda at: at[0] ** 2 + at[1] ** 2)[1:]:
        there = start + offset
        found = candidates.errors(blocks, there[:, None])[:, 0]
        better = found < errors
        best[better], errors[better] = there[better], found[better]
    return best, errors


def _at_start(candidates: Candidates) -> tuple[Offsets, NDArray[np.float32]]:
    best = np.tile(candidates.start, (candidates.count, 1))
    return best, candidates.errors(np.arange(candidates.count), best[:, None])[:, 0]


def _move_to_best(
    candidates: Candidates,
    best: Offsets,
    errors: NDArray[np.float32],
    which: NDArray[np.int64],
    points: Offsets,
) -> NDArray[np.int64]:
    """Move each block to the best of the points around it, if that is better; returns the moved blocks."""
    around = best[which, None] + points
    found = candidates.errors(which, around)
    chosen = found.argmin(axis=1)
    every = np.arange(len(which))
    better = found[every, chosen] < errors[which]
    which = which[better]
    best[which] = around[every, chosen][better]
    errors[which] = found[every, chosen][better]
    return which


class SearchMatcher:
    """
    DeepCache's matcher; see the module.

    The mean motion is rounded to whole pixels, with halves rounded to even numbers. If no block is matched
    (K = 0 in the paper, which does not define this case), the offset is 0. Smaller blocks at the border are
    not searched, but compared in step 4.

    Step 4 compares all blocks at once, which is faster than looking up the errors known from step 2.
    Therefore errors are reused only within step 2.

    Parameters
    ----------
    search
        `diamond`, `three_step` or `exhaustive`.
    block_px, threshold_db
        See `ShiftMatcher`.
    skip
        k: only blocks in every k-th row and column are searched.
    reuse
        Store errors, so that no block is compared twice at one offset.
    follow
        Start the search at the offset of the last frame; otherwise at 0.
    """

    def __init__(
        self,
        search: Search = diamond,
        block_px: int = 10,
        threshold_db: float = 20.0,
        *,
        skip: int = 1,
        reuse: bool = False,
        follow: bool = True,
    ) -> None:
        self._search = search
        self._block_px = block_px
        self._threshold_db = threshold_db
        self._skip = skip
        self._reuse = reuse
        self._follow = follow
        self._blocks: Blocks | None = None
        self._last: Offset = (0, 0)

    def match(self, frame: Frame, reference: Frame) -> Match:
        """Match a frame; see `BlockMatcher`."""
        blocks = self._blocks = Blocks.of(frame, self._block_px, self._blocks)
        limits = blocks.limits(self._threshold_db)
        offset = self._mean_motion(frame, reference, float(limits[0, 0]))
        self._last = offset if self._follow else (0, 0)
        return Match(offset, blocks.squared_errors(frame, reference, offset) < limits)

    def _mean_motion(self, frame: Frame, reference: Frame, limit: float) -> Offset:
        """Steps 2 and 3 of the paper: search the blocks, and average their motions."""
        size = self._block_px
        rows, columns = (np.arange(0, side - size + 1, size * self._skip) for side in frame.shape[:2])
        corners = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
        if not len(corners):
            return 0, 0
        candidates = Candidates(frame, reference, corners, size, self._last, self._reuse)
        motions, errors = self._search(candidates)
        matched = motions[errors < limit]
        if not len(matched):
            return 0, 0
        down, right = np.rint(matched.mean(axis=0)).astype(int)
        return int(down), int(right)


class HistogramMatcher:
    """
    DeepMon's matcher: a block is matched if its colours are distributed as in the reference at this place.

    The distance of two blocks is the chi-square distance of their histograms, one per colour:
    `sum((a - b)^2 / (a + b)) / (2 n)` over all bins of n values, in [0, 1]. DeepCache states neither the
    number of bins nor the limit; they are our choice.

    Parameters
    ----------
    block_px
        Side of a block.
    limit
        Blocks with a smaller distance are matched.
    """

    def __init__(self, block_px: int = 10, limit: float = 0.05) -> None:
        self._block_px = block_px
        self._limit = limit
        self._blocks: Blocks | None = None
        self._places = np.empty(0, np.int64)

    def match(self, frame: Frame, reference: Frame) -> Match:
        """Match a frame; see `BlockMatcher`. The offset is always 0."""
        blocks = Blocks.of(frame, self._block_px, self._blocks)
        if blocks is not self._blocks:
            self._blocks, self._places = blocks, self._first_bins(blocks)
        ours, theirs = self._histograms(frame, blocks), self._histograms(reference, blocks)
        both = ours + theirs
        terms = np.divide((ours - theirs) ** 2, both, out=np.zeros(both.shape), where=both > 0)
        distances = terms.sum(axis=1).reshape(blocks.rows, blocks.columns) / (6 * blocks.pixels)
        return Match((0, 0), distances < self._limit)

    def _first_bins(self, blocks: Blocks) -> NDArray[np.int64]:
        """(H, W, 3): index of the first bin of the histogram to which each value belongs."""
        rows = np.arange(blocks.height) // self._block_px
        columns = np.arange(blocks.width) // self._block_px
        block = rows[:, None] * blocks.columns + columns
        return _BINS * (3 * block[..., None] + np.arange(3))

    def _histograms(self, frame: Frame, blocks: Blocks) -> NDArray[np.int64]:
        """(R C, 3 bins): number of values of each block in each bin."""
        bins = self._places + frame // (256 // _BINS)
        counts = np.bincount(bins.ravel(), minlength=blocks.rows * blocks.columns * 3 * _BINS)
        return counts.reshape(blocks.rows * blocks.columns, -1)


def _windows(frame: Frame, block_px: int) -> NDArray[np.uint8]:
    """(H - b + 1, W - b + 1, b, 3 b): the block that starts at each pixel; a view."""
    flat = np.ascontiguousarray(frame).reshape(frame.shape[0], -1)
    every = np.lib.stride_tricks.sliding_window_view(flat, (block_px, 3 * block_px))
    return every[:, ::3]
