"""Table 2 and figure 3 of mCache: load and execution times of networks on this machine, with one thread.

`--data DIR` is a folder of networks, such as `nearsight models build` creates. Without it, small networks are
created. The paper's times were measured on a GPU, so only the ratio of load to execution is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from nearsight.experiments.framework import drawing
from nearsight.experiments.framework.experiment import Results, Target
from nearsight.experiments.framework.numbers import median_in_words, rank_correlation
from nearsight.experiments.model_serving.profiles import Profiles, medians

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
"""Execution [ms], load [ms], file [MB]. The paper does not state its DenseNet variant."""


class Figure(Profiles):
    """Times and memory of loading and executing networks, 20 cycles of 10 executions each, and table 2."""

    name: ClassVar[str] = "mcache-profiles"
    source: ClassVar[str] = "mCache, 3.2"
    shares_cells_with: ClassVar[tuple[str, ...]] = ("cremebrulee-profiles",)
    cycles: ClassVar[int] = 20

    def targets(self, summary: Mapping[str, Any]) -> tuple[Target, ...]:
        """Loading takes longer than executing, and longer for larger networks."""
        least = min(summary, key=lambda name: float(summary[name]["load_over_execution"]))
        ranks = rank_correlation([one["file_mb"] for one in summary.values()], medians(summary, "load_ms"))
        return (
            Target.at_least(
                "load over execution of any network; 8.2 to 53 in table 2",
                summary[least]["load_over_execution"],
                1.0,
                f"the smallest is that of {least}",
                2,
            ),
            Target.at_least("rank correlation of file size and load time; 1 in table 2", ranks, 0.8, "", 3),
        )

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per network."""
        paper = "paper, on a GPU: MB, load, execution, ratio"
        for name, one in summary.items():
            yield {
                "network": name,
                "file MB": f"{one['file_mb']:.1f}",
                "memory MB": f"{one['memory_mb']['median']:.1f}",
                "load ms": median_in_words(one["load_ms"], 1),
                "first ms": median_in_words(one["first_ms"], 1),
                "execution ms": median_in_words(one["execution_ms"], 1),
                "load / execution": f"{one['load_over_execution']:.1f}",
                paper: _paper(name),
            }
        for name in TABLE_2:
            if name not in summary:
                yield {"network": name, "file MB": "not measured", paper: _paper(name)}

    def draw(self, results: Results) -> drawing.Picture:
        """Draw figure 3, and load times over sizes."""
        names = list(results.metrics)
        picture = drawing.new_picture(10.6, 1.6 + 0.28 * max(8, len(names)))
        shares, sizes = picture.subplots(1, 2)
        loads, executions = (
            np.array(medians(results.metrics, column)) for column in ("load_ms", "execution_ms")
        )
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
                share = 100 * load_ms / (load_ms + execution_ms)
                # Beside the middle of the bar, where the number is.
                shares.plot(share, place + 0.36, "*", color="black", markersize=9, markeredgecolor="white")
        shares.set(title="A request that loads its network (figure 3)", xlabel="share of the latency [%]")
        drawing.legend_below(picture, shares)
        files = [one["file_mb"] for one in results.metrics.values()]
        middle, ends = drawing.error_bars([one["load_ms"] for one in results.metrics.values()], "median")
        sizes.errorbar(files, middle, ends, fmt="o", color="#c2571a", markersize=4, capsize=2, label="here")
        for name, x, y in zip(names, files, middle, strict=True):
            if name in TABLE_2 or TABLE_2.keys().isdisjoint(names):
                sizes.annotate(name, (x, y), xytext=(5, -9), textcoords="offset points", fontsize=7)
        said = np.array([*TABLE_2.values()])
        sizes.plot(said[:, 2], said[:, 1], "*", color="black", markersize=8, label="table 2, on a GPU")
        sizes.set(
            title="Load times (table 2)",
            xscale="log",
            yscale="log",
            xlabel="file [MB]",
            ylabel="load time [ms]",
        )
        for axis in (sizes.xaxis, sizes.yaxis):
            drawing.plain_logarithmic(axis)
        sizes.legend(loc="upper left")
        drawing.caption(
            picture, "Medians and ranges over cycles of load, executions and unload; stars: the paper"
        )
        return picture


def _paper(name: str) -> str:
    if name not in TABLE_2:
        return ""
    execution_ms, load_ms, file_mb = TABLE_2[name]
    return f"{file_mb}, {load_ms:.0f}, {execution_ms:.0f}, {load_ms / execution_ms:.1f}"
