"""Short videos, and a convolutional network for their frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIDE = 64


def frames_with_a_moving_patch(count: int, side: int = SIDE) -> Iterator[NDArray[np.uint8]]:
    """Frames with a static texture; a small square moves in every second frame."""
    coarse = np.random.default_rng(3).integers(60, 200, (side // 8, side // 8, 3), dtype=np.uint8)
    ground = np.asarray(cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC), np.uint8)
    for number in range(count):
        frame = ground.copy()
        left = 2 * (number // 2) % (side - 12)
        frame[20:28, left : left + 8] = 255
        yield frame


def write_video(path: Path, count: int, side: int = SIDE) -> Path:
    """Write an .avi whose frames are compressed separately and with high quality."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10.0, (side, side))
    writer.set(cv2.VIDEOWRITER_PROP_QUALITY, 100)
    for frame in frames_with_a_moving_patch(count, side):
        writer.write(frame)
    writer.release()
    return path


def convolutional_network(
    path: Path, side: int | str | None = SIDE, *, spatial: bool = True, sums_at: int | None = None
) -> Path:
    """Three logits for photos ``(N, 3, side, side)``; not ``spatial``: the first layer is a mean.

    ``side``: a name if rows and columns are open but equal; None if both are open.
    ``sums_at``: rows are summed before this node, so that each cell depends on all cells above it.
    """
    rng = np.random.default_rng(5)

    def weights(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["photo", "w1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e" if spatial else "photo"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w3"], ["logits"]),
    ]
    constants = [
        weights("w1", 32, 3, 3, 3),
        weights("w2", 64, 32, 3, 3),
        weights("w3", 64 if spatial else 3, 3),
    ]
    if sums_at is not None:
        into = nodes[sums_at].input[0]
        nodes[sums_at].input[0] = "sums"
        nodes.insert(sums_at, helper.make_node("CumSum", [into, "rows"], ["sums"]))
        constants.append(numpy_helper.from_array(np.array(2, np.int64), "rows"))
    sides = ["height", "width"] if side is None else [side, side]
    graph = helper.make_graph(
        nodes if spatial else nodes[5:],
        "network",
        [helper.make_tensor_value_info("photo", TensorProto.FLOAT, ["N", 3, *sides])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        constants if spatial else constants[2:],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path
