"""Which recomputed cells of a feature map changed, and which may keep their cached values.

A pixel that changed affects every cell whose receptive field contains it, but most of them hardly. So after
a few layers nearly all cells are recomputed, while few of them differ. Here recomputed cells are compared
with the cached ones. Cells that differ by less than a threshold keep the cached values, and the layers after
them need not be executed there.

The cached values remain those from which the following maps were computed. Differences of several frames
therefore do not add up at a map: they are always measured to these values, as pixels are in a `Composite`.

Source: change thresholds per layer as in CBinfer (Cavigelli, Degen, Benini, 2017). There each value is
compared at each layer; here blocks of cells are compared at the ends of segments, on a sample of channels
(decision 062).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nearsight.common.inference.segments import Layout
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.regions import Rectangle, covering

_CHANNELS, _FEWER_CHANNELS = 64, 32
"""Approximate number of channels that are compared; the smaller number if blocks have several cells."""
_BLOCKS = 14
"""Approximate number of blocks along the shorter side of a map."""
_SAMPLED = 8
"""Maximum number of rows, and of columns, from which the variance of a map is estimated."""
_RECTANGLES = 2
"""Maximum number of rectangles that cover the changed cells. Finding more takes longer than it saves."""
_MOST = 0.7
"""If more than this share of the blocks changed, all cells count as changed."""


def variance_of(cells: Tensor, layout: Layout) -> float:
    """Estimate the variance of a map's values over its cells, as the mean over the channels.

    Parameters
    ----------
    cells : ndarray
        The whole map, in its memory layout.
    layout : Layout
    """
    rows, columns = (-(-side // _SAMPLED) for side in layout.size)
    sample = _sampled(cells, layout)[:, ::rows, ::columns]
    difference = sample - sample.mean((1, 2), keepdims=True)
    return float(np.vdot(difference, difference) / difference.size)


def changed_cells(
    cached: Tensor, computed: Tensor, layout: Layout, threshold: float, origin: Rectangle
) -> tuple[Rectangle, ...]:
    """Rectangles that contain all cells whose values changed.

    Parameters
    ----------
    cached, computed : ndarray
        The same part of a map before and after it was recomputed, in the map's memory layout.
    layout : Layout
        Layout of the map.
    threshold : float
        A block of cells changed if the mean squared difference of its values is larger.
    origin : Rectangle
        The part, in cells of the map.

    Returns
    -------
    Disjoint rectangles, in cells of the map; empty if nothing changed.
    """
    side = _side_of_blocks(layout)
    difference = _sampled(computed, layout) - _sampled(cached, layout)
    difference *= difference
    groups, rows, columns, width = difference.shape
    lines = np.add.reduce(difference, axis=0).reshape(rows, columns * width)
    tops, lefts, values = _grid(rows, columns, side, width)
    sums = np.add.reduceat(np.add.reduceat(lines, lefts, axis=1), tops, axis=0)  # in the faster order
    mask = ~(sums <= threshold * groups * values)  # NaN counts as changed
    changed = np.count_nonzero(mask)
    if not changed:
        return ()
    if changed > _MOST * mask.size:
        return (origin,)
    cells = (Rectangle(*(side * edge for edge in blocks)) for blocks in covering(mask, _RECTANGLES))
    return tuple(one.moved(origin.top, origin.left).intersection(origin) for one in cells)


@lru_cache(maxsize=1024)
def _grid(
    rows: int, columns: int, side: int, width: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Blocks of cells with ``width`` values each: first rows, first values in a row, and numbers of values.

    Blocks at the last row and column may be smaller.
    """
    tops, lefts = (np.arange(0, cells, side) for cells in (rows, columns))
    values = np.outer(np.minimum(rows - tops, side), np.minimum(columns - lefts, side) * width)
    return tops, lefts * width, values.astype(np.float32)


def _side_of_blocks(layout: Layout) -> int:
    """Number of rows and of columns of the blocks that are compared."""
    return max(1, min(layout.size) // _BLOCKS)


def _sampled(cells: Tensor, layout: Layout) -> NDArray[np.float32]:
    """(groups, rows, columns, channels per group) in float32: the cells with a sample of the channels."""
    wanted = _CHANNELS if _side_of_blocks(layout) == 1 else _FEWER_CHANNELS
    step = max(1, layout.shape[3 if layout.rows_axis == 1 else 1] // wanted)
    if layout.block:
        sample = cells[::step]
    elif layout.rows_axis == 1:
        sample = cells[..., ::step]
    else:
        sample = cells[0, ::step, :, :, np.newaxis]
    return sample.astype(np.float32, copy=False)
