"""The law of propagation in onnxruntime: output cells whose inputs are unchanged are unchanged.

Each operator runs on a frame, and on the same frame with other pixels in a rectangle, or moved by an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from nearsight.common.inference.graph_regions import CHANNELS_LAST, GraphRegions
from nearsight.common.video.propagation import Pair, RegionGraph
from nearsight.common.video.regions import Rectangle
from support.regions import bounds, mask_of, moved, rectangles

Frame = NDArray[np.float32]
CHANNELS = 4
RNG = np.random.default_rng(14)

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
sizes = st.tuples(st.integers(9, 16), st.integers(9, 16))


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), list(outputs), **attributes)


def weights(name: str, *shape: int) -> TensorProto:
    return constant(name, RNG.uniform(0.5, 1.5, shape))


def constant(name: str, value: Any, kind: str = "f4") -> TensorProto:
    return numpy_helper.from_array(np.asarray(value, kind), name)


def model_of(
    nodes: Sequence[Any],
    constants: Sequence[TensorProto],
    shape: Sequence[int],
    output: str = "y",
    opset: int = 17,
) -> onnx.ModelProto:
    float_type = TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info("x", float_type, shape)],
        [helper.make_tensor_value_info(output, float_type, None)],
        list(constants),
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Executed:
    """A network in onnxruntime, and its geometry as read from the same graph."""

    def __init__(self, model: onnx.ModelProto, size: Pair, optimised: Path | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        if optimised is None:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        else:
            options.optimized_model_filepath = str(optimised)
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.graph = model if optimised is None else onnx.load(str(optimised))
        self.regions = GraphRegions(self.graph, "x", size)

    def run(self, frame: Frame) -> Frame:
        found: Frame = self._session.run(None, {"x": frame})[0]
        return found

    def target(self) -> str:
        return str(self.graph.graph.output[0].name)


def check_the_law(
    network: Executed, data: st.DataObject, size: Pair, *, tight: bool, last: str | None = None
) -> None:
    """Other pixels in a rectangle; then a picture that moves, with other pixels in a rectangle."""
    graph = RegionGraph(network.regions.nodes, "x", last or network.target(), size)
    before = frame_of(size)
    changed = data.draw(rectangles(size), "changed")
    expected = network.run(before)
    assert expected.shape[2:] == graph.shapes[last or network.target()]
    found = network.run(painted(before, changed))
    reported = mask_of(graph.shapes[last or network.target()], *graph.changed([changed]))
    differs = (expected != found).any(axis=(0, 1))
    assert not (differs & ~reported).any()
    if tight:
        assert bounds(differs) == bounds(reported)

    steps = data.draw(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), "steps")
    offset = steps[0] * graph.stride[0], steps[1] * graph.stride[1]
    assume(offset != (0, 0))
    new = np.random.default_rng(1).uniform(2, 4, before.shape).astype(np.float32)
    after, revealed = moved(before, new, offset)
    found = network.run(painted(after, changed))
    reported = mask_of(differs.shape, *graph.changed([*revealed, changed], offset))
    cells = [int(one / reduction) for one, reduction in zip(offset, graph.reduction, strict=True)]
    row, column = np.nonzero(~reported)
    there = expected[:, :, row + cells[0], column + cells[1]]
    np.testing.assert_allclose(found[:, :, row, column], there, rtol=1e-5, atol=1e-5)


def frame_of(size: Pair) -> Frame:
    return np.random.default_rng(size).uniform(0, 1, (1, CHANNELS, *size)).astype(np.float32)


def painted(frame: Frame, where: Rectangle) -> Frame:
    """The frame with large, different numbers in a rectangle, so that no maximum hides the change."""
    found = frame.copy()
    noise = np.random.default_rng(0).uniform(5, 9, found.shape).astype(np.float32)
    inside = np.s_[:, :, where.top : where.bottom, where.left : where.right]
    found[inside] = noise[inside]
    return found


convolutions = st.one_of(
    st.fixed_dictionaries(
        {
            "pads": st.tuples(*[st.integers(0, 2)] * 4),
            "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        }
    ),
    # onnxruntime refuses dilated windows here.
    st.fixed_dictionaries({"auto_pad": st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"])}),
)


@settings(max_examples=80)
@given(st.data(), sizes, pairs, pairs, convolutions, st.sampled_from([1, 2, 4]))
def test_convolutions_obey_the_law(
    data: st.DataObject, size: Pair, kernel: Pair, strides: Pair, more: dict[str, Any], group: int
) -> None:
    one = node("Conv", ["x", "w"], strides=strides, group=group, **more)
    model = model_of([one], [weights("w", 4, CHANNELS // group, *kernel)], (1, CHANNELS, *size))
    tight = more.get("dilations", (1, 1)) == (1, 1)
    check_the_law(Executed(model, size), data, size, tight=tight)


transposed = st.one_of(
    st.fixed_dictionaries(
        {"pads": st.tuples(*[st.integers(0, 2)] * 4), "output_padding": st.tuples(*[st.integers(0, 2)] * 2)}
    ),
    st.fixed_dictionaries({"auto_pad": st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"])}),
    st.fixed_dictionaries({"output_shape": st.tuples(*[st.integers(8, 20)] * 2)}),
    st.fixed_dictionaries({"output_shape": st.just((9, 12)), "auto_pad": st.just("SAME_UPPER")}),
)


@settings(max_examples=120)
@given(st.data(), sizes, pairs, pairs, pairs, transposed, st.sampled_from([1, 2, 4]))
def test_transposed_convolutions_obey_the_law(
    data: st.DataObject,
    size: Pair,
    kernel: Pair,
    strides: Pair,
    dilations: Pair,
    more: dict[str, Any],
    group: int,
) -> None:
    # onnxruntime refuses larger output paddings.
    assume(all(one < most for one, most in zip(more.get("output_padding", (0, 0)), strides, strict=True)))
    one = node("ConvTranspose", ["x", "w"], strides=strides, dilations=dilations, group=group, **more)
    model = model_of([one], [weights("w", CHANNELS, 4 // group, *kernel)], (1, CHANNELS, *size))
    network = Executed(model, size)
    assume(not network.regions.ended_by)  # the output is enlarged or empty
    gaps = dilations != (1, 1) or any(one > cells for one, cells in zip(strides, kernel, strict=True))
    check_the_law(network, data, size, tight=not gaps)


poolings = st.fixed_dictionaries(
    {
        "kernel_shape": st.tuples(st.integers(2, 4), st.integers(2, 4)),
        "strides": pairs,
        "pads": st.tuples(*[st.integers(0, 1)] * 4),
        "ceil_mode": st.integers(0, 1),
    }
)


@settings(max_examples=80)
@given(st.data(), sizes, poolings, st.sampled_from([None, 0, 1]))
def test_poolings_obey_the_law(
    data: st.DataObject, size: Pair, more: dict[str, Any], counted: int | None
) -> None:
    """The mean counts padding or does not; without `counted` it is the maximum."""
    one = (
        node("MaxPool", ["x"], **more)
        if counted is None
        else node("AveragePool", ["x"], count_include_pad=counted, **more)
    )
    check_the_law(Executed(model_of([one], [], (1, CHANNELS, *size)), size), data, size, tight=True)


OTHERS: dict[str, tuple[list[Any], list[TensorProto]]] = {
    "LRN works across channels": ([node("LRN", ["x"], size=3)], []),
    "batch normalisation": (
        [node("BatchNormalization", ["x", "s", "b", "m", "v"])],
        [weights(name, CHANNELS) for name in "sbmv"],
    ),
    "a constant per channel": ([node("Mul", ["x", "w"])], [weights("w", CHANNELS, 1, 1)]),
    "limits": ([node("Clip", ["x", "low", "high"])], [constant("low", 0.2), constant("high", 8.5)]),
    "an activation": ([node("Sigmoid", ["x"])], []),
    "softmax over the channels": ([node("Softmax", ["x"], axis=1)], []),
    "padding": ([node("Pad", ["x", "p"])], [constant("p", [0, 0, 2, 1, 0, 0, 0, 3], "i8")]),
    "nearest neighbours": ([node("Resize", ["x", "", "f"], mode="nearest")], [constant("f", [1, 1, 2, 3])]),
    "channels are joined": (
        [node("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Concat", "xa", axis=1)],
        [],
    ),
    "a shortcut": (
        [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Add", ["x", "a"])],
        [weights("w", CHANNELS, CHANNELS, 3, 3)],
    ),
    "a convolution with a sum": (
        [
            node(
                "FusedConv",
                ["x", "w", "b", "x"],
                pads=[1, 1, 1, 1],
                activation="Relu",
                domain="com.microsoft",
            )
        ],
        [weights("w", CHANNELS, CHANNELS, 3, 3), weights("b", CHANNELS)],
    ),
    "channels are split": (
        [node("Split", ["x"], ["a", "b"], axis=1), node("Sub", ["a", "b"])],
        [],
    ),
    "there and back in another layout": (
        [node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]), node("Transpose", "a", perm=[0, 3, 1, 2])],
        [],
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
@settings(max_examples=8)
@given(data=st.data(), size=sizes)
def test_other_operators_obey_the_law(kind: str, data: st.DataObject, size: Pair) -> None:
    nodes, constants = OTHERS[kind]
    check_the_law(Executed(model_of(nodes, constants, (1, CHANNELS, *size)), size), data, size, tight=True)


QUANTISED = {
    "a convolution": [node("QLinearConv", [*"qsz", *"wsi", *"sz"], strides=[2, 1], pads=[1, 1, 0, 2])],
    "channels last": [
        node("Transpose", "q", "a", perm=[0, 2, 3, 1]),
        node(
            *("QLinearConv", [*"asz", *"wsi", *"sz"], "b"),
            **{"auto_pad": "SAME_LOWER", "strides": [1, 2], "channels_last": 1, "domain": "com.microsoft"},
        ),
        node("NhwcMaxPool", "b", "c", kernel_shape=[3, 2], strides=[2, 1], domain="com.microsoft"),
        node("Transpose", "c", perm=[0, 3, 1, 2]),
    ],
    "a mean": [
        node("QLinearAveragePool", [*"qsz", *"sz"], kernel_shape=[3, 2], pads=[1] * 4, domain="com.microsoft")
    ],
    "a maximum, and a sum": [
        node("MaxPool", "q", "a", kernel_shape=[3, 3], pads=[1] * 4),
        node("QLinearAdd", [*"qsz", *"asz", *"sz"], domain="com.microsoft"),
    ],
    "a product": [node("QLinearMul", [*"qsz", *"qsz", *"sz"], domain="com.microsoft")],
    "activations": [
        node("QLinearSigmoid", [*"qsz", *"sz"], "a", domain="com.microsoft"),
        node("QLinearLeakyRelu", [*"asz", *"sz"], domain="com.microsoft"),
    ],
    "a join": [node("QLinearConcat", [*"sz", *"qsz", *"qsz"], axis=1, domain="com.microsoft")],
    "enlarged": [node("Resize", ["q", "", "f"], mode="nearest")],
}


@pytest.mark.parametrize("kind", QUANTISED)
@settings(max_examples=10)
@given(data=st.data(), size=sizes)
def test_operators_on_integers_obey_the_law(kind: str, data: st.DataObject, size: Pair) -> None:
    nodes = [node("QuantizeLinear", "xsz", "q"), *QUANTISED[kind], node("DequantizeLinear", "ysz", "o")]
    constants = [constant("s", 0.04), constant("z", 3, "u1"), constant("i", 0, "i1")]
    w = constant("w", RNG.integers(-3, 9, (CHANNELS, CHANNELS, 3, 3)), "i1")
    model = model_of(nodes, [*constants, constant("f", [1, 1, 2, 3]), w], (1, CHANNELS, *size), "o")
    check_the_law(Executed(model, size), data, size, tight=False)


STEPS: dict[str, dict[str, Any]] = {
    "QuantizeLinear": {},
    "ThresholdedRelu": {"alpha": 2.0},
    "Cast": {"to": TensorProto.INT32},
    "Round": {},
}


@pytest.mark.parametrize("step", STEPS)
def test_results_that_differ_on_a_crop_end_the_reuse_at_a_step_function(step: str) -> None:
    numbers = [constant("s", 0.04), constant("z", 3, "u1")]
    for kind, ended in (("ConvTranspose", [step]), ("Relu", [])):
        inputs = ["x", "w"][: 2 if kind == "ConvTranspose" else 1]
        behind = node(step, "asz" if step == "QuantizeLinear" else "a", **STEPS[step])
        model = model_of(
            [node(kind, inputs, "a"), behind], [*numbers, weights("w", 4, 4, 3, 3)], (1, 4, 12, 12)
        )
        found = GraphRegions(model, "x", (12, 12))
        assert (found.ended_by, "a" in found.maps) == (ended, True)


def test_a_cast_to_floats_does_not_end_the_reuse() -> None:
    model = model_of([node("Exp", "x", "a"), node("Cast", "a", to=TensorProto.DOUBLE)], [], (1, 4, 12, 12))
    assert GraphRegions(model, "x", (12, 12)).ended_by == []


def network_of_many_kinds(size: Pair) -> onnx.ModelProto:
    """Typical operators of convolutional networks, wide enough for blocked tensors of onnxruntime."""
    nodes = [
        node("Conv", ["x", "w1", "b"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("Conv", ["p1", "w2", "b"], ["c2"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c2"], ["s2"]),
        node("Mul", ["c2", "s2"], ["m2"]),
        node("Conv", ["m2", "w2", "b"], ["c3"], pads=[1, 1, 1, 1]),
        node("Add", ["c3", "p1"], ["a3"]),
        node("Relu", ["a3"], ["r3"]),
        node("AveragePool", ["r3"], ["p3"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p3", "w3", "b"], ["c4"], group=32, pads=[1, 1, 1, 1]),
        node(
            *("Resize", ["c4", "", "f"], ["u4"]),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("Conv", ["u4", "w2", "b"], ["c5"], pads=[1, 1, 1, 1]),
        node("Concat", ["c5", "u4"], ["y"], axis=1),
    ]
    shapes = {"w1": (32, 4, 3, 3), "w2": (32, 32, 3, 3), "w3": (32, 1, 3, 3), "b": (32,)}
    scaled = [constant(name, RNG.normal(0, 0.2, shape)) for name, shape in shapes.items()]
    return model_of(nodes, [*scaled, constant("f", [1, 1, 2, 2])], (1, CHANNELS, *size))


@pytest.fixture(scope="module")
def optimised(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    path = tmp_path_factory.mktemp("network") / "optimised.onnx"
    return Executed(network_of_many_kinds((64, 80)), (64, 80), path)


def test_an_optimised_graph_is_read_to_its_end(optimised: Executed) -> None:
    kinds = {(one.domain, one.op_type) for one in optimised.graph.graph.node}
    assert any(domain for domain, _ in kinds), "onnxruntime fused nothing, so the test is void"
    assert optimised.regions.ended_by == []
    graph = RegionGraph(optimised.regions.nodes, "x", "y", (64, 80))
    assert (graph.stride, graph.reduction) == ((8, 8), (4, 4))


@settings(max_examples=25)
@given(data=st.data())
def test_an_optimised_graph_obeys_the_law(optimised: Executed, data: st.DataObject) -> None:
    check_the_law(optimised, data, (64, 80), tight=False)


NO_GEOMETRY: dict[str, tuple[list[Any], list[TensorProto]]] = {
    "GlobalAveragePool": ([node("GlobalAveragePool", ["x"])], []),
    "Flatten": ([node("Flatten", ["x"])], []),
    "Reshape": ([node("Reshape", ["x", "shape"])], [constant("shape", [1, -1], "i8")]),
    "ReduceMean": ([node("ReduceMean", ["x"], axes=[2, 3])], []),
    "InstanceNormalization": (
        [node("InstanceNormalization", ["x", "s", "b"])],
        [weights("s", CHANNELS), weights("b", CHANNELS)],
    ),
    "Softmax": ([node("Softmax", ["x"], axis=3)], []),
    "Transpose": ([node("Transpose", ["x"], perm=[0, 1, 3, 2])], []),
    "Pad": ([node("Pad", ["x", "p"], mode="reflect")], [constant("p", [0, 0, 1, 1, 0, 0, 1, 1], "i8")]),
    "Slice": (
        [node("Slice", ["x", "from", "to", "axis"])],
        [constant("from", [1], "i8"), constant("to", [3], "i8"), constant("axis", [2], "i8")],
    ),
    "Concat": ([node("Concat", ["x", "x"], axis=2)], []),
    "Add": ([node("Add", ["x", "w"])], [weights("w", 1, 1, 12, 12)]),
    "Mul": ([node("GlobalAveragePool", ["x"], ["gate"]), node("Mul", ["x", "gate"])], []),
    "MaxPool": ([node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2])], []),
    "ConvTranspose": ([node("ConvTranspose", ["x", "w"], output_shape=[15, 13])], [weights("w", 4, 4, 3, 3)]),
    "Resize": ([node("Resize", ["x", "", "f"], mode="linear")], [constant("f", [1, 1, 2, 2])]),
    "QuantizeLinear": (
        [node("QuantizeLinear", "xs", axis=2)],
        [weights("s", 12)],
    ),
    "DynamicQuantizeLinear": ([node("DynamicQuantizeLinear", "x", "ysz")], []),
    "DepthToSpace": ([node("DepthToSpace", ["x"], blocksize=2)], []),
    "Conv": ([node("Conv", ["x", "x"])], []),
    "Own": ([node("Own", ["x"], domain="somebody.else")], []),
}


@pytest.mark.parametrize("kind", NO_GEOMETRY)
def test_operators_without_a_known_geometry_end_the_reuse(kind: str) -> None:
    nodes, constants = NO_GEOMETRY[kind]
    found = GraphRegions(model_of(nodes, constants, (1, CHANNELS, 12, 12)), "x", (12, 12))
    assert kind in found.ended_by
    assert list(found.maps) == ["x"]


def regions_of(nodes: Sequence[Any], opset: int = 17, **axes: Pair) -> GraphRegions:
    return GraphRegions(model_of(nodes, [], (1, CHANNELS, 12, 12), opset=opset), "x", (12, 12), **axes)


def test_resize_to_a_fixed_size_ends_the_reuse() -> None:
    constants = [constant("sizes", [1, CHANNELS, 24, 24], "i8")]
    model = model_of([node("Resize", ["x", "", "", "sizes"])], constants, (1, CHANNELS, 12, 12))
    assert GraphRegions(model, "x", (12, 12)).ended_by == ["Resize"]


def test_softmax_of_old_opsets_ends_the_reuse() -> None:
    assert regions_of([node("Softmax", ["x"], axis=1)], opset=12).ended_by == ["Softmax"]


def test_nodes_behind_the_end_of_the_reuse_are_not_maps() -> None:
    nodes = [node("Own", ["x"], ["a"]), node("Add", ["x", "a"], ["b"]), node("Relu", ["b"])]
    found = regions_of(nodes)
    assert (list(found.maps), found.ended_by) == (["x"], ["Own", "Add"])


def test_rows_and_columns_of_a_photo_with_channels_last_are_followed() -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]),
        node("AveragePool", ["a"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    found = regions_of(nodes, axes=CHANNELS_LAST)
    assert found.maps["a"].axes == (2, 3)
    assert found.maps["y"].size == (6, 6)
    assert found.maps["y"].pitch == (2, 2)
    assert regions_of([node("AveragePool", ["x"], kernel_shape=[2, 2])], axes=CHANNELS_LAST).ended_by
