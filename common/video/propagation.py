"""Computes which cells of a feature map change with cells of the input, and which cells an output reads.

The *changed* set is propagated, not the reusable set (decision 052). A cell of an output counts as changed if
its window's bounding rectangle contains a changed cell. All other outputs have the same inputs as before,
padding included. Windows are separable, so rows and columns are computed separately. A graph is thus reduced
to a few tables, which are indexed for each frame.

Source: DeepCache, section 5 and table 2. The formulas printed there are wrong; the printed example is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.video.regions import Rectangle, around

Pair = tuple[int, int]
"""Rows, columns."""
_Cells = NDArray[np.int64]
_Index = TypeVar("_Index", int, _Cells)
_ROWS, _COLUMNS = 0, 1


class Window(NamedTuple):
    """Dependency of the cells of an output map on the cells of an input map.

    Describes a convolution, a pooling, a padding (kernel 1), an upsampling (kernel 1), a transposed
    convolution (a convolution of the input with zeros between its cells), or, with all defaults, an
    element-wise operator. Methods with an axis (0: rows, 1: columns) take and return cells along this axis.

    Attributes
    ----------
    kernel, stride, dilation : tuple of int
        Rows, columns. A dilated window counts as the whole range that it spans.
    pads : tuple of int
        Top, left, bottom, right.
    ceil : bool
        The last window may extend beyond the padding, as with ONNX's ``ceil_mode``.
    repeats : tuple of int
        Number of repetitions of each input cell before the windows are applied.
    spread : bool
        Zeros replace the repetitions of a cell, without zeros after the last cell. Pads may be negative.
    """

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False
    repeats: Pair = (1, 1)
    spread: bool = False

    def shape_out(self, shape: Pair) -> Pair:
        """Rows and columns of the output, given those of the input."""
        return self.size(_ROWS, shape[0]), self.size(_COLUMNS, shape[1])

    def size(self, axis: int, cells: int) -> int:
        """Number of outputs along an axis."""
        cells = cells * self.repeats[axis] - self._zeros(axis)
        before, behind = self.pads[axis], self.pads[axis + 2]
        room, step = cells + before + behind - self._span(axis), self.stride[axis]
        outputs = max((-(-room // step) if self.ceil else room // step) + 1, 0)
        # The last window must start inside the map or the padding before it.
        return outputs - (self.ceil and (outputs - 1) * step >= cells + before)

    def touched(self, axis: int, start: _Index, stop: _Index) -> tuple[_Index, _Index]:
        """Outputs [start, stop) whose windows contain at least one of these inputs; not clipped."""
        before, step, repeats = self.pads[axis], self.stride[axis], self.repeats[axis]
        first = -((self._span(axis) - 1 - before - start * repeats) // step)
        return first, (stop * repeats - 1 - self._zeros(axis) + before) // step + 1

    def read(self, axis: int, start: _Index, stop: _Index) -> tuple[_Index, _Index]:
        """Inputs [start, stop) that these outputs read; may extend beyond the map.

        A crop of these inputs yields these outputs. With zeros between cells and little padding, the range
        may contain one cell more than needed at an end.
        """
        before, step, repeats = self.pads[axis], self.stride[axis], self.repeats[axis]
        zeros, last = self._zeros(axis), (stop - 1) * step - before + self._span(axis) - 1
        first = start * step - before + min(zeros, before)
        return first // repeats, (last + max(zeros - self.pads[axis + 2], 0)) // repeats + 1

    def filled(self, axis: int, start: int, stop: int) -> Pair:
        """Outputs [start, stop) whose windows are inside these inputs; may extend beyond the map.

        Table 2 of the paper, corrected: with input x, w, kernel k, stride s, padding p:
        x' = ceil((x + p) / s), w' = floor((x + w + p - k) / s) - x' + 1.
        """
        before, step, repeats = self.pads[axis], self.stride[axis], self.repeats[axis]
        first = -(-(start * repeats - self._zeros(axis) + before) // step)
        return first, (stop * repeats + before - self._span(axis)) // step + 1

    def pitch(self, axis: int) -> Fraction:
        """Distance of neighbouring outputs, in cells of the input."""
        return Fraction(self.stride[axis], self.repeats[axis])

    def _zeros(self, axis: int) -> int:
        """Number of zeros between two cells."""
        return (self.repeats[axis] - 1) * self.spread

    def _span(self, axis: int) -> int:
        return self.dilation[axis] * (self.kernel[axis] - 1) + 1


class Node(NamedTuple):
    """An operator of a graph. If it has several inputs, they have the same size; their cells are united."""

    operator: Window
    inputs: tuple[str, ...]
    output: str


class RegionGraph:
    """The part of a network from one map to another.

    Parameters
    ----------
    nodes : sequence of Node
        In order of execution. Nodes that the target does not need are ignored.
    source, target : str
        Names of maps.
    size : tuple of int
        Rows and columns of the source.

    Attributes
    ----------
    stride : tuple of int
        Rows, columns. Offsets and crops of the source must be multiples of it.
    reduction : tuple of Fraction
        Cells of the source per cell of the target. Differs from ``stride`` only after upsampling.
    shapes : mapping of str to tuple of int
        Rows and columns of each map.
    rows, columns : AxisTables
        Dependencies along each axis.

    Raises
    ------
    InvalidArgument
        If the target depends on maps other than the source, or maps of different strides are combined.
    """

    def __init__(self, nodes: Sequence[Node], source: str, target: str, size: Pair) -> None:
        path = _path(nodes, source, target)
        self.rows, self.columns = (AxisTables(path, source, target, size, axis) for axis in (0, 1))
        self.stride: Pair = self.rows.stride, self.columns.stride
        self.reduction = self.rows.reduction, self.columns.reduction
        sizes = self.rows.sizes
        self.shapes: Mapping[str, Pair] = {name: (sizes[name], self.columns.sizes[name]) for name in sizes}
        self._source = Rectangle(0, 0, *size)
        self._target = Rectangle(0, 0, *self.shapes[target])

    def changed(self, rectangles: Sequence[Rectangle], offset: Pair = (0, 0)) -> tuple[Rectangle, ...]:
        """Cells of the target that may change if these cells of the source change.

        Parameters
        ----------
        rectangles : sequence of Rectangle
        offset : tuple of int
            Cell p reuses the value of cell p + offset. With an offset other than 0 the border also changes,
            because only one of the two positions reads padding.

        Raises
        ------
        InvalidArgument
            If the offset is not a multiple of the stride.
        """
        rows, columns = self.rows, self.columns
        found = [
            Rectangle(rows.first[top], columns.first[left], rows.stop[bottom], columns.stop[right])
            for top, left, bottom, right in (one.intersection(self._source) for one in rectangles)
            if top < bottom and left < right
        ]
        found += self._border(offset) if offset != (0, 0) else ()
        return tuple(dict.fromkeys(one for one in found if one.area))

    def _border(self, offset: Pair) -> list[Rectangle]:
        top, bottom = self.rows.unpadded(offset[0])
        left, right = self.columns.unpadded(offset[1])
        if top >= bottom or left >= right:
            return [self._target]
        return around(self._target, Rectangle(top, left, bottom, right))


class _Line(NamedTuple):
    """One axis of a map: its dependency on the source."""

    size: int
    first: _Cells
    """(n + 1,): first cell that changes if the source changes from cell i on."""
    stop: _Cells
    """(n + 1,): end (exclusive) of the cells that change if the source changes before cell i."""
    inner: Pair
    """Cells [start, stop) that do not depend on padding."""
    pitch: Fraction


class AxisTables:
    """Dependencies along one axis between two maps. Index i is the edge before cell i; the last is the end.

    Attributes
    ----------
    first, stop : list of int
        If the source changes from cell ``i`` on, the target changes from ``first[i]`` on. If the source
        changes before cell ``i``, the target changes before ``stop[i]``.
    low, high : list of int
        The cells of the target from ``i`` on read the source from ``low[i]`` on. The cells before ``i`` read
        the source before ``high[i]``. Clipped to the map.
    sizes : mapping of str to int
        Number of cells of each map.
    stride : int
    reduction : Fraction
        See `RegionGraph`.
    """

    def __init__(self, path: Sequence[Node], source: str, target: str, size: Pair, axis: int) -> None:
        cells = np.arange(size[axis] + 1)
        lines = {source: _Line(size[axis], cells, cells, (0, size[axis]), Fraction(1))}
        for node in path:
            lines[node.output] = _output_line(node, [lines[name] for name in node.inputs], axis)
        last = lines[target]
        self.sizes = {name: line.size for name, line in lines.items()}
        self.stride = math.lcm(*(line.pitch.numerator for line in lines.values()))
        self.reduction = last.pitch
        # If nothing of the source changes, nothing of the target does, even beside padding.
        self.first, self.stop = [*last.first[:-1].tolist(), last.size], [0, *last.stop[1:].tolist()]
        self.low, self.high = _read_ranges(path, source, target, self.sizes, axis)
        self._inner = last.inner

    def unpadded(self, offset: int) -> Pair:
        """Cells of the target that do not depend on padding, neither here nor at the offset."""
        if offset % self.stride:
            raise InvalidArgument(
                f"an offset of {offset} cells is not a multiple of the stride {self.stride}",
                advice="use offsets that are multiples of RegionGraph.stride",
            )
        start, stop = self._inner
        moved = int(offset / self.reduction)
        return max(start, start - moved), min(stop, stop - moved)


def _path(nodes: Sequence[Node], source: str, target: str) -> list[Node]:
    """Nodes between two maps, in order."""
    wanted, path = {target}, list[Node]()
    for node in reversed(nodes):
        if node.output in wanted and node.output != source:
            wanted.remove(node.output)
            wanted.update(node.inputs)
            path.append(node)
    if wanted != {source}:
        others = ", ".join(sorted(wanted - {source}))
        raise InvalidArgument(f"{target!r} cannot be computed from {source!r}: it depends on {others}")
    return path[::-1]


def _output_line(node: Node, lines: Sequence[_Line], axis: int) -> _Line:
    """Dependency of an operator's output on the source along one axis, given that of its inputs."""
    if len({(line.size, line.pitch) for line in lines}) > 1:
        raise InvalidArgument(f"{node.output!r} combines maps of different sizes or strides")
    operator, one = node.operator, lines[0]
    size = operator.size(axis, one.size)
    first, stop = operator.touched(
        axis,
        np.minimum.reduce([line.first for line in lines]),
        np.maximum.reduce([line.stop for line in lines]),
    )
    inner = operator.filled(axis, max(line.inner[0] for line in lines), min(line.inner[1] for line in lines))
    return _Line(
        size,
        np.clip(first, 0, size),
        np.clip(stop, 0, size),
        (max(inner[0], 0), min(inner[1], size)),
        one.pitch * operator.pitch(axis),
    )


def _read_ranges(
    path: Sequence[Node], source: str, target: str, sizes: Mapping[str, int], axis: int
) -> tuple[list[int], list[int]]:
    """Per target cell i: first source cell read by cells from i on; end of those read by cells before i."""
    cells = np.arange(sizes[target] + 1)
    ranges = {target: (cells, cells)}
    for node in reversed(path):
        low, high = node.operator.read(axis, *ranges.pop(node.output))
        for name in node.inputs:
            start, stop = np.clip(low, 0, sizes[name]), np.clip(high, 0, sizes[name])
            if name in ranges:
                start, stop = np.minimum(start, ranges[name][0]), np.maximum(stop, ranges[name][1])
            ranges[name] = start, stop
    return ranges[source][0].tolist(), ranges[source][1].tolist()
