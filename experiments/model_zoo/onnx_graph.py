"""Writes a convolutional network as ONNX, layer by layer, with random weights that keep it sensitive.

With plain random weights the activations of deep networks vanish, and every photo has the same answer.
Therefore each layer is executed on sample photos while the graph is written, and its weights are scaled so
that its outputs have mean 0.5 and variance 1 on them. Batch normalisation has a similar effect in training.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from nearsight.common.inference.runtime import Runtime
from nearsight.experiments.museum.generation import render_photos

_OPSET, _IR = 17, 8
_MEAN = 0.5
"""Mean of activations before ReLU. With 0, the answers of deep networks to noise resemble those to photos."""
_SAMPLES = 8
_MUSEUM = 4_242
"""Seed of the museum of the sample photos."""

Values = NDArray[np.float32]


class Graph:
    """A network on photos ``(N, 3, H, W)`` of -1 to 1; its methods add layers and return their outputs.

    Parameters
    ----------
    height, width : int
        Size of the photos in pixels.
    seed : int
        Seed of the weights.
    """

    input = "photo"

    def __init__(self, height: int, width: int, seed: int) -> None:
        self._rng = np.random.default_rng([seed, height, width])
        self._shape = (3, height, width)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._values: dict[str, Values] = {self.input: sample_photos(height, width)}

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        pad: int | None = None,
        groups: int = 1,
    ) -> str:
        """Add a convolution with bias; ``pad`` pixels at each side, by default half of the kernel."""
        sides, pads = [kernel] * 2, [kernel // 2 if pad is None else pad] * 4
        weights = _smooth(self._random((channels, self._values[x].shape[1] // groups, *sides)))
        options: Any = {"kernel_shape": sides, "strides": [stride] * 2, "pads": pads, "group": groups}
        trial = helper.make_node("Conv", ["x", "w"], ["y"], **options)
        outputs = _execute(trial, {"x": self._values[x], "w": weights})
        # The target mean and variance 1, by channel.
        scale = 1 / np.maximum(outputs.std(axis=(0, 2, 3)), 1e-6)
        shift = _MEAN - outputs.mean(axis=(0, 2, 3)) * scale
        return self._weighted("Conv", x, weights * scale[:, None, None, None], shift, **options)

    def dense(self, x: str, units: int) -> str:
        """Add a fully connected layer; a map is flattened first."""
        if self._values[x].ndim > 2:
            x = self.node("Flatten", x)
        values = self._values[x]
        weights = self._random((units, values.shape[1]))
        # All units have the same scale, because there are too few samples to estimate one per unit.
        outputs = values @ weights.T
        scale = np.float32(1 / (outputs - outputs.mean(axis=0)).std())
        return self._weighted("Gemm", x, weights * scale, -outputs.mean(axis=0) * scale, transB=1)

    def relu(self, x: str) -> str:
        """Add ``max(x, 0)``."""
        return self.node("Relu", x)

    def silu(self, x: str) -> str:
        """Add ``x · sigmoid(x)``."""
        return self.node("Mul", x, self.node("Sigmoid", x))

    def max_pool(self, x: str, kernel: int, stride: int, *, pad: int = 0, ceil: bool = False) -> str:
        """Add a maximum pooling layer; with ``ceil``, the last window may extend beyond the map."""
        sides = [kernel] * 2
        options = {"kernel_shape": sides, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": int(ceil)}
        return self.node("MaxPool", x, **options)

    def lrn(self, x: str, *, bias: float = 1.0) -> str:
        """Add local response normalisation across five channels (Krizhevsky et al., 2012, section 3.3)."""
        return self.node("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=bias)

    def concat(self, *maps: str, axis: int = 1) -> str:
        """Concatenate maps, along the channels by default."""
        return self.node("Concat", *maps, axis=axis)

    def channels(self, x: str) -> int:
        """Number of channels of a map."""
        return int(self._values[x].shape[1])

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant number or tensor."""
        name = f"w{len(self._weights)}"
        self._weights[name] = numpy_helper.from_array(value, name)
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add any operator with one output."""
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add any operator; return the names of its outputs."""
        names = [f"{operator.lower()}{len(self._nodes)}_{number}" for number in range(outputs)]
        node = helper.make_node(operator, list(inputs), names, **attributes)
        self._nodes.append(node)
        constants = {one: numpy_helper.to_array(self._weights[one]) for one in inputs if one in self._weights}
        given = {one: self._values[one] for one in inputs if one in self._values} | constants
        found = _execute(node, given)
        self._values |= dict(zip(names, found if outputs > 1 else [found], strict=True))
        return names

    def save(self, path: Path, output: str) -> None:
        """Write the file; the first axis of input and output has variable size."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
            for name, shape in ((self.input, self._shape), (output, self._values[output].shape[1:]))
        ]
        graph = helper.make_graph(self._nodes, path.stem, ends[:1], ends[1:], list(self._weights.values()))
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="nearsight")
        onnx.checker.check_model(model)
        onnx.save(model, str(path))

    def _random(self, shape: tuple[int, ...]) -> Values:
        return self._rng.standard_normal(shape, dtype=np.float32)

    def _weighted(self, operator: str, x: str, weights: Values, bias: Values, **options: Any) -> str:
        return self.node(operator, x, self.constant(weights), self.constant(bias), **options)


def sample_photos(height: int, width: int) -> Values:
    """Photos of exhibits, ``(8, 3, height, width)``, values from -1 to 1, red first."""
    scaled = [cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA) for photo in _photos()]
    red_first = np.stack(scaled)[..., ::-1].transpose(0, 3, 1, 2).astype(np.float32)
    return np.ascontiguousarray(red_first / 127.5 - 1)


@cache
def _photos() -> tuple[Any, ...]:
    return tuple(
        cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        for exhibit in range(_SAMPLES)
        for _, jpeg in render_photos(_MUSEUM, exhibit, [0], 0.3)
    )


def _smooth(kernels: Values) -> Values:
    """Blur kernels (C, C', k, k), so that sensor noise has little effect, as in trained networks."""
    side = kernels.shape[3]
    apart = np.subtract.outer(np.arange(side), np.arange(side)) / (side / 4)
    blur = np.exp(-(apart**2) / 2).astype(np.float32)
    return np.asarray(blur @ kernels @ blur, np.float32)


def _execute(node: onnx.NodeProto, inputs: dict[str, Values]) -> Any:
    """Execute one operator: its output, or the list of its outputs."""

    def anything(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, None)

    given = [anything(name, helper.np_dtype_to_tensor_dtype(one.dtype)) for name, one in inputs.items()]
    graph = helper.make_graph([node], "one", given, [anything(name) for name in node.output])
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
    Runtime().close()  # imports the library with telemetry to Microsoft disabled
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the same order of summation on every machine
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found = session.run(None, inputs)
    return found if len(found) > 1 else found[0]
