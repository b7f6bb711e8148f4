"""Measures costs of networks: load time, execution time and memory, in cycles of load, execute and unload.

Both papers use this procedure: CremeBrulee with 50 cycles (figure 1), mCache with 20 (3.2), of 10
executions each. Networks run on one thread. A cell is a few cycles of one network in a process of its own, so
that a run of an hour can be interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from nearsight.common.errors import MissingDependency
from nearsight.common.inference.measurement import Cycle, measure
from nearsight.common.inference.repository import ModelRepository
from nearsight.experiments.framework.experiment import Experiment, Row, RunOptions, StoredRow
from nearsight.experiments.framework.numbers import median_and_range, nested, values

COLUMNS = (
    *("load_ms", "first_ms", "execution_ms"),
    *("memory_mb", "loaded_mb", "executed_mb", "unloaded_mb"),
)
"""Columns of a cycle; ``execution_ms`` is the median of the executions after the first."""
_CYCLES_PER_CELL, _EXECUTIONS = 5, 10
_SMALL_MB = {"small-1": 1, "small-4": 4, "small-16": 16}
_WITHIN_S = 900.0


class Profiles(Experiment):
    """Times and memory of loading and executing networks.

    `RunOptions.data` is a folder of networks, such as one that `nearsight models build` fills. Without it,
    small networks are generated.
    """

    takes: ClassVar[tuple[str, ...]] = ("data",)
    cycles: ClassVar[int]
    """Number of loads and unloads per network."""

    def wanted(self, names: Sequence[str]) -> Sequence[str]:
        """Select the networks of a folder to measure."""
        return names

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per network and part of its cycles; the first parts of all networks come first."""
        if options.data is None:
            names: Sequence[str] = [*_SMALL_MB]
        else:
            names = self.wanted([*ModelRepository(options.data).manifests()])
        parts = 1 if options.smoke else self.cycles // _CYCLES_PER_CELL
        return [
            {"network": network, "part": part}
            for part in range(parts)
            for network in names[: 2 if options.smoke else None]
        ]

    def key(self, **parameters: Any) -> str:
        """Keep the name of the network, a valid file name: "a--b" and "a-b" have separate cells."""
        return f"{parameters['network']}-{parameters['part']}"

    def cell_of(self, row: StoredRow) -> dict[str, Any]:
        """Cell of a row: its network and the part of its cycle."""
        return {"network": row["network"], "part": int(row["cycle"]) // _CYCLES_PER_CELL}

    def run(self, options: RunOptions, network: str, part: int) -> list[Row]:
        """Measure some cycles in a process of its own: one row per load, executions and unload."""
        cycles, executions = (2, 3) if options.smoke else (_CYCLES_PER_CELL, _EXECUTIONS)
        with TemporaryDirectory() as folder:
            if options.data is None:
                path = small_network(Path(folder) / f"{network}.onnx", _SMALL_MB[network])
            else:
                repository = ModelRepository(options.data)
                path = repository.checked_path(repository.get(network))
            _, measured = measure(path, network, cycles=cycles, executions=executions, within_s=_WITHIN_S)
            file_mb = path.stat().st_size / 1e6
        first = part * _CYCLES_PER_CELL
        return [_row(network, file_mb, first + place, one) for place, one in enumerate(measured)]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<network>``: medians and ranges over cycles, smallest file first."""
        found = nested(rows, ("network",), _of_network)
        return dict(sorted(found.items(), key=lambda item: float(item[1]["file_mb"])))


def medians(summary: Mapping[str, Any], column: str) -> list[float]:
    """Medians of a column for all networks, in the order of the summary."""
    return [float(one[column]["median"]) for one in summary.values()]


def _row(name: str, file_mb: float, place: int, cycle: Cycle) -> Row:
    in_bytes = (cycle.loaded_bytes, cycle.executed_bytes, cycle.unloaded_bytes)
    loaded_mb, executed_mb, unloaded_mb = (size_bytes / 1e6 for size_bytes in in_bytes)
    times = (cycle.load_ms, cycle.first_ms, median(cycle.later_ms))
    memory = (max(loaded_mb, executed_mb) - unloaded_mb, loaded_mb, executed_mb, unloaded_mb)
    numbers = {column: round(value, 3) for column, value in zip(COLUMNS, (*times, *memory), strict=True)}
    return {"network": name, "file_mb": round(file_mb, 3), "cycle": place, **numbers}


def _of_network(rows: Sequence[StoredRow]) -> dict[str, Any]:
    found: dict[str, Any] = {column: median_and_range(values(rows, column)) for column in COLUMNS}
    load, first, later = (found[f"{column}_ms"]["median"] for column in ("load", "first", "execution"))
    found["load_over_execution"] = round(load / max(later, 1e-6), 3)
    found["first_over_later"] = round(first / max(later, 1e-6), 3)
    return {**found, "file_mb": float(rows[0]["file_mb"]), "cycles": len(rows)}


def small_network(path: Path, megabytes: int) -> Path:
    """Write a network that consists of one product with a matrix of random weights."""
    try:
        import onnx  # noqa: PLC0415  optional
    except ImportError as error:
        raise MissingDependency(
            "profiles without --data use generated networks, which need onnx",
            advice="pip install 'nearsight[inference]', or give a folder of networks with --data",
        ) from error
    side = int((megabytes * 1e6 / 4) ** 0.5)
    weights = np.random.default_rng(1).normal(0, 0.1, (side, side)).astype(np.float32)
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        path.stem,
        [helper.make_tensor_value_info("x", kind, [1, side])],
        [helper.make_tensor_value_info("y", kind, [1, side])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path
