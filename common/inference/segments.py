"""A network in segments: files that each execute some of its nodes, on whole maps or on crops of them.

`graph_partitioning` writes the files. This module describes them, and the maps that they read and write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from nearsight.common.video.propagation import Node, Window

TAIL = "tail.onnx"
REUSED = ("float32", "uint8", "int8")
"""Element types of maps that can be reused."""


@dataclass(frozen=True)
class Layout:
    """Shape and memory layout of a cached map.

    Attributes
    ----------
    shape : tuple of int
        Shape that the graph declares: (1, C, H, W) or (1, H, W, C).
    rows_axis : int
        Axis of H; W is the next one.
    block : int
        Number of channels per block, if the map is stored as (C / block, H, W, block). 0: the map is stored
        in the declared shape.
    pitch : tuple of Fraction
        Distance between neighbouring cells [pixels of the input]: rows, columns.
    dtype : str
        Element type; one of `REUSED`.
    """

    shape: tuple[int, ...]
    rows_axis: int
    block: int
    pitch: tuple[Fraction, Fraction]
    dtype: str = "float32"

    @property
    def size(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.shape[self.rows_axis], self.shape[self.rows_axis + 1]

    @property
    def size_bytes(self) -> int:
        """Memory of the whole map."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)

    def declared(self, rows: int, columns: int) -> tuple[int, ...]:
        """Declared shape of a crop with this many rows and columns."""
        at = self.rows_axis
        return (*self.shape[:at], rows, columns, *self.shape[at + 2 :])

    def stored(self, rows: int, columns: int) -> tuple[int, ...]:
        """Shape in memory of a crop with this many rows and columns; `stored_axis` is the rows' axis."""
        if self.block:
            return (self.shape[1] // self.block, rows, columns, self.block)
        return self.declared(rows, columns)

    @property
    def stored_axis(self) -> int:
        """Axis of the rows in the memory layout."""
        return 1 if self.block else self.rows_axis


class Segment(NamedTuple):
    """Consecutive nodes: their file, the maps they read and write, and the geometry between these maps."""

    file: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Segments:
    """A network in segments, as stored in a folder.

    Attributes
    ----------
    source : str
        The input, which is also a map.
    layouts : mapping of str to Layout
        Layouts of the maps that segments read and write.
    segments : tuple of Segment
        In order of execution.
    rests : tuple of Segment
        ``rests[i]`` contains all segments from number i on as one, for whole maps only.
    tail_sources : tuple of str
        Maps that the tail reads; empty without a tail. The tail computes the outputs that are not maps.
    outputs : tuple of str
        Maps that are outputs of the network.
    tail_bytes : int
        Size of the tail's weights.
    """

    source: str
    layouts: Mapping[str, Layout]
    segments: tuple[Segment, ...]
    rests: tuple[Segment, ...]
    tail_sources: tuple[str, ...]
    outputs: tuple[str, ...]
    tail_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Encode for `from_json`."""
        return {
            "source": self.source,
            "layouts": {
                name: [one.shape, one.rows_axis, one.block, [str(pitch) for pitch in one.pitch], one.dtype]
                for name, one in self.layouts.items()
            },
            "segments": [
                [*one[:3], [[astuple(node.operator), *node[1:]] for node in one.nodes]]
                for one in self.segments
            ],
            "rests": self.rests,
            "tail_sources": self.tail_sources,
            "outputs": self.outputs,
            "tail_bytes": self.tail_bytes,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Segments:
        """Decode from `to_json`."""
        layouts = {
            name: Layout(tuple(shape), axis, block, (Fraction(pitch[0]), Fraction(pitch[1])), dtype)
            for name, (shape, axis, block, pitch, dtype) in values["layouts"].items()
        }
        segments, rests = (
            tuple(
                Segment(file, tuple(sources), tuple(targets), tuple(map(_node, nodes)))
                for file, sources, targets, nodes in values[kind]
            )
            for kind in ("segments", "rests")
        )
        tail_sources, outputs = (tuple(values[name]) for name in ("tail_sources", "outputs"))
        return cls(values["source"], layouts, segments, rests, tail_sources, outputs, values["tail_bytes"])


def _node(values: Sequence[Any]) -> Node:
    operator, inputs, output = values
    fields: list[Any] = [tuple(one) if isinstance(one, list) else one for one in operator]
    return Node(Window(*fields), tuple(inputs), output)


class Cut(NamedTuple):
    """A position between two nodes of the body, and the maps that are alive there."""

    position: int
    """Number of nodes before the cut."""
    alive: tuple[str, ...]
