"""Executes one segment of a network on whole maps, or on crops that yield the wanted cells.

A crop starts at a multiple of the segment's unit, so that its windows have the same positions as in the whole
map. It contains all cells that the wanted outputs read. The segment also pads the crop's borders inside the
map; outputs that depend on this padding are not wanted and are discarded. Each wanted cell is therefore
computed from the same numbers, by the same operators, as in a whole execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearsight.common.inference.map_changes import changed_cells, variance_of
from nearsight.common.inference.runtime import Network, Place
from nearsight.common.inference.segments import Layout, Segment
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.propagation import Node, RegionGraph
from nearsight.common.video.regions import EMPTY, Rectangle

_ALIGNMENT_BYTES = 64


def aligned(size_bytes: int) -> NDArray[np.uint8]:
    """Allocate zeros at an address that is aligned for vector instructions."""
    memory = np.zeros(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size_bytes]


class CachedMap:
    """A feature map that stays in memory from frame to frame.

    Parameters
    ----------
    name : str
        Name of the tensor in the graph.
    layout : Layout

    Attributes
    ----------
    whole : Rectangle
        All cells.
    variance : float
        Variance of the values over the cells, when it was last estimated; 0 before.
    """

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self.layout = layout
        self.whole = Rectangle(0, 0, *layout.size)
        self.variance = 0.0
        self._stored: Tensor | None = None

    @property
    def stored(self) -> Tensor:
        """The map in its memory layout; allocated at the first use."""
        if self._stored is None:
            layout = self.layout
            self._stored = aligned(layout.size_bytes).view(layout.dtype).reshape(layout.stored(*layout.size))
        return self._stored

    def use_memory(self, tensor: Tensor) -> None:
        """Use a tensor as the map's memory. The network's input is passed so, without a copy."""
        self._stored = tensor

    def place(self) -> Place:
        """The whole map as an argument of `Network.bind`."""
        return Place(self.name, self.stored, self.layout.shape)

    def estimate_variance(self) -> None:
        """Set `variance` from the current values."""
        self.variance = variance_of(self.stored, self.layout)

    def update(self, wanted: Rectangle, computed: Tensor, tolerance: float) -> Sequence[Rectangle]:
        """Store recomputed cells; with a tolerance, only those that changed. Returns what was stored.

        Parameters
        ----------
        wanted : Rectangle
            The recomputed cells.
        computed : ndarray
            Their values, in the memory layout.
        tolerance : float
            Cells keep their values if these differ by less than this share of the standard deviation.
        """
        stored: Sequence[Rectangle] = (wanted,)
        if tolerance and self.variance:
            threshold = tolerance**2 * self.variance
            stored = changed_cells(self.cells(wanted), computed, self.layout, threshold, wanted)
        for one in stored:
            self.cells(one)[...] = _part(computed, self.layout, one.moved(-wanted.top, -wanted.left))
        return stored

    def keep_similar(self, before: Tensor, tolerance: float) -> Sequence[Rectangle]:
        """Restore values that hardly changed in a whole execution; returns all other cells.

        Parameters
        ----------
        before : ndarray
            The values before, in the memory layout; it is overwritten.
        tolerance : float
            As for `update`.
        """
        if not self.variance:
            return (self.whole,)
        threshold = tolerance**2 * self.variance
        changed = changed_cells(before, self.stored, self.layout, threshold, self.whole)
        if changed != (self.whole,):
            for one in changed:
                _part(before, self.layout, one)[...] = self.cells(one)
            np.copyto(self.stored, before)
        return changed

    def values(self) -> Tensor:
        """A copy in the shape that the graph declares."""
        return self.stored.reshape(self.layout.shape).copy()

    def cells(self, rectangle: Rectangle) -> Tensor:
        """A view of a rectangle of cells, in the memory layout."""
        return _part(self.stored, self.layout, rectangle)

    def shift(self, offset: tuple[int, int]) -> None:
        """Move each cell p + offset to p [cells]. Cells whose source is outside the map keep their values."""
        rows, columns = offset
        height, width = self.layout.size
        to = Rectangle(max(0, -rows), max(0, -columns), height - max(0, rows), width - max(0, columns))
        if to.top < to.bottom and to.left < to.right:
            self.cells(to)[...] = self.cells(to.moved(rows, columns))  # numpy copies overlapping arrays first


def _part(tensor: Tensor, layout: Layout, cells: Rectangle) -> Tensor:
    """A view of a rectangle of cells of a tensor in this memory layout."""
    top, left, bottom, right = cells
    if layout.stored_axis == 1:
        return tensor[:, top:bottom, left:right]
    return tensor[:, :, top:bottom, left:right]


class Scratch:
    """Reusable memory for crops. Memory that was used last is still in the processor's cache."""

    def __init__(self) -> None:
        self._memory: dict[int, NDArray[np.uint8]] = {}

    def take(self, number: int, shape: Sequence[int], dtype: str) -> Tensor:
        """Memory of this shape. Each ``number`` identifies a separate buffer, which grows as needed."""
        size_bytes = np.dtype(dtype).itemsize * math.prod(shape)
        memory = self._memory.get(number)
        if memory is None or memory.size < size_bytes:
            memory = self._memory[number] = aligned(size_bytes)
        return memory[:size_bytes].view(dtype).reshape(shape)


class Crop(NamedTuple):
    """One execution of a segment on a part of its maps.

    Attributes
    ----------
    units : Rectangle
        Part that is cut out, in units of the segment.
    wanted : tuple of Rectangle
        Cells that are kept of each target; empty rectangles where none are.
    """

    units: Rectangle
    wanted: tuple[Rectangle, ...]


class _Propagation(NamedTuple):
    """How changes of one source propagate to one target, while other sources do not change.

    ``tops`` and ``bottoms`` are ``first`` and ``stop`` of the rows' `AxisTables`, ``lefts`` and ``rights`` of
    the columns'. They are looked up for each frame.
    """

    source: str
    target: int
    tops: list[int]
    lefts: list[int]
    bottoms: list[int]
    rights: list[int]
    graph: RegionGraph


class WholeSegment:
    """Nodes that are executed on whole maps only.

    Parameters
    ----------
    segment : Segment
    network : Network
        Loaded from the segment's file.
    maps : mapping of str to CachedMap
        At least the segment's sources and targets.
    """

    def __init__(self, segment: Segment, network: Network, maps: Mapping[str, CachedMap]) -> None:
        self.segment = segment
        self.network = network
        self.sources = [maps[name] for name in segment.sources]
        self.targets = [maps[name] for name in segment.targets]
        self._bound: tuple[list[int], Callable[[], None]] | None = None

    def run_whole(self) -> None:
        """Compute all cells of all targets."""
        addresses = [one.stored.ctypes.data for one in self.sources]
        if self._bound is None or self._bound[0] != addresses:  # the input has a new address for each frame
            places = [[one.place() for one in maps] for maps in (self.sources, self.targets)]
            self._bound = addresses, self.network.bind(*places)
        self._bound[1]()


class LoadedSegment(WholeSegment):
    """A segment that is executed on whole maps or on crops of them.

    Parameters
    ----------
    segment : Segment
    network : Network
        Loaded from the segment's file.
    maps : mapping of str to CachedMap
        At least the segment's sources and targets.
    scratch : Scratch

    Attributes
    ----------
    unit : tuple of int
        Rows, columns [pixels of the network's input]. Crops start and end at multiples of it.
    size : tuple of int
        Size of the segment's maps in units: rows, columns.
    """

    def __init__(
        self, segment: Segment, network: Network, maps: Mapping[str, CachedMap], scratch: Scratch
    ) -> None:
        super().__init__(segment, network, maps)
        self._scratch = scratch
        self._propagations = [
            propagation
            for source in self.sources
            for number, target in enumerate(self.targets)
            if (propagation := _propagation(segment.nodes, source, number, target)) is not None
        ]
        pitches = {source.name: source.layout.pitch for source in self.sources}
        # A unit is a whole number of pixels and a multiple of the pitch of every map, inner maps included.
        # A pitch may be a fraction such as 3/2.
        units = [
            [(one.graph.stride[axis] * pitches[one.source][axis]).numerator for one in self._propagations]
            for axis in (0, 1)
        ]
        self.unit = math.lcm(*units[0]), math.lcm(*units[1])
        self._per_unit = {
            one.name: tuple(int(self.unit[axis] / one.layout.pitch[axis]) for axis in (0, 1))
            for one in (*self.sources, *self.targets)
        }
        self.size = self._units_of_map(0), self._units_of_map(1)
        self._output_sizes: dict[tuple[int, tuple[int, ...]], dict[str, int]] = {}
        self._tables = [
            (*self._crop_tables(number, 0), *self._crop_tables(number, 1))
            for number in range(len(self.targets))
        ]

    def _units_of_map(self, axis: int) -> int:
        return max(-(-one.layout.size[axis] // self._per_unit[one.name][axis]) for one in self.sources)

    def _crop_tables(self, number: int, axis: int) -> tuple[list[int], list[int]]:
        """For each row or column of a target: the first and the last unit of a crop that yields it.

        If an output depends on padding only, nearby units are chosen, with room for the windows of all nodes.
        """
        target = self.targets[number]
        cells, per = target.layout.size[axis], self._per_unit[target.name][axis]
        starts = [min(cell // per, self.size[axis] - 1) for cell in range(cells + 1)]
        stops = [0] * (cells + 1)
        for one in self._propagations:
            if one.target == number:
                tables = one.graph.columns if axis else one.graph.rows
                per_source = self._per_unit[one.source][axis]
                for cell in range(cells):
                    starts[cell] = min(starts[cell], tables.low[cell] // per_source)
                    stops[cell + 1] = max(stops[cell + 1], -(-tables.high[cell + 1] // per_source))
        for cell in range(cells):  # enlarge crops that are smaller than the window of a node
            start, stop = starts[cell], max(stops[cell + 1], starts[cell] + 1)
            while min(self._sizes(axis, start, stop).values()) <= 0 and stop - start < self.size[axis]:
                start, stop = (start, stop + 1) if stop < self.size[axis] else (start - 1, stop)
            starts[cell], stops[cell + 1] = start, stop
        # A crop from the first to the last wanted cell is then large enough, too.
        starts[::-1] = accumulate(reversed(starts), min)
        stops[:] = accumulate(stops, max)
        return starts, stops

    def changed(
        self, changed: Mapping[str, Sequence[Rectangle]], offset: tuple[int, int]
    ) -> list[tuple[int, Rectangle]]:
        """Cells of the targets that change if these cells of the sources change.

        Parameters
        ----------
        changed : mapping of str to sequence of Rectangle
            Changed cells by source.
        offset : tuple of int
            Motion of the picture [pixels of the input].

        Returns
        -------
        Pairs of the target's number and a rectangle of its cells.
        """
        found = []
        for source, target, tops, lefts, bottoms, rights, graph in self._propagations:
            for top, left, bottom, right in changed[source]:
                to = Rectangle(tops[top], lefts[left], bottoms[bottom], rights[right])
                if to.top < to.bottom and to.left < to.right:
                    found.append((target, to))
            if offset != (0, 0):
                pitch = self.sources[self.segment.sources.index(source)].layout.pitch
                cells = int(offset[0] / pitch[0]), int(offset[1] / pitch[1])
                found += [(target, ring) for ring in graph.changed((), cells)]
        return found

    def crop(self, target: int, wanted: Rectangle) -> Crop:
        """The crop that yields these cells of a target."""
        tops, bottoms, lefts, rights = self._tables[target]
        units = Rectangle(tops[wanted.top], lefts[wanted.left], bottoms[wanted.bottom], rights[wanted.right])
        if len(self.targets) == 1:
            return Crop(units, (wanted,))
        return Crop(units, tuple(wanted if one == target else EMPTY for one in range(len(self.targets))))

    def merged_crop(self, one: Crop, other: Crop) -> Crop:
        """The smallest crop that yields the wanted cells of both."""
        wanted = tuple(map(Rectangle.union, one.wanted, other.wanted))
        return Crop(one.units.union(other.units), wanted)

    def run_crop(self, crop: Crop, tolerance: float = 0.0) -> list[Sequence[Rectangle]]:
        """Compute the wanted cells, and copy them into the cached targets as `CachedMap.update` does.

        Returns
        -------
        For each target: the cells that were stored.
        """
        inputs = []
        for number, source in enumerate(self.sources):
            cells = self.cells_of(source, crop.units)
            view = source.cells(cells)
            tensor = self._scratch.take(number, view.shape, source.layout.dtype)
            np.copyto(tensor, view)
            inputs.append(Place(source.name, tensor, source.layout.declared(cells.height, cells.width)))
        outputs, kept = [], []
        rows = self._sizes(0, crop.units.top, crop.units.bottom)
        columns = self._sizes(1, crop.units.left, crop.units.right)
        for number, (target, wanted) in enumerate(zip(self.targets, crop.wanted, strict=True)):
            size = rows[target.name], columns[target.name]
            tensor = self._scratch.take(-1 - number, target.layout.stored(*size), target.layout.dtype)
            outputs.append(Place(target.name, tensor, target.layout.declared(*size)))
            kept.append((target, wanted, tensor))
        self.network.bind(inputs, outputs)()
        stored: list[Sequence[Rectangle]] = []
        for target, wanted, tensor in kept:
            per = self._per_unit[target.name]
            at = wanted.moved(-crop.units.top * per[0], -crop.units.left * per[1])
            computed = _part(tensor, target.layout, at)
            stored.append(target.update(wanted, computed, tolerance) if wanted.area else ())
        return stored

    def cells_of(self, source: CachedMap, units: Rectangle) -> Rectangle:
        """The cells of a source that these units contain."""
        rows, columns = self._per_unit[source.name]
        height, width = source.layout.size
        return Rectangle(
            units.top * rows,
            units.left * columns,
            min(units.bottom * rows, height),
            min(units.right * columns, width),
        )

    def _sizes(self, axis: int, start: int, stop: int) -> Mapping[str, int]:
        """Number of cells of each map along an axis, for a crop from unit ``start`` to ``stop``."""
        cells = tuple(
            min(stop * per, one.layout.size[axis]) - start * per
            for one in self.sources
            for per in (self._per_unit[one.name][axis],)
        )
        found = self._output_sizes.get((axis, cells))
        if found is None:
            found = dict(zip(self.segment.sources, cells, strict=True))
            for node in self.segment.nodes:
                found[node.output] = node.operator.size(axis, found[node.inputs[0]])
            self._output_sizes[axis, cells] = found
        return found


def _propagation(
    nodes: Sequence[Node], source: CachedMap, number: int, target: CachedMap
) -> _Propagation | None:
    """Propagation from one source to one target; None if there is none."""
    reached, path = {source.name}, list[Node]()
    for node in nodes:
        inputs = tuple(name for name in node.inputs if name in reached)
        if inputs:
            reached.add(node.output)
            path.append(node._replace(inputs=inputs))
    if target.name not in reached:
        return None
    graph = RegionGraph(path, source.name, target.name, source.layout.size)
    rows, columns = graph.rows, graph.columns
    return _Propagation(source.name, number, rows.first, columns.first, rows.stop, columns.stop, graph)
