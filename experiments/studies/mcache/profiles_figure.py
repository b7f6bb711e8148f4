"""Table 2 and figure 3 of mCache: what networks take to load and to execute here, on one thread.

`--data DIR` is a folder of networks, such as `nearsight models build` fills; without it small ones are made.
The paper's times are those of a GPU, so that what is compared is how loading and executing relate.
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
from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import (
    Cell,
    Experiment,
    Results,
    Row,
    RunOptions,
    StoredRow,
    Table,
    Target,
)
from nearsight.experiments.framework.numbers import median_and_range, median_in_words, nested, values

TABLE_2 = {
    "MobileNet-0.25": (16.0, 131.8, 1.9),
    "MobileNet-0.5": (16.3, 147.5, 5.2),
    "MobileNet-0.75": (17.4, 172.7, 10.5),
    "MobileNet-1.0": (17.5, 209.6, 17.1),
    "DenseNet121": (30.8, 586.3, 43.9),
    "InceptionV3": (34.7, 1010.6, 95.7),
    "InceptionResNetV2": (47.4, 1476.3, 121.6),
    "InceptionV4": (51.5, 1642.3, 171.2),
    "NASNetLarge": (70.0, 3702.3, 356.6),
}
"""Execution [ms], load [ms], file [MB]. Which DenseNet it was is not said."""
_CYCLES, _EXECUTIONS = 20, 10
_SMALL_MB = {"small-1": 1, "small-4": 4, "small-16": 16}
_WITHIN_S = 900.0
_APART = 1.25
"""Points that are nearer than this factor share a label, the one of the smaller file."""


class Figure(Experiment):
    """Times and memory of loading and executing networks, 20 cycles of 10 executions each, beside table 2."""

    name: ClassVar[str] = "mcache-profiles"
    source: ClassVar[str] = "mCache, 3.2"
    takes_data: ClassVar[bool] = True

    def cells(self, options: RunOptions) -> tuple[Cell, ...]:
        """One per network."""
        names = [*(_SMALL_MB if options.data is None else ModelRepository(options.data).manifests())]
        return tuple(Cell(name, {"network": name}) for name in names[: 2 if options.smoke else None])

    def run(self, cell: Cell, options: RunOptions) -> list[Row]:
        """A row per cycle of loading, executing and unloading, all in a process of its own."""
        name = cell.parameters["network"]
        cycles, executions = (2, 3) if options.smoke else (_CYCLES, _EXECUTIONS)
        with TemporaryDirectory() as folder:
            if options.data is None:
                path = _small_network(Path(folder) / f"{name}.onnx", _SMALL_MB[name])
            else:
                repository = ModelRepository(options.data)
                path = repository.checked_path(repository.get(name))
            _, measured = measure(path, name, cycles=cycles, executions=executions, within_s=_WITHIN_S)
            file_mb = path.stat().st_size / 1e6
        return [_row(name, file_mb, place, one) for place, one in enumerate(measured)]

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``<network>``: medians and ranges over cycles, smallest file first."""
        found = nested(rows, ("network",), _of_network)
        return dict(sorted(found.items(), key=lambda item: float(item[1]["file_mb"])))

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Loading takes longer than executing, and longer for larger networks."""
        least = min(summary, key=lambda name: float(summary[name]["load_over_execution"]))
        files, loads = (
            [one["file_mb"] for one in summary.values()],
            [one["load_ms"]["median"] for one in summary.values()],
        )
        ranks = np.corrcoef(np.argsort(np.argsort(files)), np.argsort(np.argsort(loads)))[0, 1]
        return (
            Target.at_least(
                "load over execution of any network; 8.2 to 53 in table 2",
                summary[least]["load_over_execution"],
                1.0,
                f"the least is that of {least}",
                2,
            ),
            Target.at_least(
                "rank correlation of file size and load time; 1 in table 2", float(ranks), 0.8, "", 3
            ),
        )

    def table(self, summary: Mapping[str, Any]) -> Table:
        """A line per network."""
        columns = (
            "network",
            "file MB",
            "memory MB",
            "load ms",
            "first ms",
            "execution ms",
            "load / execution",
        )
        lines = []
        for name, one in summary.items():
            said = TABLE_2.get(name)
            times = [median_in_words(one[column], 1) for column in ("load_ms", "first_ms", "execution_ms")]
            lines.append(
                (
                    name,
                    f"{one['file_mb']:.1f}",
                    f"{one['memory_mb']['median']:.1f}",
                    *times,
                    f"{one['load_over_execution']:.1f}",
                    f"{said[1] / said[0]:.1f}, {said[2]} MB" if said else "",
                )
            )
        return (*columns, "paper's, on a GPU"), lines

    def draw(self, results: Results) -> drawing.Picture:
        """Figure 3, and load times over sizes."""
        names = list(results.metrics)
        picture = drawing.new_picture(10.6, 1.6 + 0.28 * max(8, len(names)))
        shares, sizes = picture.subplots(1, 2)
        loads = np.array([one["load_ms"]["median"] for one in results.metrics.values()])
        executions = np.array([one["execution_ms"]["median"] for one in results.metrics.values()])
        load_shares = 100 * loads / (loads + executions)
        drawing.stacked_bars(
            shares,
            names,
            {"load": load_shares.tolist(), "execution": (100 - load_shares).tolist()},
            {"load": "#c2571a", "execution": "#24415c"},
            height=0.7,
            numbers="white",
            least=6.0,
        )
        for place, name in enumerate(names):
            if name in TABLE_2:
                execution_ms, load_ms, _ = TABLE_2[name]
                shares.plot(
                    100 * load_ms / (load_ms + execution_ms),
                    place,
                    "*",
                    color="black",
                    markersize=9,
                    markeredgecolor="white",
                )
        shares.set(title="A request that loads its network (figure 3)", xlabel="share of the latency [%]")
        drawing.legend_below(picture, shares)
        files = [one["file_mb"] for one in results.metrics.values()]
        middle, ends = drawing.middles([one["load_ms"] for one in results.metrics.values()], "median")
        sizes.errorbar(files, middle, ends, fmt="o", color="#c2571a", markersize=4, capsize=2, label="here")
        labelled: list[tuple[float, float]] = []
        for name, x, y in zip(names, files, middle, strict=True):
            if all(max(x / a, a / x, y / b, b / y) > _APART for a, b in labelled):
                sizes.annotate(name, (x, y), xytext=(5, -9), textcoords="offset points", fontsize=7)
                labelled.append((x, y))
        said = np.array([*TABLE_2.values()])
        sizes.plot(said[:, 2], said[:, 1], "*", color="black", markersize=8, label="table 2, on a GPU")
        sizes.set(title="Load times (table 2)", xscale="log", yscale="log", xlabel="file [MB]", ylabel="ms")
        for axis in (sizes.xaxis, sizes.yaxis):
            drawing.plain_logarithmic(axis)
        sizes.legend(loc="upper left")
        drawing.caption(
            picture, "Medians and ranges over cycles of load, executions and unload; stars: the paper"
        )
        return picture


def _row(name: str, file_mb: float, place: int, cycle: Cycle) -> Row:
    return {
        "network": name,
        "file_mb": round(file_mb, 3),
        "cycle": place,
        "load_ms": round(cycle.load_ms, 3),
        "first_ms": round(cycle.first_ms, 3),
        "execution_ms": round(median(cycle.later_ms), 3),
        "memory_mb": round((max(cycle.loaded_bytes, cycle.executed_bytes) - cycle.unloaded_bytes) / 1e6, 3),
    }


def _of_network(rows: Sequence[StoredRow]) -> dict[str, Any]:
    found: dict[str, Any] = {
        column: median_and_range(values(rows, column))
        for column in ("load_ms", "first_ms", "execution_ms", "memory_mb")
    }
    ratio = found["load_ms"]["median"] / max(found["execution_ms"]["median"], 1e-6)
    return {**found, "file_mb": float(rows[0]["file_mb"]), "load_over_execution": round(ratio, 3)}


def _small_network(path: Path, megabytes: int) -> Path:
    """A network of one product with a matrix of random weights."""
    try:
        import onnx  # noqa: PLC0415  optional
    except ImportError as error:
        raise MissingDependency(
            "`nearsight experiment run mcache-profiles` makes networks with onnx",
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
