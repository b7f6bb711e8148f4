"""A warm request to a network at an edge, compared with the runtime alone on the same tensor.

The edge is a real daemon on loopback whose network is resident. Its time is taken from each answer: from the
arrival of the request to its response, including the wait for a worker. Both are measured in alternating
blocks, so that changes of the machine's speed affect both equally.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nearsight.common.inference.measurement import measure
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.runtime import Network, Runtime
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.rpc.server import ServerSettings
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles, times_ms
from nearsight.experiments.framework.extra import require_experiments
from nearsight.experiments.rig.model_edge import UNUSED_ENDPOINT, infer_once

SIDES_PX = (16, 112, 224)
"""Side lengths of inputs of 3 KB, 151 KB and 602 KB."""
MAX_OVERHEAD_MS = 1.0
_WARM_UP = 20


QUICK = {"blocks": 3, "requests": 10}


def run(
    report_step: ReportStep,
    sides_px: Sequence[int] = SIDES_PX,
    blocks: int = 20,
    requests: int = 50,
) -> Benchmark:
    """Measure the runtime and the edge in alternating blocks.

    Parameters
    ----------
    report_step : callable
        Called with the current step.
    sides_px : sequence of int
        Inputs ``(1, 3, side, side)`` float32.
    blocks, requests : int
        Blocks of each, and requests per block.

    Returns
    -------
    Benchmark
        For each size: medians of the runtime, of the time in the edge and of the whole call of the SDK; the
        median difference of blocks with its minimum and maximum; whether it is at most `MAX_OVERHEAD_MS`.
    """
    report_step(f"inference: {blocks} x {requests} warm requests per size")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="nearsight-bench-")))
        runtime = Runtime()
        stack.callback(runtime.close)
        repository = ModelRepository(folder / "models")
        networks: dict[int, Network] = {}
        for side_px in sides_px:
            path, name = _pooling_network(folder / f"side{side_px}.onnx", side_px), f"side{side_px}"
            measured, _ = measure(path, name)
            repository.add(path, replace(manifest_of_file(path, name), measured=measured))
            networks[side_px] = runtime.load(path, name)
        edge = EdgeDaemon(
            EdgeSettings(
                server=ServerSettings(listen="tcp://127.0.0.1:0"),
                cloud=UNUSED_ENDPOINT,
                models=ModelSettings(folder=folder / "models"),
            ),
            DaemonMetrics("edge"),
        )
        edge.start()
        stack.callback(edge.stop, 1.0)
        rows = [_row(edge, side_px, networks[side_px], blocks, requests) for side_px in sides_px]
    columns = {
        "input kB": "{input_kb:.0f}",
        "runtime ms": "{runtime_ms:.3f}",
        "in the edge ms": "{edge_ms:.3f}",
        "overhead ms": "{more_ms:.3f}",
        "blocks": "{least_more_ms:.3f} … {most_more_ms:.3f}",
        "p99 in the edge": "{edge_p99_ms:.3f}",
        "whole call ms": "{call_ms:.3f}",
        "at most 1 ms more": "{reached}",
    }
    return Benchmark(
        "inference", "A warm request to a network at an edge, against the runtime alone", columns, rows
    )


def _row(edge: EdgeDaemon, side_px: int, network: Network, blocks: int, requests: int) -> dict[str, Any]:
    rng = np.random.default_rng(side_px)
    tensor = rng.random((1, 3, side_px, side_px), np.float32)
    settings = RecognizerSettings(prefetch=PrefetchSettings(enabled=False))
    direct: list[list[float]] = []
    inside: list[list[float]] = []
    calls: list[float] = []
    with Recognizer(edge.endpoint, None, f"side{side_px}", settings=settings) as recognizer:
        for _ in range(_WARM_UP):
            infer_once(recognizer, tensor)
        for _ in range(blocks):
            direct.append(times_ms(lambda x: network.run({"x": x}), [tensor] * requests))
            answers = [recognizer.infer(tensor) for _ in range(requests)]
            inside.append([answer.hops[-1].queue_ms + answer.hops[-1].compute_ms for answer in answers])
            calls += [answer.latency_ms for answer in answers]
    more = [
        statistics.median(ours) - statistics.median(bare) for ours, bare in zip(inside, direct, strict=True)
    ]
    everything = [ms for block in inside for ms in block]
    more_ms = statistics.median(more)
    return {
        "input_kb": tensor.nbytes / 1e3,
        "runtime_ms": statistics.median(ms for block in direct for ms in block),
        "edge_ms": statistics.median(everything),
        "edge_p99_ms": percentiles(everything, 99)[0],
        "more_ms": more_ms,
        "least_more_ms": min(more),
        "most_more_ms": max(more),
        "call_ms": statistics.median(calls),
        "requests": len(calls),
        "reached": more_ms <= MAX_OVERHEAD_MS,
    }


def _pooling_network(path: Path, side_px: int) -> Path:
    """The mean of each channel: so fast that the overhead around the runtime is visible."""
    require_experiments("bench inference", ("onnx",), extra="inference")
    import onnx  # noqa: PLC0415  optional

    shape: list[str | int] = ["n", 3, side_px, side_px]
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["x"], ["y"])],
        "pooling",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, ["n", 3, 1, 1])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path
