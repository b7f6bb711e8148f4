"""Table 1 and figure 4 of DeepCache: time of a network by kind of layer, in unmodified onnxruntime.

The library computes ReLU within the preceding convolution, so "activation" contains only the other
activations. Local response normalisation is a separate kind here, because the library takes as long for it as
for convolutions. A banded convolution of 1 by 1 gives the same result faster. The time that this rewrite
saves is reported separately from any cache.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.framework.numbers import grouped, nested
from nearsight.experiments.studies.deepcache import networks
from nearsight.experiments.studies.deepcache.ways import timed

_KINDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("Conv", "FusedConv"), "conv")
    | dict.fromkeys(("Gemm", "FusedGemm", "MatMul", "FusedMatMul"), "fc")
    | dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool"), "pool")
    | dict.fromkeys(("Relu", "LeakyRelu", "Sigmoid", "QuickGelu", "Atan", "Softmax"), "activation")
    | {"LRN": "LRN"}
)
_COLOURS = {
    "conv": "#1f6f8b",
    "fc": "#e0a33a",
    "pool": "#7a9e3b",
    "activation": "#c2571a",
    "LRN": "#8a6d9b",
    "rest": "#b8b8b8",
}
_TABLE_1: Mapping[str, str] = MappingProxyType(
    {
        "AlexNet": "77.9 7.1 12.1 1.8 1.1",
        "GoogLeNet": "78.8 0.7 8.6 9.3 2.6",
        "ResNet-50": "93.7 4.9 0.8 0.4 0.2",
        "YOLO": "84.1 12.2 2.6 0.9 0.2",
        "Dave-orig": "62.7 25.9 5.8 3.7 1.9",
    }
)
"""Values of ncnn in the paper: conv, fc, pool, activation, rest [%]."""


class Figure(Experiment):
    """DeepCache's table 1 and figure 4: the share of each kind of layer in the time of a network."""

    name: ClassVar[str] = "deepcache-layers"
    source: ClassVar[str] = "DeepCache, 2.1 and 2.2"
    takes: ClassVar[tuple[str, ...]] = ("data",)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per network."""
        wanted = (*networks.PAPER, networks.TODAY, "MobileNet-v1", "SqueezeNet")
        return [{"name": network} for network in networks.networks_of(options, wanted)]

    def run(self, options: RunOptions, name: str) -> list[Row]:
        """One row per layer, in the order of execution: medians."""
        network = networks.network_of(name, options.data)
        executions = 5 if options.smoke else 30
        with TemporaryDirectory() as folder:
            plain_ms, layers = _profiled(network.path, Path(folder), executions)
            rewritten = Path(folder) / "rewritten.onnx"
            rewrites = without_lrn(network.path, rewritten)
            again_ms = _profiled(rewritten, Path(folder), executions)[0] if rewrites else 0
        all_of_it = {"plain_ms": round(plain_ms, 3), "rewritten_ms": round(again_ms, 3)}
        return [
            {"network": network.name, "place": place, **layer, **all_of_it}
            for place, layer in enumerate(layers)
        ]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<network>``: shares [%] by kind, execution time, and execution time with LRN as a convolution."""
        return nested(rows, ("network",), _of_network)

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """The conclusions of the paper."""
        shares = {name: one["shares"] for name, one in summary.items()}
        known = {name: one for name, one in shares.items() if name in networks.PAPER} or shares
        least = min(known, key=lambda name: known[name]["conv"] / (100 - known[name]["LRN"]))
        share = known[least]["conv"] / (100 - known[least]["LRN"]) * 100
        largest = sum(max(one, key=one.__getitem__) == "conv" for one in known.values())
        text_most = "networks in which convolutions take the most time; all in the paper"
        text_least = "smallest share of convolutions without LRN [%]; 63 in the paper"
        return (
            Target(text_most, largest, largest == len(known), f"of {len(known)}"),
            Target.at_least(text_least, share, 50.0, least, 1),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per network."""
        for name, one in summary.items():
            yield {
                "network": name,
                "ms": f"{one['plain_ms']:.1f}",
                **{f"{kind} %": f"{one['shares'][kind]:.1f}" for kind in _COLOURS},
                "paper: conv fc pool act rest": _TABLE_1.get(name, ""),
                "LRN as conv ms": f"{one['rewritten_ms']:.1f}" if one["rewritten_ms"] else "",
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw the shares of all networks, and the layers of the first one in the order of execution."""
        found = results.metrics
        picture = drawing.new_picture(11.0, 4.2)
        every, one = picture.subplots(1, 2, width_ratios=[1, 1.2])
        parts = {kind: [found[name]["shares"][kind] for name in found] for kind in _COLOURS}
        drawing.stacked_bars(every, [*found], parts, _COLOURS, height=0.6, numbers="white", least=6.0)
        every.set(title="Time by kind of layer (table 1)", xlabel="% of an execution", xlim=(0, 100))
        name = next(iter(found))
        layers = [row for row in results.rows if row["network"] == name and float(row["layer_ms"]) > 0.02]
        colours = [_COLOURS[_KINDS.get(row["operator"], "rest")] for row in layers]
        one.bar(range(len(layers)), [float(row["layer_ms"]) for row in layers], color=colours)
        one.set_xticks(range(len(layers)), [row["operator"] for row in layers], rotation=90, fontsize=7)
        one.set(title=f"Layers of {name}, in order (figure 4)", ylabel="time [ms]")
        drawing.legend_below(picture, every)
        drawing.caption(picture, "onnxruntime, all optimisations, one thread; medians. ReLU is part of conv")
        return picture


def without_lrn(source: Path, target: Path) -> bool:
    """Write the network with each LRN as a banded 1 by 1 convolution of the squares.

    ``y = x / (bias + alpha / size · Σ x²)^beta``, the sum over ``size`` channels around each (ONNX, LRN).
    Returns False, and writes nothing, if the network has no LRN.
    """
    import onnx  # noqa: PLC0415  optional
    from onnx import helper, numpy_helper  # noqa: PLC0415

    model = onnx.load(str(source))
    shapes = {one.name: one for one in onnx.shape_inference.infer_shapes(model).graph.value_info}
    nodes: list[Any] = []
    for node in model.graph.node:
        if node.op_type != "LRN":
            nodes.append(node)
            continue
        name, given = node.output[0], {one.name: helper.get_attribute_value(one) for one in node.attribute}
        channels = shapes[node.input[0]].type.tensor_type.shape.dim[1].dim_value
        apart = np.subtract.outer(np.arange(channels), np.arange(channels))
        band = (np.abs(apart) <= given["size"] // 2) * (given["alpha"] / given["size"])
        weights = {
            "band": band.reshape(channels, channels, 1, 1),
            "bias": np.full(channels, given["bias"]),
            "beta": np.array(-given["beta"]),
        }
        model.graph.initializer.extend(
            numpy_helper.from_array(value.astype(np.float32), f"{name}.{part}")
            for part, value in weights.items()
        )
        steps = (
            ("Mul", (node.input[0], node.input[0]), "squares"),
            ("Conv", (f"{name}.squares", f"{name}.band", f"{name}.bias"), "sum"),
            ("Pow", (f"{name}.sum", f"{name}.beta"), "factor"),
        )
        nodes += [helper.make_node(kind, inputs, [f"{name}.{made}"]) for kind, inputs, made in steps]
        nodes.append(helper.make_node("Mul", [node.input[0], f"{name}.factor"], [name]))
    changed = len(nodes) > len(model.graph.node)
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, str(target))
    return changed


def _profiled(path: Path, folder: Path, executions: int) -> tuple[float, list[dict[str, Any]]]:
    """Execution time without profiling [ms], and columns of each layer."""
    session = networks.plain_session(path)
    (taken,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in taken.shape]
    inputs = {taken.name: np.random.default_rng(0).random(shape, np.float32)}
    times = [timed(partial(session.run, None, inputs))[1] for _ in range(executions + 3)]
    session = networks.plain_session(path, enable_profiling=True, profile_file_prefix=str(folder / "profile"))
    for _ in range(executions + 3):
        session.run(None, inputs)
    events = json.loads(Path(session.end_profiling()).read_text())
    layers: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            layers[name, event["args"]["op_name"]].append(event["dur"] / 1e3)
    return median(times[3:]), [
        {"layer": layer, "operator": operator, "layer_ms": round(median(found[3:]), 4)}
        for (layer, operator), found in layers.items()
    ]


def _of_network(rows: list[StoredRow]) -> dict[str, Any]:
    total = sum(float(row["layer_ms"]) for row in rows)
    by_kind = dict.fromkeys(_COLOURS, 0.0)
    for operator, layers in grouped(rows, "operator").items():
        by_kind[_KINDS.get(operator, "rest")] += sum(float(row["layer_ms"]) for row in layers)
    return {
        "shares": {kind: round(100 * spent / total, 2) for kind, spent in by_kind.items()},
        "plain_ms": float(rows[0]["plain_ms"]),
        "rewritten_ms": float(rows[0]["rewritten_ms"]),
        "convolutions": sum(_KINDS.get(row["operator"]) == "conv" for row in rows),
    }
