"""Reads the geometry of an ONNX graph: which tensors are feature maps, and which window each cell depends on.

A tensor is a *map* if each of its cells depends on a window of the input, and neighbouring cells on windows
at a constant distance. Reading starts at the input and follows operators of known geometry, including those
of onnxruntime's optimised graphs. An unknown operator ends the reuse; none is assumed to be element-wise
(decision 052). The geometry must also hold for a crop of the map. Therefore constants with rows of their own,
sizes that the graph computes, and resizing to a given size also end the reuse. Integer maps must be equal bit
by bit. Where rounding of floats may depend on the crop, quantisation ends the reuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from nearsight.common.video.propagation import Node, Pair, Window

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_Axes = Pair
CHANNELS_FIRST: _Axes = (2, 3)
"""Rows and columns of (N, C, H, W). onnxruntime declares its blocked tensors with these axes, too."""
CHANNELS_LAST: _Axes = (1, 2)
_POINT = Window()
_MODERN_SOFTMAX = 13
"""First version of the ONNX operator set in which Softmax works along one axis."""


class Map(NamedTuple):
    """Geometry of a feature map."""

    axes: _Axes
    """Axes of the rows and of the columns."""
    size: Pair
    """Number of rows and columns."""
    pitch: tuple[Fraction, Fraction]
    """Distance between neighbouring cells, in cells of the input: rows, columns."""


class GraphRegions:
    """The part of a graph that consists of maps: those that depend on one of the network's inputs.

    Parameters
    ----------
    model : ModelProto
        Should have fixed sizes and folded constants, as in a graph that onnxruntime saved. Otherwise the
        reuse ends earlier.
    source : str
        Name of the input.
    size : tuple of int
        Rows and columns of the input.
    axes : tuple of int
        Axes of the rows and columns: `CHANNELS_FIRST` or `CHANNELS_LAST`.

    Attributes
    ----------
    nodes : list of Node
        Windows between maps, in order of execution.
    maps : dict of str to Map
        By the names of the graph's tensors.
    ended_by : list of str
        Operators that end the reuse, in order; an operator may occur several times.
    opset : int
        Version of the operators.
    constants : dict of str to TensorProto
    """

    def __init__(self, model: ModelProto, source: str, size: Pair, axes: _Axes = CHANNELS_FIRST) -> None:
        self.nodes: list[Node] = []
        self.maps = {source: Map(axes, size, (Fraction(1), Fraction(1)))}
        self.ended_by: list[str] = []
        self.opset = max(
            (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0
        )
        self.constants: dict[str, TensorProto] = {one.name: one for one in model.graph.initializer}
        self._inexact = set[str]()
        """Maps whose last bits may depend on the position of a crop."""
        self._dequantised: dict[str, str] = {}
        """Outputs of DequantizeLinear, and its inputs: constants that the library computes at run time."""
        for node in model.graph.node:
            self._read(node)

    def _read(self, node: NodeProto) -> None:
        """Add the outputs of a node to the maps, or its operator to those that end the reuse."""
        if node.op_type == "Constant":
            self.constants.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
        if node.op_type == "DequantizeLinear":
            self._dequantised[node.output[0]] = node.input[0]
        given = [name for name in node.input if name in self.maps]
        if not given or node.op_type == "Shape":
            return
        rule = _RULES.get((node.domain.removeprefix("ai.onnx"), node.op_type))
        operator = _Operator(self, node)
        window = rule(operator) if rule is not None else None
        inexact = not self._inexact.isdisjoint(given)
        if window is None or (inexact and operator.is_step_function()):
            self.ended_by.append(node.op_type)
            return
        first = self.maps[given[0]]
        pitch = first.pitch[0] * window.pitch(0), first.pitch[1] * window.pitch(1)
        output_map = Map(operator.axes, window.shape_out(first.size), pitch)
        if min(output_map.size) < 1 or self.maps.get(operator.addend or "", output_map) != output_map:
            self.ended_by.append(node.op_type)
            return
        if inexact or (node.domain != _BLOCKED and node.op_type in _INEXACT.split()):
            self._inexact.update(node.output)
        for output in filter(None, node.output):
            self._add(window, operator, output)
            self.maps[output] = output_map

    def _add(self, window: Window, operator: _Operator, output: str) -> None:
        """Add a window, followed by an addition if the operator adds a map to its outputs."""
        if operator.addend is None:
            self.nodes.append(Node(window, tuple(operator.maps), output))
            return
        before = f"{output} without {operator.addend}"
        self.nodes.append(Node(window, tuple(operator.maps), before))
        self.nodes.append(Node(_POINT, (before, operator.addend), output))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of a constant; None if there is no constant of this name."""
        found = self.constants.get(self._dequantised.get(name, name))
        return None if found is None else tuple(found.dims)


class _Operator:
    """One node: its attributes, and the maps and constants among its inputs."""

    def __init__(self, regions: GraphRegions, node: NodeProto) -> None:
        from onnx import helper  # noqa: PLC0415  optional

        self._regions = regions
        self.node = node
        self._attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self.maps = [name for name in node.input if name in regions.maps]
        self.first = regions.maps[self.maps[0]]
        self.axes = self.first.axes
        """Axes of rows and columns: of the first map, and then of the outputs."""
        self.opset = regions.opset
        self.addend: str | None = None
        """A map that the operator adds to its outputs, element by element; None if there is none."""

    def attribute(self, name: str, default: Any) -> Any:
        """Value of an attribute, with byte strings decoded."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def has(self, place: int) -> bool:
        """Whether the node has an input at this position. Optional inputs may be omitted."""
        return place < len(self.node.input) and bool(self.node.input[place])

    def values(self, place: int) -> list[Any] | None:
        """Elements of a constant input; None if the input is not constant."""
        from onnx import numpy_helper  # noqa: PLC0415  optional

        found = self._regions.constants.get(self.node.input[place]) if self.has(place) else None
        return None if found is None else numpy_helper.to_array(found).reshape(-1).tolist()

    def shape(self, place: int) -> tuple[int, ...] | None:
        """Shape of a constant input; None if the input is not constant."""
        return self._regions.shape(self.node.input[place]) if self.has(place) else None

    def reads_one_map(self) -> bool:
        """Whether the first input is a map and all other inputs are constants."""
        return self._others_are_constant(range(1, len(self.node.input)))

    def read_addend(self) -> bool:
        """Whether input 0 is a map, input 3 a map or missing, and the rest constants; sets `addend`."""
        if not self.has(3):
            return self.reads_one_map()
        self.addend = self.node.input[3]
        self.maps = self.maps[:1]
        return self.addend in self._regions.maps and self._others_are_constant((1, 2))

    def _others_are_constant(self, places: Any) -> bool:
        return self.node.input[0] in self._regions.maps and all(
            self.shape(place) is not None for place in places if self.has(place)
        )

    def is_aligned(self) -> bool:
        """Whether all inputs are maps of the same geometry, or constants of size 1 along rows and columns."""
        alike = all(self._regions.maps[name] == self.first for name in self.maps)
        return alike and all(
            self.node.input[place] in self.maps or self._is_flat(place)
            for place in range(len(self.node.input))
            if self.has(place)
        )

    def _is_flat(self, place: int) -> bool:
        shape = self.shape(place)
        if shape is None or len(shape) > 4:
            return False
        aligned = (1,) * (4 - len(shape)) + shape
        return all(aligned[axis] == 1 for axis in self.first.axes)

    def is_step_function(self) -> bool:
        """Whether outputs may differ by a whole step if inputs differ in their last bits."""
        to_integers = self.node.op_type == "Cast" and self.attribute("to", 0) not in _FLOATS
        return to_integers or self.node.op_type in _STEP_FUNCTIONS.split()

    def is_spatial(self, axes: list[int]) -> bool:
        """Whether rows or columns are among these axes."""
        return any(axis % 4 in self.first.axes for axis in axes)


def _element_wise(operator: _Operator) -> Window | None:
    return _POINT if operator.is_aligned() else None


def _per_channel(operator: _Operator) -> Window | None:
    """Normalisation with constants, and LRN, which combines channels of one cell."""
    known = operator.axes == CHANNELS_FIRST and operator.reads_one_map()
    return _POINT if known and not operator.attribute("training_mode", 0) else None


def _convolution(operator: _Operator) -> Window | None:
    quantised = operator.node.op_type == "QLinearConv"
    shape = operator.shape(3 if quantised else 1)
    if shape is None or operator.axes != _axes(operator):
        return None
    if not (operator.reads_one_map() if quantised else operator.read_addend()):
        return None
    return _window(operator, operator.attribute("kernel_shape", shape[2:]))


def _axes(operator: _Operator) -> _Axes:
    """Axes of rows and columns. Some quantised operators have the channels last."""
    last = operator.attribute("channels_last", 0) or operator.node.op_type.startswith("Nhwc")
    return CHANNELS_LAST if last else CHANNELS_FIRST


def _transposed_convolution(operator: _Operator) -> Window | None:
    """A convolution of the map with zeros inserted between its cells; ``pads`` crop the output."""
    shape = operator.shape(1)
    if shape is None or operator.axes != CHANNELS_FIRST or not operator.reads_one_map():
        return None
    kernel, more = operator.attribute("kernel_shape", shape[2:]), operator.attribute("output_padding", (0, 0))
    strides, dilation = (tuple(operator.attribute(name, (1, 1))) for name in ("strides", "dilations"))
    mode, sizes = operator.attribute("auto_pad", "NOTSET"), operator.attribute("output_shape", None)
    cropped = operator.attribute("pads", (0, 0, 0, 0)) if mode == "NOTSET" else (0, 0, 0, 0)
    if sizes is not None or mode.startswith("SAME"):
        missing = []
        for axis, cells in enumerate(operator.first.size):
            full = (cells - 1) * strides[axis] + dilation[axis] * (kernel[axis] - 1) + 1 + more[axis]
            missing.append(full - (cells * strides[axis] if sizes is None else sizes[axis - 2]))
        if sizes is not None and min(missing) < 0:
            return None  # cells are added at the end of the map, which is not possible in a crop
        cropped = _at_both_ends(missing, mode)
    pads = transposed_pads(kernel, dilation, cropped, more)
    return Window((kernel[0], kernel[1]), pads=pads, dilation=dilation, repeats=strides, spread=True)


def _at_both_ends(missing: Sequence[int], mode: str) -> tuple[int, int, int, int]:
    """Padding: top, left, bottom, right. An odd cell is at the end for SAME_UPPER, else at the start."""
    rows, columns = (max(one, 0) for one in missing)
    less, more = (rows // 2, columns // 2), (rows - rows // 2, columns - columns // 2)
    return (*less, *more) if mode == "SAME_UPPER" else (*more, *less)


def transposed_pads(
    kernel: Sequence[int], dilation: Sequence[int], pads: Sequence[int], more: Sequence[int]
) -> tuple[int, int, int, int]:
    """Convert a transposed convolution's crop of the output to the padding of its windows, or vice versa."""
    rows, columns = (one * (cells - 1) for one, cells in zip(dilation, kernel, strict=True))
    top, left, bottom, right = pads
    return rows - top, columns - left, rows - bottom + more[0], columns - right + more[1]


def _pooling(operator: _Operator) -> Window | None:
    only_values = len([name for name in operator.node.output if name]) == 1
    if operator.axes != _axes(operator) or not only_values or not operator.reads_one_map():
        return None
    return _window(operator, operator.attribute("kernel_shape", ()))


def _window(operator: _Operator, kernel: Any) -> Window:
    window = Window(
        (kernel[0], kernel[1]),
        tuple(operator.attribute("strides", (1, 1))),
        tuple(operator.attribute("pads", (0, 0, 0, 0))),
        tuple(operator.attribute("dilations", (1, 1))),
        bool(operator.attribute("ceil_mode", 0)),
    )
    mode = operator.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return window
    if mode == "VALID":
        return window._replace(pads=(0, 0, 0, 0))
    # SAME: the output's size is the map's, divided by the stride and rounded up. The padding that this
    # requires is split between both sides.
    missing = []
    for axis, cells in enumerate(operator.first.size):
        stride, span = window.stride[axis], window.dilation[axis] * (window.kernel[axis] - 1) + 1
        missing.append((-(-cells // stride) - 1) * stride + span - cells)
    return window._replace(pads=_at_both_ends(missing, mode), ceil=False)


def _padding(operator: _Operator) -> Window | None:
    given = operator.values(1) if operator.has(1) else operator.attribute("pads", None)
    axes = operator.values(3) if operator.has(3) else [0, 1, 2, 3]
    if given is None or axes is None or not operator.reads_one_map():
        return None
    if operator.attribute("mode", "constant") != "constant" or min(given) < 0:
        return None
    before, after = [0] * 4, [0] * 4
    for place, axis in enumerate(axes):
        before[axis % 4], after[axis % 4] = given[place], given[place + len(axes)]
    rows, columns = operator.axes
    return Window(pads=(before[rows], before[columns], after[rows], after[columns]))


def _quantisation(operator: _Operator) -> Window | None:
    """Quantisation and dequantisation with one scale, or one scale per channel."""
    shape = operator.shape(1)
    if shape is None or not operator.reads_one_map() or operator.attribute("block_size", 0):
        return None
    by_channel = not operator.is_spatial([operator.attribute("axis", 1)])
    return _POINT if by_channel or math.prod(shape) == 1 else None


def _concatenation(operator: _Operator) -> Window | None:
    """Concatenation along the channels. QLinearConcat has a scale and zero point first and after each map."""
    given = len(operator.node.input)
    tensors = given if operator.node.op_type == "Concat" else given // 3
    if len(operator.maps) < tensors or operator.is_spatial([operator.attribute("axis", 1)]):
        return None
    return _POINT if operator.is_aligned() else None


def _along_axis(operator: _Operator) -> Window | None:
    """Split and softmax along the channels."""
    splits = operator.node.op_type == "Split"
    axis = operator.attribute("axis", 0 if splits else -1)
    if operator.is_spatial([axis]) or not operator.reads_one_map():
        return None
    return _POINT if splits or operator.opset >= _MODERN_SOFTMAX else None


def _transposition(operator: _Operator) -> Window | None:
    order = list(operator.attribute("perm", (3, 2, 1, 0)))
    operator.axes = order.index(operator.axes[0]), order.index(operator.axes[1])
    return _POINT if operator.axes in (CHANNELS_FIRST, CHANNELS_LAST) else None


def _reordering(operator: _Operator) -> Window | None:
    """Conversion to and from onnxruntime's blocked layout."""
    other = CHANNELS_LAST if operator.attribute("channels_last", 0) else CHANNELS_FIRST
    if operator.node.op_type == "ReorderInput" and operator.axes != other:
        return None
    operator.axes = other if operator.node.op_type == "ReorderOutput" else CHANNELS_FIRST
    return _POINT


def _upsampling(operator: _Operator) -> Window | None:
    """Enlargement with nearest neighbours by constant integer factors."""
    scales = operator.attribute("scales", None) or operator.values(2)
    way = operator.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = operator.attribute("nearest_mode", "round_prefer_floor")
    is_exact = (
        operator.node.domain == _BLOCKED  # always repeats cells
        or (way, rounding) == ("asymmetric", "floor")
        or (way.endswith("half_pixel") and rounding.startswith("round"))
    )
    is_nearest = operator.attribute("mode", "nearest") == "nearest"
    if scales is None or len(scales) != 4 or operator.has(3) or not is_nearest:
        return None
    rows, columns = (int(scales[axis]) for axis in operator.axes)
    factors = dict(zip(operator.axes, (rows, columns), strict=True))
    if not is_exact or scales != [factors.get(axis, 1) for axis in range(4)] or min(rows, columns) < 1:
        return None
    return Window(repeats=(rows, columns))


_ELEMENT_WISE = (
    "Abs Add Cast Ceil Celu Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log Max "
    "Mean Min Mish Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Sum "
    "Swish Tanh ThresholdedRelu"
)
_FUSED_ELEMENT_WISE = "BiasGelu FastGelu Gelu QuickGelu QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu"
_STEP_FUNCTIONS = "Ceil Floor QuantizeLinear Round Sign ThresholdedRelu"
"""If inputs near a step differ in their last bits, outputs may differ by a whole step. So does a Cast, except
to `_FLOATS`."""
_FLOATS = frozenset((1, 10, 11, 16))
"""Numbers of the element types float32, float16, float64 and bfloat16 in ONNX."""
_INEXACT = (
    "BiasGelu Celu Conv ConvTranspose Elu Erf Exp FastGelu FusedConv Gelu LRN Log LogSoftmax Mish Pow "
    "QuickGelu Selu Sigmoid Softmax Softplus Softsign Swish Tanh"
)
"""The library may compute these in another order or with other steps if the map has another size."""
_FUSED, _BLOCKED = "com.microsoft", "com.microsoft.nchwc"
_RULES: Mapping[tuple[str, str], Callable[[_Operator], Window | None]] = MappingProxyType(
    {("", name): _element_wise for name in _ELEMENT_WISE.split()}
    | {(_FUSED, name): _element_wise for name in _FUSED_ELEMENT_WISE.split()}
    | {(domain, "Conv"): _convolution for domain in ("", _BLOCKED)}
    | {(domain, "QLinearConv"): _convolution for domain in ("", _FUSED)}
    | {(_FUSED, name): _pooling for name in ("NhwcMaxPool", "QLinearAveragePool")}
    | {("", name): _quantisation for name in ("QuantizeLinear", "DequantizeLinear")}
    | {(domain, name): _pooling for domain in ("", _BLOCKED) for name in ("MaxPool", "AveragePool")}
    | {("", name): _per_channel for name in ("BatchNormalization", "LRN")}
    | {("", name): _along_axis for name in ("Split", "Softmax", "LogSoftmax")}
    | {(_BLOCKED, name): _reordering for name in ("ReorderInput", "ReorderOutput")}
    | {("", "Concat"): _concatenation, ("", "Pad"): _padding, ("", "Transpose"): _transposition}
    | {
        (_FUSED, "FusedConv"): _convolution,
        (_FUSED, "QLinearConcat"): _concatenation,
        ("", "ConvTranspose"): _transposed_convolution,
        ("", "Resize"): _upsampling,
        (_BLOCKED, "Upsample"): _upsampling,
    }
)
