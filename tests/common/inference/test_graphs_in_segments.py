"""Networks in segments: partial execution gives the answers of the whole network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.reuse_cost import Costs
from nearsight.common.inference.runtime import Network, Runtime
from nearsight.common.inference.tensors import Tensor
from nearsight.common.video.regions import Rectangle
from support.networks import ALWAYS

SIDE = 60
REGIONS = (
    Rectangle(20, 30, 24, 36),
    Rectangle(0, 0, 3, 9),
    Rectangle(51, 40, SIDE, SIDE),
    Rectangle(SIDE - 1, 40, SIDE, 44),
)
"""Regions that change, one after the other."""
PHOTO = helper.make_tensor_value_info("photo", TensorProto.FLOAT, (1, 3, SIDE, SIDE))


def conv(source: str, weights: str, target: str, stride: int = 1) -> NodeProto:
    return helper.make_node("Conv", [source, weights], [target], strides=[stride] * 2, pads=[1] * 4)


def saved(
    path: Path,
    nodes: Sequence[NodeProto],
    channels: dict[str, tuple[int, int]],
    outputs: Mapping[str, Sequence[int]],
    constants: Sequence[TensorProto] = (),
    photo: ValueInfoProto = PHOTO,
    kind: int = TensorProto.FLOAT,
) -> Path:
    """A network for photos; ``channels``: out and in, of weights of 3 x 3 by name; ``kind``: of outputs."""
    rng = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.2, (*both, 3, 3)).astype(np.float32), name)
        for name, both in channels.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "network",
        [photo],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
        [*weights, *constants],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def assert_reuses_as_the_whole_network(
    runtime: Runtime,
    path: Path,
    offset: tuple[int, int] = (0, 0),
    regions: Sequence[Rectangle] = REGIONS,
    *,
    exact: bool = False,
) -> str:
    """Changed rectangles are executed in part, and the answers are those of the whole network.

    In the end the picture moves by the offset. Returns the name of the last part.
    """
    partial = PartialNetwork(runtime, path, "small", path.with_suffix(".segments"), least_saved_ms=ALWAYS)
    plain = runtime.load(path, "plain")
    segmented = partial._segmented
    assert not partial.why_whole, partial.why_whole
    segmented.costs = Costs.preferring_crops(len(segmented.loaded))
    rng = np.random.default_rng(8)
    dtype = partial.input.dtype
    frame = pixels(rng, (SIDE, SIDE), dtype)
    assert_same(partial.run(frame), plain, frame, exact)
    for region in regions:
        top, left, bottom, right = region
        frame = frame.copy()
        frame[:, :, top:bottom, left:right] = pixels(rng, (region.height, region.width), dtype)
        assert_same(partial.run(frame, [region]), plain, frame, exact)
        assert "regions" in {one.done for one in partial.explain()}
    assert_same(partial.run(frame, []), plain, frame, exact)
    down, right = offset
    frame = np.roll(frame, (-down, -right), (2, 3))
    frame[:, :, 30:34, 50:54] = frame[:, :, 50:54, 30:34] = 0.5
    changed = [
        Rectangle(30, 50, 34, 54),
        Rectangle(50, 30, 54, 34),
        Rectangle(0, 0, max(-down, 0), SIDE),
        Rectangle(SIDE - max(down, 0), 0, SIDE, SIDE),
        Rectangle(0, 0, SIDE, max(-right, 0)),
        Rectangle(0, SIDE - max(right, 0), SIDE, SIDE),
    ]
    assert_same(partial.run(frame, changed, offset), plain, frame, exact)
    last = partial.explain()[-1].name
    partial.close()
    plain.close()
    return last


def pixels(rng: np.random.Generator, size: tuple[int, int], dtype: str) -> Tensor:
    """Random pixels from 0 to 1, or random bytes."""
    found = rng.random((1, 3, *size), np.float32)
    return found if dtype == "float32" else (255 * found).astype(np.uint8).view(dtype)


def assert_same(found: dict[str, Tensor], plain: Network, frame: Tensor, exact: bool) -> None:
    expected = plain.run({"": frame})
    assert [*found] == [*expected]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, *((0, 0) if exact else (1e-4, 1e-5)))


def test_a_network_whose_output_is_a_map_is_executed_in_part(runtime: Runtime, tmp_path: Path) -> None:
    nodes = [
        conv("photo", "w1", "a", stride=2),
        helper.make_node("Relu", ["a"], ["b"]),
        conv("b", "w2", "mask"),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (2, 16)}, {"mask": (1, 2, SIDE // 2, SIDE // 2)}
    assert_reuses_as_the_whole_network(runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs))


def test_the_part_that_runs_whole_may_read_the_frame_itself(runtime: Runtime, tmp_path: Path) -> None:
    nodes = [
        conv("photo", "w1", "a"),
        conv("a", "w2", "b"),
        helper.make_node("GlobalAveragePool", ["b"], ["mean"]),
        helper.make_node("Mul", ["photo", "mean"], ["image"]),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (3, 16)}, {"image": (1, 3, SIDE, SIDE)}
    assert_reuses_as_the_whole_network(runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs))


def test_a_network_that_enlarges_the_frame_before_larger_strides_is_executed_in_part(
    runtime: Runtime, tmp_path: Path
) -> None:
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    nodes = [
        helper.make_node(
            "Resize", ["photo", "", "scales"], ["a"], mode="nearest", nearest_mode="round_prefer_floor"
        ),
        conv("a", "w1", "b", stride=3),
        helper.make_node("Relu", ["b"], ["c"]),
        conv("c", "w2", "mask"),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (2, 16)}, {"mask": (1, 2, 2 * SIDE // 3, 2 * SIDE // 3)}
    assert_reuses_as_the_whole_network(
        runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs, [scales])
    )


def test_outputs_keep_the_order_of_the_network_however_a_frame_is_executed(
    runtime: Runtime, tmp_path: Path
) -> None:
    nodes = [
        conv("photo", "w1", "a", stride=2),
        conv("a", "w2", "mask"),
        helper.make_node("GlobalAveragePool", ["a"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["logits"]),
    ]
    channels = {"w1": (16, 3), "w2": (2, 16)}
    outputs = {"mask": (1, 2, SIDE // 2, SIDE // 2), "logits": (1, 16)}
    assert_reuses_as_the_whole_network(runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.INT32])
def test_a_network_with_another_input_type_runs_whole_and_gives_the_reason(
    runtime: Runtime, tmp_path: Path, kind: int
) -> None:
    photo = helper.make_tensor_value_info("photo", kind, (1, 3, SIDE, SIDE))
    nodes = [helper.make_node("Cast", ["photo"], ["a"], to=TensorProto.FLOAT), conv("a", "w1", "mask")]
    outputs = {"mask": (1, 2, SIDE, SIDE)}
    path = saved(tmp_path / "n.onnx", nodes, {"w1": (2, 3)}, outputs, photo=photo)
    partial = PartialNetwork(runtime, path, "small", tmp_path / "segments", least_saved_ms=ALWAYS)
    assert partial.why_whole == f"its input is {partial.input.dtype}; only float32, uint8, int8 can be reused"
    frame = np.ones((1, 3, SIDE, SIDE), partial.input.dtype)
    assert partial.run(frame)["mask"].shape == (1, 2, SIDE, SIDE)
    partial.close()


def test_a_network_with_another_output_type_runs_whole_and_gives_the_reason(
    runtime: Runtime, tmp_path: Path
) -> None:
    nodes = [conv("photo", "w1", "a"), helper.make_node("Cast", ["a"], ["mask"], to=TensorProto.FLOAT16)]
    outputs = {"mask": (1, 2, SIDE, SIDE)}
    path = saved(tmp_path / "n.onnx", nodes, {"w1": (2, 3)}, outputs, kind=TensorProto.FLOAT16)
    partial = PartialNetwork(runtime, path, "small", tmp_path / "segments", least_saved_ms=ALWAYS)
    assert "'mask' is float16" in partial.why_whole
    assert "only maps of one image with elements of float32, uint8, int8 can be reused" in partial.why_whole
    partial.close()


@pytest.mark.parametrize(("behind", "shape"), [("Flatten", (1, 4 * SIDE**2)), ("Relu", (1, 4, SIDE, SIDE))])
def test_a_constant_output_is_returned_with_the_others(
    runtime: Runtime, tmp_path: Path, behind: str, shape: tuple[int, ...]
) -> None:
    anchors = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 4), "anchors")
    nodes = [conv("photo", "w1", "a"), helper.make_node(behind, ["a"], ["scores"])]
    outputs = {"scores": shape, "anchors": (2, 4)}
    path = saved(tmp_path / "n.onnx", nodes, {"w1": (4, 3)}, outputs, [anchors])
    assert_reuses_as_the_whole_network(runtime, path)


def test_automatic_padding_is_supported_in_the_part_that_runs_whole(runtime: Runtime, tmp_path: Path) -> None:
    nodes = [
        conv("photo", "w1", "a", stride=2),
        helper.make_node("GlobalAveragePool", ["a"], ["mean"]),
        helper.make_node("Mul", ["a", "mean"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["mask"], auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (2, 16)}, {"mask": (1, 2, SIDE // 4, SIDE // 4)}
    assert_reuses_as_the_whole_network(runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs))


def test_nodes_that_no_output_needs_are_left_out(runtime: Runtime, tmp_path: Path) -> None:
    nodes = [
        conv("photo", "w1", "a", stride=2),
        helper.make_node("Relu", ["a"], ["mask"]),
        conv("a", "w2", "b", stride=2),
        helper.make_node("Sigmoid", ["b"], ["unused"]),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (2, 16)}, {"mask": (1, 16, SIDE // 2, SIDE // 2)}
    assert_reuses_as_the_whole_network(runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs))


@pytest.mark.parametrize("pads", [[0, 2, 0, 0], [0, 0, 0, 2], [2, 0, 1, 1], [0, 1, 2, 0]])
def test_cells_that_read_only_padding_are_correct_when_the_picture_moves(
    runtime: Runtime, tmp_path: Path, pads: list[int]
) -> None:
    point = numpy_helper.from_array(np.full((4, 3, 1, 1), 0.5, np.float32), "point")
    nodes = [helper.make_node("Conv", ["photo", "point"], ["mask"], pads=pads)]
    outputs = {"mask": (1, 4, SIDE + pads[0] + pads[2], SIDE + pads[1] + pads[3])}
    path = saved(tmp_path / "n.onnx", nodes, {}, outputs, [point])
    for offset in ((3, 2), (-3, -2)):
        assert_reuses_as_the_whole_network(runtime, path, offset, (REGIONS[0], REGIONS[2]))


def test_a_last_window_that_reaches_beyond_the_map_is_executed_in_part(
    runtime: Runtime, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MaxPool", ["photo"], ["a"], kernel_shape=[4, 4], strides=[3, 3], ceil_mode=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["mask"]),
    ]
    path = saved(tmp_path / "n.onnx", nodes, {}, {"mask": (1, 3, 20, 20)})
    assert_reuses_as_the_whole_network(runtime, path)


def test_padding_behind_an_unused_last_row_causes_no_empty_crop(runtime: Runtime, tmp_path: Path) -> None:
    wide = numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 0, 2, 2]), "wide")
    nodes = [
        helper.make_node("Conv", ["photo", "w"], ["near"], strides=[7, 7], pads=[3, 3, 0, 0]),
        helper.make_node("Pad", ["near", "wide"], ["mask"]),
    ]
    path = saved(tmp_path / "n.onnx", nodes, {"w": (4, 3)}, {"mask": (1, 4, 11, 11)}, (wide,))
    for offset in ((7, 7), (7, 0), (-7, 7), (0, -7)):
        assert_reuses_as_the_whole_network(runtime, path, offset, (REGIONS[0], REGIONS[2]))


def test_padding_before_wide_windows_causes_no_crop_that_is_too_small(
    runtime: Runtime, tmp_path: Path
) -> None:
    wide = numpy_helper.from_array(np.array([0, 0, 3, 2, 0, 0, 2, 2]), "wide")
    nodes = [
        helper.make_node("Conv", ["photo", "w"], ["near"], dilations=[2, 2]),
        helper.make_node("Pad", ["near", "wide"], ["mask"]),
    ]
    path = saved(tmp_path / "n.onnx", nodes, {"w": (4, 3)}, {"mask": (1, 4, 61, 60)}, (wide,))
    for offset in ((1, 1), (1, 0), (-1, 1), (0, -1)):
        assert_reuses_as_the_whole_network(runtime, path, offset)


@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (2, {}),
        (3, {"pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": 4}),
        (3, {"auto_pad": "SAME_UPPER"}),
        (5, {"output_shape": [30, 30]}),
        (2, {"pads": [1, 0, 0, 1], "dilations": [2, 2]}),
        (1, {"output_padding": [1, 1]}),
        (4, {"pads": [2, 0, 0, 2]}),
    ],
)
def test_transposed_convolutions_that_are_joined_with_earlier_maps_are_executed_in_part(
    runtime: Runtime, tmp_path: Path, kernel: int, more: dict[str, Any]
) -> None:
    up = numpy_helper.from_array(
        np.random.default_rng(9).normal(0, 0.2, (16, 8 // more.get("group", 1), kernel, kernel)).astype("f"),
        "up",
    )
    nodes = [
        conv("photo", "w1", "half", stride=2),
        helper.make_node("Relu", ["half"], ["a"]),
        conv("a", "w2", "quarter", stride=2),
        helper.make_node("ConvTranspose", ["quarter", "up"], ["b"], strides=[2, 2], **more),
        helper.make_node("Concat", ["b", "a"], ["c"], axis=1),
        conv("c", "w3", "mask"),
    ]
    channels = {"w1": (16, 3), "w2": (16, 16), "w3": (2, 24)}
    path = saved(tmp_path / "n.onnx", nodes, channels, {"mask": (1, 2, SIDE // 2, SIDE // 2)}, [up])
    assert assert_reuses_as_the_whole_network(runtime, path, (-4, 8)) == "mask"


class _Photos(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self._left = [rng.random((1, 3, SIDE, SIDE), np.float32) for _ in range(3)]

    def get_next(self) -> dict[str, Tensor] | None:
        return {"photo": self._left.pop()} if self._left else None


@pytest.mark.parametrize(
    ("kind", "form"),
    [(QuantType.QUInt8, QuantFormat.QDQ), (QuantType.QInt8, QuantFormat.QOperator)],
)
def test_a_quantised_network_is_executed_in_part_and_answers_bit_by_bit_as_the_whole_one(
    runtime: Runtime, tmp_path: Path, kind: QuantType, form: QuantFormat
) -> None:
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    nodes = [
        conv("photo", "w1", "a", stride=2),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        conv("c", "w2", "d"),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["f"]),
        helper.make_node("Mul", ["e", "f"], ["g"]),
        helper.make_node("Resize", ["g", "", "scales"], ["h"], mode="nearest"),
        helper.make_node("Concat", ["h", "b"], ["i"], axis=1),
        helper.make_node("AveragePool", ["i"], ["j"], kernel_shape=[3, 3], pads=[1] * 4),
        conv("j", "w3", "mask"),
    ]
    channels, outputs = {"w1": (16, 3), "w2": (16, 16), "w3": (2, 32)}, {"mask": (1, 2, 30, 30)}
    path, whole = tmp_path / "quantised.onnx", saved(tmp_path / "n.onnx", nodes, channels, outputs, [scales])
    quantize_static(
        whole, path, _Photos(), quant_format=form, activation_type=kind, weight_type=QuantType.QInt8
    )
    assert assert_reuses_as_the_whole_network(runtime, path, (4, -8), exact=True) == "mask"


def test_constants_that_are_dequantised_at_each_execution_do_not_join_the_tail(
    runtime: Runtime, tmp_path: Path
) -> None:
    numbers = {"point": np.arange(16, dtype=np.int8).reshape(1, 16, 1, 1), "s": np.float32(0.1)}
    nodes = [
        conv("photo", "w1", "a", stride=2),
        helper.make_node("DequantizeLinear", ["point", "s"], ["bias"]),
        helper.make_node("Sub", ["a", "bias"], ["b"]),
        conv("b", "w2", "c"),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "bias"], ["logits"]),
    ]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    channels, outputs = {"w1": (16, 3), "w2": (16, 16)}, {"logits": (1, 16, 1, 1)}
    assert_reuses_as_the_whole_network(
        runtime, saved(tmp_path / "n.onnx", nodes, channels, outputs, constants)
    )


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT8])
def test_maps_may_be_of_bytes_from_the_frame_to_the_output(
    runtime: Runtime, tmp_path: Path, kind: int
) -> None:
    photo = helper.make_tensor_value_info("photo", kind, (1, 3, SIDE, SIDE))
    nodes = [
        helper.make_node("MaxPool", ["photo"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        helper.make_node("MaxPool", ["a"], ["mask"], kernel_shape=[2, 2]),
    ]
    path = saved(tmp_path / "n.onnx", nodes, {}, {"mask": (1, 3, 29, 29)}, photo=photo, kind=kind)
    assert assert_reuses_as_the_whole_network(runtime, path, (2, 2), exact=True) == "mask"


def test_an_output_whose_size_the_library_infers_wrongly_is_executed_in_part(
    runtime: Runtime, tmp_path: Path
) -> None:
    """With ceil_mode, a last window that begins in the padding is omitted."""
    nodes = [
        conv("photo", "w1", "a"),
        helper.make_node(
            *("AveragePool", ["a"], ["mask"]),
            **{"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1},
        ),
    ]
    path = saved(tmp_path / "n.onnx", nodes, {"w1": (3, 3)}, {"mask": (1, 3, 21, 21)})
    assert assert_reuses_as_the_whole_network(runtime, path, (3, 0)) == "mask"
