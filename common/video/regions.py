"""Rectangles of cells, and the decomposition of a boolean mask into few rectangles.

A mask has tens of cells per side and is processed for every frame. Its rows and columns are stored as
integers, one bit per cell, so that one Python operation unites, intersects or counts a whole line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Rectangle(NamedTuple):
    """Cells from `top`, `left` to before `bottom`, `right`; empty unless both sides are positive."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def height(self) -> int:
        """Number of rows; 0 if empty."""
        return max(self.bottom - self.top, 0)

    @property
    def width(self) -> int:
        """Number of columns; 0 if empty."""
        return max(self.right - self.left, 0)

    @property
    def area(self) -> int:
        """Number of cells."""
        top, left, bottom, right = self
        return (bottom - top) * (right - left) if top < bottom and left < right else 0

    def intersection(self, other: Rectangle) -> Rectangle:
        """Cells in both rectangles; may be empty."""
        return Rectangle(
            max(self.top, other.top),
            max(self.left, other.left),
            min(self.bottom, other.bottom),
            min(self.right, other.right),
        )

    def moved(self, rows: int, columns: int) -> Rectangle:
        """The rectangle at another place."""
        top, left, bottom, right = self
        return Rectangle(top + rows, left + columns, bottom + rows, right + columns)

    def union(self, other: Rectangle) -> Rectangle:
        """Smallest rectangle that contains both; empty rectangles are ignored."""
        top, left, bottom, right = self
        up, before, down, behind = other
        if up >= down or before >= behind:
            return self
        if top >= bottom or left >= right:
            return other
        # Comparisons are faster than min and max; this runs for each segment of each frame.
        return Rectangle(
            top if top < up else up,
            left if left < before else before,
            bottom if bottom > down else down,
            right if right > behind else behind,
        )


EMPTY = Rectangle(0, 0, 0, 0)


def largest_rectangles(mask: NDArray[np.bool_]) -> tuple[Rectangle, ...]:
    """Merge the true cells into rectangles: repeatedly the largest one of the remaining cells.

    Parameters
    ----------
    mask
        (R, C).

    Returns
    -------
    Disjoint rectangles that contain exactly the true cells, largest first. DeepCache, section 4, step 5.
    """
    rows, found = _lines(mask), list[Rectangle]()
    while (box := _largest(rows)).area:
        found.append(box)
        kept = ~_bits(box.left, box.right)
        rows[box.top : box.bottom] = [bits & kept for bits in rows[box.top : box.bottom]]
    return tuple(found)


def covering(mask: NDArray[np.bool_], most: int) -> tuple[Rectangle, ...]:
    """
    Rectangles that contain all true cells and few false ones.

    The bounding box is split in two, or around its largest hole, whichever excludes more false cells. Its
    parts are split in the same way, largest first, until there are `most` rectangles.

    Parameters
    ----------
    mask
        (R, C).
    most
        Maximum number of rectangles, at least 1.

    Returns
    -------
    Disjoint rectangles from top to bottom; empty if no cell is true.
    """
    grid = _Grid(_lines(mask), _lines(mask.T))
    whole = grid.bounding_box(Rectangle(0, 0, *mask.shape))
    boxes, ends = ([whole] if whole.area else []), list[Rectangle]()
    while boxes and len(boxes) + len(ends) < most:
        box = max(boxes, key=lambda one: one.area)
        boxes.remove(box)
        parts = grid.parts(box, most - len(boxes) - len(ends))
        (boxes if len(parts) > 1 else ends).extend(parts)
    return tuple(sorted(boxes + ends))


def without_contained(regions: Sequence[Rectangle]) -> list[Rectangle]:
    """Remove rectangles that are contained in others."""
    if len(regions) < 2:
        return list(regions)
    found: list[Rectangle] = []
    largest_first = sorted(set(regions), key=lambda one: (one.top - one.bottom) * (one.right - one.left))
    for region in largest_first:
        top, left, bottom, right = region
        for up, before, down, behind in found:
            if up <= top and before <= left and bottom <= down and right <= behind:
                break
        else:
            found.append(region)
    return found


def around(box: Rectangle, hole: Rectangle) -> list[Rectangle]:
    """Parts of `box` outside `hole`: whole rows above and below it, and the areas left and right of it."""
    return [
        box._replace(bottom=hole.top),
        Rectangle(hole.top, box.left, hole.bottom, hole.left),
        Rectangle(hole.top, hole.right, hole.bottom, box.right),
        box._replace(top=hole.bottom),
    ]


class _Grid:
    """A mask as integers: cell (r, c) is bit c of `rows[r]`, and bit r of `columns[c]`."""

    def __init__(self, rows: list[int], columns: list[int]) -> None:
        self._rows = rows
        self._columns = columns

    def bounding_box(self, box: Rectangle) -> Rectangle:
        """Bounding box of the true cells in `box`; empty if there are none."""
        span = _bits(box.left, box.right)
        lines = [bits & span for bits in self._rows[box.top : box.bottom]]
        held = [row for row, bits in enumerate(lines, box.top) if bits]
        if not held:
            return EMPTY
        seen = reduce(or_, lines)
        return Rectangle(held[0], (seen & -seen).bit_length() - 1, held[-1] + 1, seen.bit_length())

    def parts(self, box: Rectangle, most: int) -> list[Rectangle]:
        """Split `box`, which is tight, into up to `most` boxes, or return it if no cell would be excluded."""
        top, left, bottom, right = box
        across = [bits & _bits(left, right) for bits in self._rows[top:bottom]]
        false_cells = box.area - sum(bits.bit_count() for bits in across)
        if not false_cells:
            return [box]
        down = [bits & _bits(top, bottom) for bits in self._columns[left:right]]
        row_area, row = _best_cut(across)
        column_area, column = _best_cut(down)
        if row_area <= column_area:
            cut = [box._replace(bottom=top + row), box._replace(top=top + row)]
        else:
            cut = [box._replace(right=left + column), box._replace(left=left + column)]
        choices = [[box], [self.bounding_box(part) for part in cut]]
        # Searching for the hole takes longest, and finds little after a good split.
        if most > 2 and 2 * (box.area - min(row_area, column_area)) < false_cells:
            hole = _largest([bits ^ _bits(left, right) for bits in across])
            parts = around(box, hole.moved(top, 0))
            choices.append([held for part in parts if part.area and (held := self.bounding_box(part)).area])
        return min(
            (parts for parts in choices if len(parts) <= most),
            key=lambda parts: sum(part.area for part in parts),
        )


def _lines(mask: NDArray[np.bool_]) -> list[int]:
    packed = np.packbits(mask, axis=1, bitorder="little")
    return [int.from_bytes(line.tobytes(), "little") for line in packed]


def _bits(start: int, stop: int) -> int:
    return (1 << stop) - (1 << start)


def _largest(lines: Sequence[int]) -> Rectangle:
    """Largest rectangle of true cells; the topmost if there are several."""
    best, area = EMPTY, 0
    for top, bits in enumerate(lines):
        for bottom in range(top + 1, len(lines) + 1):
            bits &= lines[bottom - 1]  # noqa: PLW2901  shrinks with every line
            cells = bits.bit_count()
            if cells * (len(lines) - top) <= area:
                break
            if cells * (bottom - top) > area:
                text = f"{bits:b}"
                run = max(text.split("0"))
                if len(run) * (bottom - top) > area:
                    right = len(text) - text.index(run)
                    best = Rectangle(top, right - len(run), bottom, right)
                    area = best.area
    return best


def _best_cut(lines: Sequence[int]) -> tuple[int, int]:
    """Smallest total area of two bounding boxes, and the first one's lines. End lines are not empty."""
    before, behind = _areas(lines), _areas(lines[::-1])[::-1]
    sums = list(map(add, before, behind[1:])) or before
    area = min(sums)
    return area, sums.index(area) + 1


def _areas(lines: Sequence[int]) -> list[int]:
    """Area of the bounding box of the first 1, 2, ... lines."""
    areas, seen, width, area = list[int](), 0, 0, 0
    for count, bits in enumerate(lines, 1):
        if bits:
            if bits | seen != seen:
                seen |= bits
                width = seen.bit_length() - (seen & -seen).bit_length() + 1
            area = count * width
        areas.append(area)
    return areas
