"""Rectangles of maps, drawn by hypothesis, and frames that move."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.video.propagation import Pair
from nearsight.common.video.regions import Rectangle


@st.composite
def rectangles(draw: st.DrawFn, shape: Pair) -> Rectangle:
    """A rectangle with at least one cell, within a map."""
    top, left = draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))
    return Rectangle(top, left, draw(st.integers(top + 1, shape[0])), draw(st.integers(left + 1, shape[1])))


def mask_of(shape: Pair, *found: Rectangle) -> NDArray[np.bool_]:
    """A mask (rows, columns) that is true in these rectangles."""
    mask = np.zeros(shape, bool)
    for one in found:
        mask[one.top : one.bottom, one.left : one.right] = True
    return mask


def bounds(mask: NDArray[np.bool_]) -> Rectangle | None:
    """The smallest rectangle that contains all true cells; None if there is none."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return Rectangle(int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1)


def moved(
    frame: NDArray[np.float32], revealed: NDArray[np.float32], offset: Pair
) -> tuple[NDArray[np.float32], Sequence[Rectangle]]:
    """Move a frame (1, channels, rows, columns): new cell p is old cell p + offset.

    The other cells are those of ``revealed``; they are also returned as rectangles.
    """
    rows, columns = frame.shape[2:]
    top, bottom = max(0, -offset[0]), min(rows, rows - offset[0])
    left, right = max(0, -offset[1]), min(columns, columns - offset[1])
    found = revealed.copy()
    found[:, :, top:bottom, left:right] = frame[
        :, :, top + offset[0] : bottom + offset[0], left + offset[1] : right + offset[1]
    ]
    return found, [
        Rectangle(0, 0, top, columns),
        Rectangle(bottom, 0, rows, columns),
        Rectangle(0, 0, rows, left),
        Rectangle(0, right, rows, columns),
    ]
