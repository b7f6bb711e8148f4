"""Tiny networks with known outputs, built with the `onnx` package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from nearsight.common.background.futures import completed
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.runtime import Runtime

COLOURS = ("red", "green", "blue")
SIDE_PX = 8

ALWAYS = -math.inf
"""Minimum saving with which maps are also reused in networks that are too small to gain."""


def runtime_version() -> str:
    """Version of the runtime, as in measurements and saved graphs that are valid here."""
    runtime = Runtime()
    runtime.close()
    return runtime.version


def photo_of(colour: str, side_px: int = 64) -> NDArray[np.uint8]:
    """A photo of one colour; grey has no label."""
    pixels = np.full((side_px, side_px, 3), 40, np.uint8)
    if colour in COLOURS:
        pixels[:, :, 2 - COLOURS.index(colour)] = 250
    return pixels


def jpeg_of(colour: str) -> bytes:
    encoded, data = cv2.imencode(".jpg", photo_of(colour))
    assert encoded
    return data.tobytes()


def colour_network(path: Path, *, weights_mb: float = 0.0, sharpness: float = 20.0) -> Path:
    """Classifies a photo ``(N, 3, 8, 8)`` by its strongest channel: logits, larger for clearer photos.

    ``weights_mb`` adds weights that need memory and have no effect.
    """
    nodes = [
        helper.make_node("GlobalAveragePool", ["photo"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Mul", ["flat", "sharpness"], ["scaled"]),
    ]
    weights = [numpy_helper.from_array(np.array(sharpness, np.float32), "sharpness")]
    last = "scaled"
    if weights_mb:
        width = int(weights_mb * 2**20 / 4 / 3)
        weights += [
            numpy_helper.from_array(np.ones((3, width), np.float32), "wide"),
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
            numpy_helper.from_array(np.array(0, np.float32), "zero"),
        ]
        nodes += [
            helper.make_node("MatMul", ["scaled", "wide"], ["much"]),
            helper.make_node("ReduceMean", ["much"], ["little"], axes=[1], keepdims=1),
            helper.make_node("Mul", ["little", "zero"], ["nothing"]),
            helper.make_node("Add", ["scaled", "nothing"], ["logits"]),
        ]
        last = "logits"
    return _saved(path, nodes, weights, [("photo", ["N", 3, SIDE_PX, SIDE_PX])], [(last, ["N", 3])])


def split_network(path: Path) -> Path:
    """A `colour_network` whose weights are in another file of the same folder."""
    model = onnx.load(str(colour_network(path)))
    data = {"save_as_external_data": True, "location": f"{path.name}.data", "size_threshold": 0}
    onnx.save(model, str(path), **data)
    return path


def adder_network(path: Path, addend: float = 1.0, shape: Sequence[int | str] = ("N", 4)) -> Path:
    """Adds a number to a tensor of this shape."""
    weights = [numpy_helper.from_array(np.array(addend, np.float32), "addend")]
    nodes = [helper.make_node("Add", ["x", "addend"], ["y"])]
    return _saved(path, nodes, weights, [("x", list(shape))], [("y", list(shape))])


def endless_network(path: Path, rounds: int | None = None) -> Path:
    """Adds 1 in a loop: ``rounds`` times or as often as the largest input of ``(n,)``; can be endless."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["go_on"]),
            helper.make_node("Add", ["value", "one"], ["more"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", TensorProto.FLOAT, ["n"]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, ["n"]),
        ],
    )
    weights = [numpy_helper.from_array(np.array([1], np.float32), "one")]
    nodes = [helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body)]
    if rounds is not None:
        weights.append(numpy_helper.from_array(np.array(rounds, np.int64), "rounds"))
    else:
        nodes.insert(0, helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0))
        nodes.insert(1, helper.make_node("Cast", ["largest"], ["rounds"], to=TensorProto.INT64))
    return _saved(path, nodes, weights, [("x", ["n"])], [("y", ["n"])])


def failing_network(path: Path) -> Path:
    """Loads, and fails in execution if the index ``x`` is not 0. Input: int64 ``(1,)``."""
    weights = [numpy_helper.from_array(np.zeros(1, np.float32), "table")]
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    return _saved(path, nodes, weights, [("x", [1])], [("y", [1])], TensorProto.INT64)


def add_network(
    repository: ModelRepository, name: str, source: Path, labels: Sequence[str] = COLOURS
) -> Manifest:
    """Add a network to a repository, as `nearsight models add` does."""
    return repository.add(source, replace(manifest_of_file(source, name), labels=tuple(labels)))


def lease_of(memory: ModelMemory, name: str) -> Future[Lease]:
    """A lease of a network of the memory, completed when it is loaded."""
    found = memory.request(name)
    return found.lease if isinstance(found, Absent) else completed(found)


_Shapes = Sequence[tuple[str, Sequence[int | str]]]


def _saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[TensorProto],
    inputs: _Shapes,
    outputs: _Shapes,
    input_type: int = TensorProto.FLOAT,
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info(name, input_type, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        list(weights),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
