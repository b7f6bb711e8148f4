"""Cuts a network into segments: files that each execute some of its nodes, on whole maps or on crops of them.

onnxruntime first optimises the graph for a fixed input shape, and the optimised graph is cut. So all fusions
are kept, and outputs equal those of the uncut graph. Cuts are placed where few maps are alive. The nodes from
the first operator without known geometry on form the tail, which always runs whole. All segments map one
common file of weights; a second network that uses these weights needs no additional memory (decision 054).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.common.inference.graph_regions import GraphRegions, transposed_pads
from nearsight.common.inference.runtime import SAVED_GRAPH, Runtime
from nearsight.common.inference.segments import REUSED, TAIL, Cut, Layout, Segment, Segments
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.propagation import Node

if TYPE_CHECKING:
    import onnx

_BLOCKED_DOMAIN, _UNBLOCKING = "com.microsoft.nchwc", "ReorderOutput"
_MOST_ALIVE = 4
"""Maximum number of maps that are alive at a cut."""
_PROBE_CHANNELS = 64


class OptimisedGraph:
    """A graph that onnxruntime optimised for one input shape, and that can be cut.

    Its body consists of the nodes whose outputs are maps, its tail of all other nodes.

    Parameters
    ----------
    runtime : Runtime
    folder : Path
        Contains the graph and its weights (`saved_graphs.save_optimised`).
    sample : ndarray
        An input.

    Attributes
    ----------
    cuts : tuple of Cut
        Possible cuts; the last one ends the body.
    layouts : dict of str to Layout
        Layouts of the maps that are alive at a cut.

    Raises
    ------
    InvalidArgument
        If no part of the graph has a known geometry.
    """

    def __init__(self, runtime: Runtime, folder: Path, sample: Tensor) -> None:
        import onnx  # noqa: PLC0415  optional

        self._onnx = onnx
        self._runtime, self._folder = runtime, folder
        self._model = onnx.load(str(folder / SAVED_GRAPH), load_external_data=False)
        graph = self._model.graph
        self._weights = {one.name for one in graph.initializer}
        self.source = next(one.name for one in graph.input if one.name not in self._weights)
        frame = Layout.of_frame(sample.shape)
        axes = frame.rows_axis, frame.rows_axis + 1
        self._regions = GraphRegions(self._model, self.source, frame.size, axes)
        maps = self._regions.maps
        self.layouts = {self.source: self._layout(self.source, sample)}
        self._outputs = [one.name for one in graph.output]
        needed = _ancestors(graph.node, self._outputs)  # the library leaves unused nodes in the graph
        nodes, self._constant = self._split_constants(needed)
        self._body = [node for node in nodes if all(name in maps for name in node.output if name)]
        self._tail = [node for node in nodes if any(name not in maps for name in node.output if name)]
        body = {self.source, *(name for node in self._body for name in node.output)}
        self._tail_sources = self._tensors_read(self._tail, body)
        self.cuts = self._find_cuts()
        if not self.cuts:
            ended_by = ", ".join(dict.fromkeys(self._regions.ended_by))
            raise InvalidArgument(f"no map can be reused after {ended_by}")
        self.layouts = self._find_layouts(sample)

    def write(self, positions: Sequence[int], rests: int | None = None) -> Segments:
        """Write the files of all segments between these cuts, of the rests, and of the tail.

        Parameters
        ----------
        positions : sequence of int
            Positions of cuts, ascending; the last one ends the body.
        rests : int, optional
            Number of rests to write, starting with the whole body. Default: all.
        """
        starts = (0, *positions[:-1])
        segments = [
            self._part(f"segment-{number:03}.onnx", start, stop)
            for number, (start, stop) in enumerate(zip(starts, positions, strict=True))
        ]
        rest_segments = [
            self._part(f"rest-{number:03}.onnx", start, positions[-1], fixed=True)
            for number, start in enumerate(starts[:rests])
        ]
        outputs = tuple(name for name in self._outputs if name in self.cuts[-1].alive)
        ends = tuple(name for name in self._outputs if name not in outputs)
        if ends:
            self._write(TAIL, self._tail, self._tail_sources, ends, fixed=True)
        used = {name for one in segments for name in (*one.sources, *one.targets)}
        layouts = {name: layout for name, layout in self.layouts.items() if name in used}
        read = {name for node in self._with_constants(self._tail) for name in node.input}
        tail_bytes = sum(
            math.prod(one.dims) * self._onnx.helper.tensor_dtype_to_np_dtype(one.data_type).itemsize
            for one in self._model.graph.initializer
            if one.name in read
        )
        return Segments(
            self.source,
            layouts,
            tuple(segments),
            tuple(rest_segments),
            self._tail_sources,
            outputs,
            tail_bytes,
        )

    def _part(self, file: str, start: int, stop: int, *, fixed: bool = False) -> Segment:
        """Write the nodes between two positions. With ``fixed``, sizes are fixed and no geometry is kept."""
        nodes = self._body[start:stop]
        before = {self.source, *(name for node in self._body[:start] for name in node.output)}
        made = {name for node in nodes for name in node.output}
        alive = next(cut.alive for cut in self.cuts if cut.position == stop)
        sources, targets = self._tensors_read(nodes, before), tuple(name for name in alive if name in made)
        self._write(file, nodes, sources, targets, fixed=fixed)
        return Segment(file, sources, targets, () if fixed else self._geometry(sources, targets))

    def _tensors_read(self, nodes: Iterable[onnx.NodeProto], among: Iterable[str]) -> tuple[str, ...]:
        """Tensors among ``among`` that the nodes read, without duplicates."""
        known = set(among)
        return tuple(dict.fromkeys(name for node in nodes for name in node.input if name in known))

    def _split_constants(
        self, nodes: Sequence[onnx.NodeProto]
    ) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
        """Split into nodes that depend on the input, and nodes that compute constants, such as weights."""
        known, parts = {"", *self._weights}, (list[Any](), list[Any]())
        for node in nodes:
            constant = known.issuperset(node.input)
            parts[constant].append(node)
            known.update(node.output if constant else ())
        return parts

    def _with_constants(
        self, nodes: Sequence[onnx.NodeProto], targets: Sequence[str] = ()
    ) -> list[onnx.NodeProto]:
        """Prepend the nodes that compute the constants which these nodes read."""
        read = (name for node in nodes for name in node.input)
        return [*_ancestors(self._constant, (*targets, *read)), *nodes]

    def _find_cuts(self) -> tuple[Cut, ...]:
        last_use = {name: at for at, node in enumerate(self._body) for name in node.input}
        last_use |= dict.fromkeys((*self._tail_sources, *self._outputs), len(self._body))
        alive, cuts = [self.source], []
        for at, node in enumerate(self._body):
            alive = [name for name in (*alive, *node.output) if last_use.get(name, -1) > at]
            if len(alive) <= _MOST_ALIVE or at + 1 == len(self._body):
                cuts.append(Cut(at + 1, tuple(alive)))
        return tuple(cuts)

    def _find_layouts(self, sample: Tensor) -> dict[str, Layout]:
        """Determine layouts: shapes from one execution, blocked layout from the operators that produce it."""
        blocked = set[str]()
        for node in self._body:
            if node.domain == _BLOCKED_DOMAIN and node.op_type == _UNBLOCKING:
                continue
            if node.domain == _BLOCKED_DOMAIN or blocked.intersection(node.input):
                blocked.update(node.output)
        block = probe_block(self._runtime, self._folder) if blocked else 0
        names = tuple(dict.fromkeys(name for cut in self.cuts for name in cut.alive if name != self.source))
        path = self._folder / "maps.onnx"
        self._write(path.name, self._body, (self.source,), names)
        network = self._runtime.load(path, "all maps", saved=True)
        found = {self.source: sample, **network.run({"": sample})}
        network.close()
        path.unlink()
        return {
            name: self._layout(name, tensor, block if name in blocked else 0)
            for name, tensor in found.items()
        }

    def _layout(self, name: str, tensor: Tensor, block: int = 0) -> Layout:
        if tensor.dtype.name not in REUSED or tensor.ndim != 4 or tensor.shape[0] != 1:
            raise InvalidArgument(
                f"{name!r} is {tensor.dtype} {tensor.shape}: only maps of one image "
                f"with elements of {', '.join(REUSED)} can be reused"
            )
        place = self._regions.maps[name]
        return Layout(tensor.shape, place.axes[0], block, place.pitch, tensor.dtype.name)

    def _geometry(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[Node, ...]:
        """Geometry between sources and targets."""
        wanted, path = set(targets), list[Node]()
        for node in reversed(self._regions.nodes):
            if node.output in wanted and node.output not in sources:
                wanted.update(node.inputs)
                path.append(node)
        return tuple(path[::-1])

    def _write(
        self,
        file: str,
        nodes: Sequence[onnx.NodeProto],
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        fixed: bool = False,
    ) -> None:
        """Write nodes as a network. With fixed sizes the library plans its memory better."""
        helper, graph = self._onnx.helper, self._model.graph
        nodes = self._with_constants(nodes, targets)  # an output may be a constant
        used = {name for node in nodes for name in node.input} | {*targets}
        ends: dict[str, onnx.ValueInfoProto] = {one.name: one for one in graph.output} if fixed else {}

        def declared(name: str) -> onnx.ValueInfoProto:
            # Maps are declared as measured: with ceil_mode the library would infer other sizes.
            layout = self.layouts.get(name)
            if layout is None:
                return ends[name]
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(layout.dtype))
            sizes = layout.shape if fixed else [None] * 4
            made: onnx.ValueInfoProto = helper.make_tensor_value_info(name, kind, sizes)
            return made

        def made_here(name: str) -> onnx.ValueInfoProto:
            # A crop's output is smaller than the network declares; the library infers its type.
            return declared(name) if fixed else self._onnx.ValueInfoProto(name=name)

        made = helper.make_graph(
            [node if fixed else self._with_explicit_pads(node) for node in nodes],
            file,
            [declared(name) for name in sources],
            [made_here(name) for name in targets],
            [one for one in graph.initializer if one.name in used],
        )
        model = helper.make_model(
            made, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        self._onnx.save(model, str(self._folder / file))

    def _with_explicit_pads(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Replace automatic padding by numbers: "SAME" depends on the size, which differs for a crop."""
        automatic = [
            one
            for one in node.attribute
            if one.name == "output_shape" or (one.name == "auto_pad" and one.s not in (b"", b"NOTSET"))
        ]
        if not automatic:
            return node
        output = node.output[0]
        window = next(
            one.operator for one in self._regions.nodes if one.output.partition(" without ")[0] == output
        )
        pads: Sequence[int] = window.pads
        if window.spread:
            more = next((one.ints for one in node.attribute if one.name == "output_padding"), (0, 0))
            pads = transposed_pads(window.kernel, window.dilation, pads, more)
        copy = self._onnx.NodeProto()
        copy.CopyFrom(node)
        kept = [one for one in node.attribute if one.name not in ("auto_pad", "pads", "output_shape")]
        del copy.attribute[:]
        copy.attribute.extend([*kept, self._onnx.helper.make_attribute("pads", pads)])
        return copy


def _ancestors(nodes: Sequence[onnx.NodeProto], tensors: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes on which these tensors depend, in order of execution."""
    wanted, found = set(tensors), list[Any]()
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            found.append(node)
    return found[::-1]


def probe_block(runtime: Runtime, folder: Path) -> int:
    """Number of channels per block of a blocked tensor, measured because the library does not state it."""
    import onnx  # noqa: PLC0415  optional

    node = onnx.helper.make_node("ReorderInput", ["x"], ["y"], domain=_BLOCKED_DOMAIN)
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4) for name in "xy")
    graph = onnx.helper.make_graph([node], "probe", [x], [y])
    domains = [onnx.helper.make_opsetid(name, version) for name, version in (("", 17), (_BLOCKED_DOMAIN, 1))]
    path = folder / "probe.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))
    network = runtime.load(path, "the probe", saved=True)
    path.unlink()
    # Channel c at column w holds 2 c + w. So 1 is at column 1, after all channels of column 0 in the block.
    sample = np.arange(2 * _PROBE_CHANNELS, dtype=np.float32).reshape(1, _PROBE_CHANNELS, 1, 2)
    found = network.run({"x": sample})["y"].reshape(-1)
    network.close()
    return int(np.argmax(found == 1))
