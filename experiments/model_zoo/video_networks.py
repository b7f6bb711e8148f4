"""The networks of DeepCache (tables 1 and 3, figure 18) and a current detector, built from their papers.

Imported only to build: needs onnx and onnxruntime. The input of all networks are photos ``(N, 3, H, W)`` of
-1 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nearsight.experiments.model_zoo.onnx_graph import Graph


def alexnet(graph: Graph) -> str:
    """Krizhevsky et al., 2012: LRN before the pooling layers, two groups in convolutions 2, 4 and 5."""
    x = graph.input
    for channels, kernel, stride, pad, groups in ((96, 11, 4, 0, 1), (256, 5, 1, 2, 2)):
        x = graph.relu(graph.conv(x, channels, kernel, stride, pad=pad, groups=groups))
        x = graph.max_pool(graph.lrn(x, bias=2.0), 3, 2)
    for channels, groups in ((384, 1), (384, 2), (256, 2)):
        x = graph.relu(graph.conv(x, channels, 3, groups=groups))
    return _dense_tail(graph, graph.max_pool(x, 3, 2), 4096, 4096, 1000)


_INCEPTIONS = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(graph: Graph) -> str:
    """Szegedy et al., 2015, without the auxiliary classifiers: 57 convolutions."""
    conv = partial(_conv, graph, graph.relu)
    pool = partial(graph.max_pool, kernel=3, stride=2, ceil=True)
    x = graph.lrn(pool(conv(graph.input, 64, 7, 2)))
    x = pool(graph.lrn(conv(conv(x, 64, 1), 192, 3)))
    for widths in _INCEPTIONS:
        if widths is None:
            x = pool(x)
            continue
        one, reduced3, three, reduced5, five, pooled = widths
        x = graph.concat(
            conv(x, one, 1),
            conv(conv(x, reduced3, 1), three, 3),
            conv(conv(x, reduced5, 1), five, 5),
            conv(graph.max_pool(x, 3, 1, pad=1), pooled, 1),
        )
    return graph.dense(graph.node("GlobalAveragePool", x), 1000)


def resnet_50(graph: Graph) -> str:
    """He et al., 2016; batch normalisation is folded into the convolutions."""
    x = graph.max_pool(_conv(graph, graph.relu, graph.input, 64, 7, 2), 3, 2, pad=1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            inner = graph.relu(graph.conv(x, width, 1, stride))
            inner = graph.conv(graph.relu(graph.conv(inner, width, 3)), 4 * width, 1)
            x = graph.conv(x, 4 * width, 1, stride) if block == 0 else x
            x = graph.relu(graph.node("Add", inner, x))
    return graph.dense(graph.node("GlobalAveragePool", x), 1000)


def yolo(graph: Graph) -> str:
    """Redmon et al., 2016: the small version, with eight convolutions and two fully connected layers."""
    leaky = partial(graph.node, "LeakyRelu", alpha=0.1)
    x = graph.input
    for channels in (16, 32, 64, 128, 256, 512):
        x = graph.max_pool(_conv(graph, leaky, x, channels, 3), 2, 2)
    x = _conv(graph, leaky, _conv(graph, leaky, x, 1024, 3), 256, 3)
    return graph.dense(leaky(graph.dense(x, 4096)), 7 * 7 * 30)


def yolov8n(graph: Graph) -> str:
    """The proportions of YOLOv8n: C2f, SPPF, SiLU, three heads for 80 classes. Boxes are not decoded."""
    conv = partial(_conv, graph, graph.silu)
    x = _c2f(graph, conv(conv(graph.input, 16, 3, 2), 32, 3, 2), 32, 1)
    third = _c2f(graph, conv(x, 64, 3, 2), 64, 2)
    fourth = _c2f(graph, conv(third, 128, 3, 2), 128, 2)
    x = conv(_c2f(graph, conv(fourth, 256, 3, 2), 256, 1), 128, 1)
    pools = [x]
    for _ in range(3):
        pools.append(graph.max_pool(pools[-1], 5, 1, pad=2))
    fifth = conv(graph.concat(*pools), 256, 1)
    up4 = _c2f(graph, graph.concat(_doubled(graph, fifth), fourth), 128, 1, shortcut=False)
    up3 = _c2f(graph, graph.concat(_doubled(graph, up4), third), 64, 1, shortcut=False)
    down4 = _c2f(graph, graph.concat(conv(up3, 64, 3, 2), up4), 128, 1, shortcut=False)
    down5 = _c2f(graph, graph.concat(conv(down4, 128, 3, 2), fifth), 256, 1, shortcut=False)
    flat = graph.constant(np.array([0, 144, -1]))
    heads = []
    for level in (up3, down4, down5):
        boxes = graph.conv(conv(conv(level, 64, 3), 64, 3), 64, 1)
        classes = graph.conv(conv(conv(level, 80, 3), 80, 3), 80, 1)
        heads.append(graph.node("Reshape", graph.concat(boxes, classes), flat))
    return graph.concat(*heads, axis=2)


def dave_orig(graph: Graph) -> str:
    """Bojarski et al., 2016, as in Autopilot-TensorFlow: the steering angle is ``2 · atan``."""
    x = graph.input
    for channels, kernel, stride in ((24, 5, 2), (36, 5, 2), (48, 5, 2), (64, 3, 1), (64, 3, 1)):
        x = graph.relu(graph.conv(x, channels, kernel, stride, pad=0))
    angle = graph.node("Atan", _dense_tail(graph, x, 1164, 100, 50, 10, 1))
    return graph.node("Mul", angle, graph.constant(np.array(2, np.float32)))


def mobilenet(graph: Graph) -> str:
    """Howard et al., 2017: the first version, full width."""
    conv = partial(_conv, graph, graph.relu)
    x = conv(graph.input, 32, 3, 2)
    for channels, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5):
        x = conv(conv(x, graph.channels(x), 3, stride, groups=graph.channels(x)), channels, 1)
    x = conv(conv(x, 512, 3, 2, groups=512), 1024, 1)
    x = conv(conv(x, 1024, 3, groups=1024), 1024, 1)
    return graph.dense(graph.node("GlobalAveragePool", x), 1000)


def squeezenet(graph: Graph) -> str:
    """Iandola et al., 2016: version 1.0."""
    conv = partial(_conv, graph, graph.relu)
    x = conv(graph.input, 96, 7, 2)
    for width in (None, 16, 16, 32, None, 32, 48, 48, 64, None, 64):
        if width is None:
            x = graph.max_pool(x, 3, 2, ceil=True)
            continue
        squeezed = conv(x, width, 1)
        x = graph.concat(conv(squeezed, 4 * width, 1), conv(squeezed, 4 * width, 3))
    return graph.node("Flatten", graph.node("GlobalAveragePool", conv(x, 1000, 1)))


def deepface(graph: Graph) -> str:
    """The proportions of Taigman et al., 2014, with convolutions for local layers, which ONNX lacks."""
    conv = partial(_conv, graph, graph.relu, pad=0)
    x = conv(graph.max_pool(conv(graph.input, 32, 11), 3, 2, ceil=True), 16, 9)
    x = conv(conv(conv(x, 16, 9), 16, 7, 2), 16, 5)
    return _dense_tail(graph, x, 4096, 4030)


class Network(NamedTuple):
    """Input size and builder of a network."""

    height: int
    """Height of its photos in pixels."""
    width: int
    """Width of its photos in pixels."""
    build: Callable[[Graph], str]
    """Adds its layers; returns the name of its output."""


NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        "AlexNet": Network(227, 227, alexnet),
        "GoogLeNet": Network(224, 224, googlenet),
        "ResNet-50": Network(224, 224, resnet_50),
        "YOLO": Network(448, 448, yolo),
        "YOLOv8n": Network(416, 416, yolov8n),
        "Dave-orig": Network(66, 200, dave_orig),
        "MobileNet-v1": Network(224, 224, mobilenet),
        "SqueezeNet": Network(224, 224, squeezenet),
        "DeepFace": Network(152, 152, deepface),
    }
)


def build(name: str, path: Path, *, seed: int) -> None:
    """Build one of `NETWORKS`."""
    network = NETWORKS[name]
    graph = Graph(network.height, network.width, seed)
    graph.save(path, network.build(graph))


def _conv(graph: Graph, activation: Callable[[str], str], x: str, *layer: int, **more: int) -> str:
    """Add `Graph.conv` with an activation; ``layer`` and ``more`` are the arguments of `Graph.conv`."""
    return activation(graph.conv(x, *layer, **more))


def _dense_tail(graph: Graph, x: str, *units: int) -> str:
    """Add fully connected layers, with ReLU between them."""
    for width in units[:-1]:
        x = graph.relu(graph.dense(x, width))
    return graph.dense(x, units[-1])


def _c2f(graph: Graph, x: str, channels: int, blocks: int, *, shortcut: bool = True) -> str:
    """Add a C2f block: split the channels, extend one half by bottlenecks, merge all parts."""
    half = channels // 2
    conv = partial(_conv, graph, graph.silu)
    maps = graph.nodes("Split", 2, conv(x, channels, 1), graph.constant(np.array([half, half])), axis=1)
    for _ in range(blocks):
        inner = conv(conv(maps[-1], half, 3), half, 3)
        maps.append(graph.node("Add", inner, maps[-1]) if shortcut else inner)
    return conv(graph.concat(*maps), channels, 1)


def _doubled(graph: Graph, x: str) -> str:
    """Double height and width by repeating the nearest pixel."""
    factors = graph.constant(np.array([1, 1, 2, 2], np.float32))
    how = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return graph.node("Resize", x, "", factors, mode="nearest", **how)
