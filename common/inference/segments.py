"""A network in segments: files that each execute some of its nodes, on whole maps or on crops of them.

`graph_partitioning` writes the files. This module describes them, and the maps that they read and write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from nearsight.common.video.propagation import Node

TAIL = "tail.onnx"
REUSED = ("float32", "uint8", "int8")
"""Element types of maps that can be reused."""


class Layout(NamedTuple):
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

    @classmethod
    def of_frame(cls, shape: tuple[int, ...], dtype: str = "float32") -> Layout:
        """Layout of a network's input. The channels are last if the last axis is shorter than the second."""
        return cls(shape, 1 if shape[3] < shape[1] else 2, 0, (Fraction(1), Fraction(1)), dtype)

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


class Cut(NamedTuple):
    """A position between two nodes of the body, and the maps that are alive there."""

    position: int
    """Number of nodes before the cut."""
    alive: tuple[str, ...]
